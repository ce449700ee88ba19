"""Handlers of Parallel and Map states, which run nested states concurrently."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from hyperplane.asl.checking import mode_of
from hyperplane.asl.errors import StateError
from hyperplane.asl.execution import Execution, ExecutionFrame
from hyperplane.asl.execution_scope import ExecutionScope, run_concurrently
from hyperplane.asl.input_output import (
    build_output,
    read_percentage,
    read_whole_number,
    select_path,
)
from hyperplane.asl.items import make_batches, read_items
from hyperplane.asl.payload_templates import fill_template
from hyperplane.asl.state_types import StateResult, next_state
from hyperplane.core.units import plural

EXCEEDED = "States.ExceedToleratedFailureThreshold"


def run_parallel(
    execution: Execution, state: dict[str, Any], data: Any, context: Any, frame: ExecutionFrame
) -> StateResult:
    """Run the branches of a Parallel state with the same input; return their outputs."""
    payload = select_path(state, "InputPath", data, context)
    if "Parameters" in state:
        payload = fill_template(state["Parameters"], payload, context)
    name = context["State"]["Name"]
    jobs = [
        partial(_run_branch, execution, branch, payload, frame, (name, number))
        for number, branch in enumerate(state["Branches"])
    ]
    result = run_concurrently(frame.scope, jobs, len(jobs))
    return build_output(state, data, result, context), next_state(state)


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
        filled = make_batches(state["ItemBatcher"], [one for _, one in payloads], source, context)
        entries = [{"Index": number, "Value": one} for number, one in enumerate(filled)]
        payloads = [(one, one) for one in filled]
    name = context["State"]["Name"]
    states = state.get("ItemProcessor") or state["Iterator"]
    jobs: list[Callable[[ExecutionScope], Any]] = [
        partial(_run_item, execution, states, payload, frame, (name, number), entries[number])
        for number, (_, payload) in enumerate(payloads)
    ]
    if mode_of(state) == "DISTRIBUTED":
        tolerance = _ToleratedFailures(state, len(jobs), source, context)
        jobs = [
            partial(tolerance.run_item, number, payload, job)
            for number, ((_, payload), job) in enumerate(zip(payloads, jobs, strict=True))
        ]
    limit = read_whole_number(state, "MaxConcurrency", source, context) or execution.max_workers
    result = run_concurrently(frame.scope, jobs, min(limit, execution.max_workers))
    return build_output(state, data, result, context), next_state(state)


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
    found = []
    for number, item in enumerate(items):
        inside = {**context, "Map": {"Item": {"Index": number, "Value": item}}}
        found.append((item, fill_template(selector, source, inside)))
    return found


class _ToleratedFailures:
    """Counts failed items and replaces their output by a report, up to the tolerated number."""

    def __init__(self, state: dict[str, Any], total: int, data: Any, context: Any) -> None:
        count = read_whole_number(state, "ToleratedFailureCount", data, context)
        share = read_percentage(state, "ToleratedFailurePercentage", data, context)
        limits = [] if count is None else [count]
        limits += [] if share is None else [int(total * share / 100)]
        self._limit = min(limits, default=0)
        self._failed = 0
        self._lock = threading.Lock()

    def run_item(
        self, number: int, payload: Any, job: Callable[[ExecutionScope], Any], scope: ExecutionScope
    ) -> Any:
        try:
            return job(scope)
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
            tolerated = StateError(EXCEEDED, f"{cause}: {error.cause}" if error.cause else cause)
            tolerated.state = error.state
            raise tolerated from error
