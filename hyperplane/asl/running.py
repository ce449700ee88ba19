"""Run a machine on this machine."""

from __future__ import annotations

import contextvars
import datetime as dt
import os
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from hyperplane.asl import fan_out, state_handlers
from hyperplane.asl.dataflow import placed
from hyperplane.asl.errors import MachineFailed, RunOver, StateError, Stopped
from hyperplane.asl.events import Event
from hyperplane.asl.execution import Frame, Run
from hyperplane.asl.execution_scope import Scope
from hyperplane.asl.json_parser import Place
from hyperplane.asl.json_values import plain
from hyperplane.asl.problems import where
from hyperplane.asl.reading import Machine
from hyperplane.asl.retry_catch import RUNTIME, Retries, catcher
from hyperplane.asl.task_registry import Task, Tasks, run_faults, task_faults
from hyperplane.asl.timestamps import format_timestamp
from hyperplane.errors import Fault, check
from hyperplane.public_calls import check_call

CANCELLED = "Cancelled"
#: Seconds between two looks at whether the caller has cancelled.
_LOOK = 0.05

Handler = Callable[[Run, dict[str, Any], Any, Any, Frame], state_handlers.Outcome]

_HANDLERS: dict[str, Handler] = {
    "Pass": state_handlers.pass_on,
    "Task": state_handlers.task,
    "Choice": state_handlers.choice,
    "Wait": state_handlers.wait,
    "Succeed": state_handlers.succeed,
    "Fail": state_handlers.fail,
    "Parallel": fan_out.parallel,
    "Map": fan_out.each,
}


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
    """Run a machine to its end.

    Parameters
    ----------
    machine : Machine
        What :func:`hyperplane.asl.reading.read_machine` returns.
    input : JSON
        The input of the execution.
    tasks : mapping of str to callable or Command
        What the machine calls: under a ``Resource``, or the name of the function or activity in
        its ARN, a Python function of the input, or a
        :class:`hyperplane.asl.commands.Command`.
    sleep : callable, optional
        Waits some seconds, for Wait states and between attempts. By default a wait that ends as
        soon as the run is cancelled or the branch is stopped.
    now : callable, optional
        The time, as an aware ``datetime``.
    max_workers : int, optional
        How many tasks work at once; by default 4 more than there are processors, at most 32.
    on_event : callable, optional
        Gets each :class:`hyperplane.asl.events.Event`, one at a time, from several threads.
    cancel : threading.Event, optional
        Set it to end the run.

    Returns
    -------
    JSON
        The output of the last state.

    Raises
    ------
    RequestError
        Before anything runs: arguments that cannot be, resources without a task, and fields
        that this runner does not carry out.
    MachineFailed
        A state failed and nothing caught it, the machine took longer than its
        ``TimeoutSeconds``, or the run was cancelled.

    Notes
    -----
    A function that takes too long, or whose branch is stopped, cannot be ended: it goes on in
    its thread and its result is dropped. The process group of a Command is ended.

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
    known = Tasks(tasks)
    check(run_faults(machine.document, known))
    data = plain(input)
    run = Run(known, now, sleep, on_event, workers, contextvars.copy_context(), walk)
    started = now()
    seconds = machine.document.get("TimeoutSeconds")
    if seconds is not None:
        run.deadline = started + dt.timedelta(seconds=seconds)
    root = Scope()
    frame = Frame(root, (), _context(machine, data, started))
    with _watching(cancel, root):
        try:
            return walk(run, machine.document, data, frame)
        except StateError as error:
            raise MachineFailed(error.name, error.cause, error.state) from error.__cause__
        except RunOver as error:
            raise MachineFailed(error.name, error.cause, "") from None
        except Stopped:
            raise MachineFailed(CANCELLED, "the run was cancelled", "") from None


def _argument_faults(
    machine: object, data: Any, tasks: object, max_workers: object
) -> Iterator[Fault]:
    if not isinstance(machine, Machine):
        yield Fault("machine", type(machine).__name__, "what read_machine returns")
    try:
        plain(data)
    except ValueError as error:
        yield Fault("input", type(data).__name__, "JSON", str(error))
    yield from task_faults(tasks)
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
def _watching(cancel: threading.Event | None, scope: Scope) -> Iterator[None]:
    """Stop everything as soon as the caller says so, and whatever ends the run."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_LOOK):
            if cancel is not None and cancel.is_set():
                scope.stop()
                return

    watcher = threading.Thread(target=watch, name="cancel", daemon=True)
    if cancel is not None:
        watcher.start()
    try:
        yield
    finally:
        over.set()
        scope.stop()
        if cancel is not None:
            watcher.join()


def walk(run: Run, machine: dict[str, Any], data: Any, frame: Frame) -> Any:
    """Go from state to state; the output of the last one."""
    name: str | None = machine["StartAt"]
    while name is not None:
        run.check(frame.scope)
        data, name = _visit(run, machine["States"][name], name, data, frame)
    return data


def _visit(
    run: Run, state: dict[str, Any], name: str, data: Any, frame: Frame
) -> state_handlers.Outcome:
    """One state, with all its attempts."""
    path: Place = (*frame.path, name)
    retries = Retries(state.get("Retry", []))
    entered = format_timestamp(run.now())
    run.tell("entered", path)
    while True:
        about = {"EnteredTime": entered, "Name": name, "RetryCount": retries.count}
        context = {**frame.context, "State": about}
        try:
            outcome = _worked(run, state, data, context, frame)
        except StateError as error:
            branches = bool(error.state) and state["Type"] == "Parallel"
            delay = retries.delay(error, branches=branches)
            if delay is None:
                return _caught(run, state, path, data, error, branches)
            run.tell("retried", path, error, retries.count + 1, delay)
            run.pause(delay, frame.scope)
            continue
        run.tell("succeeded", path)
        return outcome


def _worked(
    run: Run, state: dict[str, Any], data: Any, context: Any, frame: Frame
) -> state_handlers.Outcome:
    try:
        return _HANDLERS[state["Type"]](run, state, data, context, frame)
    except RecursionError:
        raise StateError(RUNTIME, "the data nests too deep") from None


def _caught(
    run: Run, state: dict[str, Any], path: Place, data: Any, error: StateError, branches: bool
) -> state_handlers.Outcome:
    clause = catcher(state.get("Catch", []), error, branches=branches)
    if clause is not None:
        try:
            output = placed(clause, data, {"Error": error.name, "Cause": error.cause})
        except StateError as other:
            error = other
        else:
            run.tell("caught", path, error)
            return output, str(clause["Next"])
    error.state = error.state or where(path)
    run.tell("failed", path, error)
    raise error
