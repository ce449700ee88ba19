"""Execution of a state machine in this process."""

from __future__ import annotations

import contextvars
import datetime as dt
import os
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from hyperplane.asl.errors import (
    RUNTIME,
    BranchStopped,
    ExecutionStopped,
    MachineFailed,
    StateError,
)
from hyperplane.asl.events import Event
from hyperplane.asl.execution import Execution, ExecutionFrame
from hyperplane.asl.execution_scope import ExecutionScope
from hyperplane.asl.input_output import apply_result_path
from hyperplane.asl.problems import format_location
from hyperplane.asl.reading import Machine
from hyperplane.asl.retry_catch import RetryCounter, find_catcher
from hyperplane.asl.state_types import STATE_TYPES, StateResult
from hyperplane.asl.strict_json import JsonLocation, copy_json
from hyperplane.asl.task_registry import Task, TaskRegistry, find_run_faults, find_task_faults
from hyperplane.asl.timestamps import format_timestamp
from hyperplane.core.errors import Fault, check
from hyperplane.core.public_calls import check_call

CANCELLED = "Cancelled"
#: Seconds between checks of the caller's cancel event.
_POLL_SECONDS = 0.05


def _utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


@check_call
def run_machine(
    machine: Machine,
    input: Any,  # noqa: A002 - the name of the language
    tasks: Mapping[str, Task],
    *,
    sleep: Callable[[float], object] | None = None,
    now: Callable[[], dt.datetime] = _utc_now,
    max_workers: int | None = None,
    on_event: Callable[[Event], object] | None = None,
    cancel: threading.Event | None = None,
) -> Any:
    """Run a state machine to its end.

    Parameters
    ----------
    machine : Machine
        Result of :func:`hyperplane.asl.reading.read_machine`.
    input : JSON
        Input of the execution.
    tasks : mapping of str to callable or Command
        Tasks by ``Resource``, or by the name of the function or activity in its ARN: Python
        functions of the input, or :class:`hyperplane.asl.commands.Command`.
    sleep : callable, optional
        Function that waits a number of seconds, for Wait states and retries. The default wait ends
        when the execution is cancelled or the branch is stopped.
    now : callable, optional
        Function that returns the time as an aware ``datetime``.
    max_workers : int, optional
        Maximum number of concurrent tasks; by default the number of processors + 4, at most 32.
    on_event : callable, optional
        Function that receives each :class:`hyperplane.asl.events.Event`. Calls come from several
        threads, one at a time.
    cancel : threading.Event, optional
        Set the event to cancel the execution.

    Returns
    -------
    JSON
        The output of the last state.

    Raises
    ------
    RequestError
        If an argument is invalid, a resource has no task, or the machine has a field that is not
        supported; no task is called.
    MachineFailed
        If a state fails and no Catch handles the error, the machine exceeds its
        ``TimeoutSeconds``, or the execution is cancelled.

    Notes
    -----
    A Python function that exceeds its time limit, or whose branch is stopped, cannot be ended: it
    continues in its thread, and its result is dropped. The process group of a Command is ended.

    Examples
    --------
    >>> from hyperplane.asl.reading import read_machine
    >>> double = {"Type": "Task", "Resource": "double", "ResultPath": "$.twice", "End": True}
    >>> machine = read_machine({"StartAt": "Double", "States": {"Double": double}})
    >>> run_machine(machine, {"n": 21}, {"double": lambda data: 2 * data["n"]})
    {'n': 21, 'twice': 42}
    """
    workers = min(32, (os.cpu_count() or 1) + 4) if max_workers is None else max_workers
    check(_argument_faults(machine, input, tasks, workers))
    registry = TaskRegistry(tasks)
    data = copy_json(input)
    started = now()
    context = _context(machine, data, started)
    check(find_run_faults(machine.document, registry, context))
    execution = Execution(
        registry, now, sleep, on_event, workers, contextvars.copy_context(), run_states
    )
    seconds = machine.document.get("TimeoutSeconds")
    if seconds is not None:
        execution.deadline = started + dt.timedelta(seconds=seconds)
    root = ExecutionScope()
    frame = ExecutionFrame(root, (), context)
    with _watch_cancel(cancel, root):
        try:
            return run_states(execution, machine.document, data, frame)
        except StateError as error:
            raise MachineFailed(error.name, error.cause, error.state) from error.__cause__
        except ExecutionStopped as error:
            raise MachineFailed(error.name, error.cause, "") from None
        except BranchStopped:
            raise MachineFailed(CANCELLED, "the execution was cancelled", "") from None


def _argument_faults(
    machine: object, data: Any, tasks: object, max_workers: object
) -> Iterator[Fault]:
    if not isinstance(machine, Machine):
        yield Fault("machine", type(machine).__name__, "a Machine, from read_machine(...)")
    try:
        copy_json(data)
    except ValueError as error:
        yield Fault("input", type(data).__name__, "JSON", str(error))
    yield from find_task_faults(tasks)
    if type(max_workers) is not int or max_workers < 1:
        yield Fault("max_workers", repr(max_workers), "a whole number of at least 1")


def _context(machine: Machine, data: Any, started: dt.datetime) -> dict[str, Any]:
    name = str(uuid.uuid4())
    return {
        "Execution": {
            "Id": f"{machine.name}:{name}",
            "Input": data,
            "Name": name,
            "StartTime": format_timestamp(started),
        },
        "StateMachine": {"Id": machine.name, "Name": machine.name},
    }


@contextmanager
def _watch_cancel(cancel: threading.Event | None, scope: ExecutionScope) -> Iterator[None]:
    """Stop a scope when the caller sets the cancel event, and at the end of the block."""
    finished = threading.Event()

    def watch() -> None:
        while not finished.wait(_POLL_SECONDS):
            if cancel is not None and cancel.is_set():
                scope.stop()
                return

    watcher = threading.Thread(target=watch, name="cancel", daemon=True)
    if cancel is not None:
        watcher.start()
    try:
        yield
    finally:
        finished.set()
        scope.stop()
        if cancel is not None:
            watcher.join()


def run_states(
    execution: Execution, machine: dict[str, Any], data: Any, frame: ExecutionFrame
) -> Any:
    """Run states from ``StartAt`` to a terminal one; return the output of the last."""
    name: str | None = machine["StartAt"]
    while name is not None:
        execution.check(frame.scope)
        data, name = _run_state(execution, machine["States"][name], name, data, frame)
    return data


def _run_state(
    execution: Execution, state: dict[str, Any], name: str, data: Any, frame: ExecutionFrame
) -> StateResult:
    """Run one state with its retries; return its output and the next state."""
    path: JsonLocation = (*frame.path, name)
    retry_counter = RetryCounter(state.get("Retry", []))
    entered = format_timestamp(execution.now())
    execution.emit("entered", path)
    while True:
        state_context = {"EnteredTime": entered, "Name": name, "RetryCount": retry_counter.count}
        context = {**frame.context, "State": state_context}
        try:
            outcome = _run_state_type(execution, state, data, context, frame)
        except StateError as error:
            in_branch = bool(error.state) and state["Type"] == "Parallel"
            delay = retry_counter.next_delay(error, in_branch=in_branch)
            if delay is None:
                return _handle_failure(execution, state, path, data, error, in_branch)
            execution.emit("retried", path, error, retry_counter.count + 1, delay)
            execution.wait(delay, frame.scope)
            continue
        execution.emit("succeeded", path)
        return outcome


def _run_state_type(
    execution: Execution, state: dict[str, Any], data: Any, context: Any, frame: ExecutionFrame
) -> StateResult:
    try:
        return STATE_TYPES[state["Type"]](execution, state, data, context, frame)
    except RecursionError:
        raise StateError(RUNTIME, "the data is nested too deeply") from None


def _handle_failure(
    execution: Execution,
    state: dict[str, Any],
    path: JsonLocation,
    data: Any,
    error: StateError,
    in_branch: bool,
) -> StateResult:
    clause = find_catcher(state.get("Catch", []), error, in_branch=in_branch)
    if clause is not None:
        try:
            output = apply_result_path(clause, data, {"Error": error.name, "Cause": error.cause})
        except StateError as other:
            error = other
        else:
            execution.emit("caught", path, error)
            return output, str(clause["Next"])
    error.state = error.state or format_location(path)
    execution.emit("failed", path, error)
    raise error
