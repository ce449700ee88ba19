"""Parallel and Map: states that hold other states and run them at once."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from hyperplane.asl.checking import mode_of
from hyperplane.asl.dataflow import chosen, finished, percentage, whole
from hyperplane.asl.errors import StateError
from hyperplane.asl.execution import Frame, Run
from hyperplane.asl.execution_scope import Scope, together
from hyperplane.asl.items import batches, items_of
from hyperplane.asl.state_handlers import Outcome, onward
from hyperplane.asl.templates import fill

EXCEEDED = "States.ExceedToleratedFailureThreshold"


def parallel(run: Run, state: dict[str, Any], data: Any, context: Any, frame: Frame) -> Outcome:
    """Parallel: every branch with the same input, at once; the list of their outputs."""
    payload = chosen(state, "InputPath", data, context)
    if "Parameters" in state:
        payload = fill(state["Parameters"], payload, context)
    name = context["State"]["Name"]
    jobs = [
        partial(_branch, run, branch, payload, frame, (name, number))
        for number, branch in enumerate(state["Branches"])
    ]
    result = together(frame.scope, jobs, len(jobs))
    return finished(state, data, result, context), onward(state)


def _branch(
    run: Run, states: Any, payload: Any, frame: Frame, path: tuple[str, int], scope: Scope,
    **context: Any,
) -> Any:  # fmt: skip
    return run.walk(run, states, payload, frame.inner(scope, *path, **context))


def each(run: Run, state: dict[str, Any], data: Any, context: Any, frame: Frame) -> Outcome:
    """Map: the same states for every item; the list of their outputs, in order."""
    source = chosen(state, "InputPath", data, context)
    payloads = _payloads(state, items_of(run, state, source, context, frame), source, context)
    entries = [{"Index": number, "Value": value} for number, (value, _) in enumerate(payloads)]
    if "ItemBatcher" in state:
        filled = batches(state["ItemBatcher"], [one for _, one in payloads], source, context)
        entries = [{"Index": number, "Value": one} for number, one in enumerate(filled)]
        payloads = [(one, one) for one in filled]
    name = context["State"]["Name"]
    states = state.get("ItemProcessor") or state["Iterator"]
    jobs: list[Callable[[Scope], Any]] = [
        partial(_item, run, states, payload, frame, (name, number), entries[number])
        for number, (_, payload) in enumerate(payloads)
    ]
    if mode_of(state) == "DISTRIBUTED":
        tolerance = _Tolerance(state, len(jobs), source, context)
        jobs = [
            partial(tolerance.job, number, payload, job)
            for number, ((_, payload), job) in enumerate(zip(payloads, jobs, strict=True))
        ]
    limit = whole(state, "MaxConcurrency", source, context) or run.max_workers
    result = together(frame.scope, jobs, min(limit, run.max_workers))
    return finished(state, data, result, context), onward(state)


def _item(
    run: Run, states: Any, payload: Any, frame: Frame, path: tuple[str, int],
    entry: dict[str, Any], scope: Scope,
) -> Any:  # fmt: skip
    return _branch(run, states, payload, frame, path, scope, Map={"Item": entry})


def _payloads(
    state: dict[str, Any], items: list[Any], source: Any, context: dict[str, Any]
) -> list[tuple[Any, Any]]:
    """Each item, and what the states for it get as their input."""
    selector = state.get("ItemSelector", state.get("Parameters"))
    if selector is None:
        return [(item, item) for item in items]
    found = []
    for number, item in enumerate(items):
        inside = {**context, "Map": {"Item": {"Index": number, "Value": item}}}
        found.append((item, fill(selector, source, inside)))
    return found


class _Tolerance:
    """Counts the items that failed, until they are too many; says in their place why they did."""

    def __init__(self, state: dict[str, Any], total: int, data: Any, context: Any) -> None:
        count = whole(state, "ToleratedFailureCount", data, context)
        share = percentage(state, "ToleratedFailurePercentage", data, context)
        limits = [] if count is None else [count]
        limits += [] if share is None else [int(total * share / 100)]
        self._limit = min(limits, default=0)
        self._failed = 0
        self._lock = threading.Lock()

    def job(self, number: int, payload: Any, job: Callable[[Scope], Any], scope: Scope) -> Any:
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
            cause = f"{self._failed} failed, and {self._limit} may; item {number} with {error.name}"
            tolerated = StateError(EXCEEDED, f"{cause}: {error.cause}" if error.cause else cause)
            tolerated.state = error.state
            raise tolerated from error
