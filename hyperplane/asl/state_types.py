"""Execution of each type of state, from Pass to Map; Parallel and Map run nested states."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from hyperplane.asl.checking import processor_mode
from hyperplane.asl.choice_rules import matches_rule
from hyperplane.asl.errors import RUNTIME, StateError
from hyperplane.asl.execution import Execution, ExecutionFrame
from hyperplane.asl.execution_scope import ExecutionScope, run_concurrently
from hyperplane.asl.input_output import (
    build_output,
    follow_path,
    read_percentage,
    read_seconds,
    read_whole_number,
    select_path,
)
from hyperplane.asl.items import make_batches, read_items
from hyperplane.asl.payload_templates import evaluate_dynamic, fill_template
from hyperplane.asl.strict_json import copy_json
from hyperplane.asl.timestamps import parse_timestamp
from hyperplane.core.units import plural

_TOO_MANY_FAILURES = "States.ExceedToleratedFailureThreshold"

#: The output of a state and the name of the next state; None after a terminal state.
StateResult = tuple[Any, str | None]


def _select_payload(state: dict[str, Any], data: Any, context: Any) -> Any:
    """Apply ``InputPath`` and ``Parameters`` to the input of a state."""
    return _apply_parameters(state, select_path(state, "InputPath", data, context), context)


def _apply_parameters(state: dict[str, Any], selected: Any, context: Any) -> Any:
    if "Parameters" not in state:
        return selected
    return fill_template(state["Parameters"], selected, context)


def _next_state(state: dict[str, Any]) -> str | None:
    """Return the name of the next state; None after a terminal state."""
    name: str | None = state.get("Next")
    return name


def run_pass(
    execution: Execution, state: dict[str, Any], data: Any, context: Any, frame: ExecutionFrame
) -> StateResult:
    """Run a Pass state: its result is ``Result``, else its ``Parameters``, else its input."""
    result = _select_payload(state, data, context)
    if "Result" in state:
        result = copy_json(state["Result"])  # a task may change the output, but not the machine
    return build_output(state, data, result, context), _next_state(state)


def run_task(
    execution: Execution, state: dict[str, Any], data: Any, context: Any, frame: ExecutionFrame
) -> StateResult:
    """Run a Task state: its result is that of the task for its ``Resource``."""
    selected = select_path(state, "InputPath", data, context)
    payload = _apply_parameters(state, selected, context)
    limit = read_seconds(state, "TimeoutSeconds", selected, context, least=1)
    resource = state["Resource"]
    if execution.tasks.is_lambda_invoke(resource):
        result = _invoke_function(execution, payload, limit, frame, context["State"]["Name"])
    else:
        task = execution.tasks.find(resource, context["State"]["Name"], payload)
        if task is None:
            raise StateError(RUNTIME, execution.tasks.describe_missing(resource))
        path = (*frame.path, context["State"]["Name"])
        result = execution.call_task(task, payload, limit, frame.scope, path)
    return build_output(state, data, result, context), _next_state(state)


def _invoke_function(
    execution: Execution, parameters: Any, limit: float | None, frame: ExecutionFrame, state: str
) -> Any:
    """Call a function like ``lambda:invoke``, which wraps the result of the function."""
    name = parameters.get("FunctionName")
    task = execution.tasks.find_function(name, state)
    if task is None:
        raise StateError(RUNTIME, execution.tasks.describe_missing(f"the function {name}"))
    path = (*frame.path, state)
    result = execution.call_task(task, parameters.get("Payload", {}), limit, frame.scope, path)
    return {"ExecutedVersion": "$LATEST", "Payload": result, "StatusCode": 200}


def run_choice(
    execution: Execution, state: dict[str, Any], data: Any, context: Any, frame: ExecutionFrame
) -> StateResult:
    """Run a Choice state: the next state is that of the first rule that matches."""
    selected = select_path(state, "InputPath", data, context)
    next_state = next(
        (rule["Next"] for rule in state["Choices"] if matches_rule(rule, selected, context)),
        state.get("Default"),
    )
    if next_state is None:
        why = "no rule of Choices matches the input; add one that does, or a Default"
        raise StateError("States.NoChoiceMatched", why)
    return select_path(state, "OutputPath", selected, context), next_state


def run_wait(
    execution: Execution, state: dict[str, Any], data: Any, context: Any, frame: ExecutionFrame
) -> StateResult:
    """Run a Wait state: wait for a number of seconds or until a timestamp."""
    selected = select_path(state, "InputPath", data, context)
    if "Seconds" in state or "SecondsPath" in state:
        seconds: float = read_seconds(state, "Seconds", selected, context) or 0
    else:
        text = state.get("Timestamp")
        if text is None:
            text = follow_path(state["TimestampPath"], selected, context, "TimestampPath")
        time = parse_timestamp(text)
        if time is None:
            source = f"the value at TimestampPath {state.get('TimestampPath')}"
            raise StateError(RUNTIME, f"{source} is {text!r}, not a timestamp")
        seconds = max(0.0, (time - execution.now()).total_seconds())
    execution.wait(seconds, frame.scope)
    return select_path(state, "OutputPath", selected, context), _next_state(state)


def run_succeed(
    execution: Execution, state: dict[str, Any], data: Any, context: Any, frame: ExecutionFrame
) -> StateResult:
    """Run a Succeed state, which ends the machine or branch."""
    selected = select_path(state, "InputPath", data, context)
    return select_path(state, "OutputPath", selected, context), None


def run_fail(
    execution: Execution, state: dict[str, Any], data: Any, context: Any, frame: ExecutionFrame
) -> StateResult:
    """Run a Fail state: raise the error that it names."""
    raise StateError(
        _read_text(state, "Error", data, context), _read_text(state, "Cause", data, context)
    )


def _read_text(state: dict[str, Any], name: str, data: Any, context: Any) -> str:
    if f"{name}Path" not in state:
        return str(state.get(name, ""))
    text = state[f"{name}Path"]
    if text.startswith("$"):
        value = follow_path(text, data, context, f"{name}Path")
    else:
        value = evaluate_dynamic(text, data, context)
    if not isinstance(value, str):
        raise StateError(RUNTIME, f"the value of {name}Path {text} is {value!r}, not a text")
    return value


def run_parallel(
    execution: Execution, state: dict[str, Any], data: Any, context: Any, frame: ExecutionFrame
) -> StateResult:
    """Run the branches of a Parallel state with the same input; return their outputs."""
    payload = _select_payload(state, data, context)
    name = context["State"]["Name"]
    branches = [
        partial(_run_branch, execution, branch, payload, frame, (name, number))
        for number, branch in enumerate(state["Branches"])
    ]
    result = run_concurrently(frame.scope, branches, len(branches))
    return build_output(state, data, result, context), _next_state(state)


def _run_branch(
    execution: Execution,
    states: Any,
    payload: Any,
    frame: ExecutionFrame,
    path: tuple[str, int],
    scope: ExecutionScope,
    **context: Any,
) -> Any:
    return execution.run_states(execution, states, payload, frame.inner(scope, *path, **context))


def run_map(
    execution: Execution, state: dict[str, Any], data: Any, context: Any, frame: ExecutionFrame
) -> StateResult:
    """Run the states of a Map for each item; return their outputs in order."""
    source = select_path(state, "InputPath", data, context)
    payloads = _item_payloads(
        state, read_items(execution, state, source, context, frame), source, context
    )
    entries = [{"Index": number, "Value": value} for number, (value, _) in enumerate(payloads)]
    if "ItemBatcher" in state:
        batches = make_batches(
            state["ItemBatcher"], [payload for _, payload in payloads], source, context
        )
        entries = [{"Index": number, "Value": batch} for number, batch in enumerate(batches)]
        payloads = [(batch, batch) for batch in batches]
    name = context["State"]["Name"]
    states = state.get("ItemProcessor") or state["Iterator"]
    iterations: list[Callable[[ExecutionScope], Any]] = [
        partial(_run_item, execution, states, payload, frame, (name, number), entries[number])
        for number, (_, payload) in enumerate(payloads)
    ]
    if processor_mode(state) == "DISTRIBUTED":
        tolerance = _ToleratedFailures(state, len(iterations), source, context)
        iterations = [
            partial(tolerance.run_item, number, payload, iteration)
            for number, ((_, payload), iteration) in enumerate(
                zip(payloads, iterations, strict=True)
            )
        ]
    limit = read_whole_number(state, "MaxConcurrency", source, context) or execution.max_workers
    result = run_concurrently(frame.scope, iterations, min(limit, execution.max_workers))
    return build_output(state, data, result, context), _next_state(state)


def _run_item(
    execution: Execution,
    states: Any,
    payload: Any,
    frame: ExecutionFrame,
    path: tuple[str, int],
    entry: dict[str, Any],
    scope: ExecutionScope,
) -> Any:
    return _run_branch(execution, states, payload, frame, path, scope, Map={"Item": entry})


def _item_payloads(
    state: dict[str, Any], items: list[Any], source: Any, context: dict[str, Any]
) -> list[tuple[Any, Any]]:
    """Return each item and the input of the states that process it."""
    selector = state.get("ItemSelector", state.get("Parameters"))
    if selector is None:
        return [(item, item) for item in items]
    payloads = []
    for number, item in enumerate(items):
        item_context = {**context, "Map": {"Item": {"Index": number, "Value": item}}}
        payloads.append((item, fill_template(selector, source, item_context)))
    return payloads


class _ToleratedFailures:
    """Counts failed items; a tolerated failure becomes the output of its item, as a report."""

    def __init__(self, state: dict[str, Any], total: int, data: Any, context: Any) -> None:
        count = read_whole_number(state, "ToleratedFailureCount", data, context)
        percentage = read_percentage(state, "ToleratedFailurePercentage", data, context)
        limits = [] if count is None else [count]
        limits += [] if percentage is None else [int(total * percentage / 100)]
        self._limit = min(limits, default=0)
        self._failed = 0
        self._lock = threading.Lock()

    def run_item(
        self,
        number: int,
        payload: Any,
        iteration: Callable[[ExecutionScope], Any],
        scope: ExecutionScope,
    ) -> Any:
        """Run one item; return a report of its failure if the failure is tolerated."""
        try:
            return iteration(scope)
        except StateError as error:
            with self._lock:
                self._failed += 1
                if self._failed <= self._limit:
                    return {
                        "Status": "FAILED",
                        "Error": error.name,
                        "Cause": error.cause,
                        "Input": json.dumps(payload, separators=(",", ":"), ensure_ascii=False),
                    }
            cause = (
                f"{plural(self._failed, 'item')} failed, {self._limit} tolerated; "
                f"item {number} failed with {error.name}"
            )
            failure = StateError(
                _TOO_MANY_FAILURES, f"{cause}: {error.cause}" if error.cause else cause
            )
            failure.state = error.state
            raise failure from error


#: Function that runs a state, by its ``Type``.
STATE_TYPES: dict[
    str, Callable[[Execution, dict[str, Any], Any, Any, ExecutionFrame], StateResult]
] = {
    "Pass": run_pass,
    "Task": run_task,
    "Choice": run_choice,
    "Wait": run_wait,
    "Succeed": run_succeed,
    "Fail": run_fail,
    "Parallel": run_parallel,
    "Map": run_map,
}
