"""Handlers of all types of states except Parallel and Map."""

from __future__ import annotations

from typing import Any

from hyperplane.asl.choice_rules import matches_rule
from hyperplane.asl.errors import StateError
from hyperplane.asl.execution import Execution, ExecutionFrame
from hyperplane.asl.input_output import build_output, follow_path, read_whole_number, select_path
from hyperplane.asl.json_values import copy_json
from hyperplane.asl.payload_templates import evaluate_dynamic, fill_template
from hyperplane.asl.retry_catch import RUNTIME
from hyperplane.asl.timestamps import parse_timestamp

#: The output of a state and the name of the next state; None after a terminal state.
StateResult = tuple[Any, str | None]


def _select_payload(state: dict[str, Any], data: Any, context: Any) -> Any:
    """Apply ``InputPath`` and ``Parameters`` to the input of a state."""
    selected = select_path(state, "InputPath", data, context)
    return (
        fill_template(state["Parameters"], selected, context) if "Parameters" in state else selected
    )


def next_state(state: dict[str, Any]) -> str | None:
    """Name of the next state; None after a terminal state."""
    following: str | None = state.get("Next")
    return following


def run_pass(
    execution: Execution, state: dict[str, Any], data: Any, context: Any, frame: ExecutionFrame
) -> StateResult:
    """Run a Pass state: its result is ``Result`` or its input."""
    result = _select_payload(state, data, context)
    if "Result" in state:
        result = copy_json(state["Result"])  # a task may change the output, but not the machine
    return build_output(state, data, result, context), next_state(state)


def run_task(
    execution: Execution, state: dict[str, Any], data: Any, context: Any, frame: ExecutionFrame
) -> StateResult:
    """Run a Task state: its result is that of the task of its resource."""
    selected = select_path(state, "InputPath", data, context)
    payload = (
        fill_template(state["Parameters"], selected, context) if "Parameters" in state else selected
    )
    limit = read_whole_number(state, "TimeoutSeconds", selected, context, least=1)
    resource = state["Resource"]
    if execution.tasks.is_lambda_invoke(resource):
        result = _invoke_function(execution, payload, limit, frame)
    else:
        found = execution.tasks.find(resource)
        if found is None:
            raise StateError(RUNTIME, f"there is no task for {resource}")
        result = execution.call_task(found, payload, limit, frame.scope)
    return build_output(state, data, result, context), next_state(state)


def _invoke_function(
    execution: Execution, parameters: Any, limit: float | None, frame: ExecutionFrame
) -> Any:
    """Call a function like ``lambda:invoke``, which wraps the result of the function."""
    name = parameters.get("FunctionName")
    found = execution.tasks.find_function(name)
    if found is None:
        raise StateError(RUNTIME, f"there is no task for the function {name}")
    result = execution.call_task(found, parameters.get("Payload", {}), limit, frame.scope)
    return {"ExecutedVersion": "$LATEST", "Payload": result, "StatusCode": 200}


def run_choice(
    execution: Execution, state: dict[str, Any], data: Any, context: Any, frame: ExecutionFrame
) -> StateResult:
    """Run a Choice state: the next state is that of the first rule that matches."""
    selected = select_path(state, "InputPath", data, context)
    following = next(
        (rule["Next"] for rule in state["Choices"] if matches_rule(rule, selected, context)),
        state.get("Default"),
    )
    if following is None:
        raise StateError("States.NoChoiceMatched", "no rule matches, and there is no Default")
    return select_path(state, "OutputPath", selected, context), following


def run_wait(
    execution: Execution, state: dict[str, Any], data: Any, context: Any, frame: ExecutionFrame
) -> StateResult:
    """Run a Wait state: wait for a number of seconds or until a timestamp."""
    selected = select_path(state, "InputPath", data, context)
    if "Seconds" in state or "SecondsPath" in state:
        seconds: float = read_whole_number(state, "Seconds", selected, context) or 0
    else:
        text = state.get("Timestamp")
        if text is None:
            text = follow_path(state["TimestampPath"], selected, context, "TimestampPath")
        time = parse_timestamp(text)
        if time is None:
            raise StateError(RUNTIME, f"TimestampPath is {text!r}, not a timestamp")
        seconds = max(0.0, (time - execution.now()).total_seconds())
    execution.wait(seconds, frame.scope)
    return select_path(state, "OutputPath", selected, context), next_state(state)


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
        raise StateError(RUNTIME, f"{name}Path is {value!r}, not a text")
    return value
