"""State shared by all states of an execution: tasks, clock, events and deadline."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from dataclasses import dataclass, field, replace
from typing import Any

from hyperplane.asl.batch_jobs import BatchJobs, run_batch_job
from hyperplane.asl.commands import Command, run_command, run_function
from hyperplane.asl.errors import TIMEOUT, ExecutionStopped, StateError
from hyperplane.asl.events import Event, EventKind
from hyperplane.asl.execution_scope import ExecutionScope
from hyperplane.asl.strict_json import JsonLocation, copy_json
from hyperplane.asl.task_registry import Task, TaskRegistry

#: Seconds between checks for a stop while all task slots are in use.
_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class ExecutionFrame:
    """Position in an execution: scope, path and context object of a branch.

    ``path`` has the names of states and numbers of branches from the top. ``context`` is the
    context object without ``State``.
    """

    scope: ExecutionScope
    path: JsonLocation
    context: dict[str, Any]

    def inner(self, scope: ExecutionScope, *path: str | int, **context: Any) -> ExecutionFrame:
        """Return the frame of a nested branch."""
        return replace(
            self, scope=scope, path=(*self.path, *path), context={**self.context, **context}
        )


StateRunner = Callable[["Execution", dict[str, Any], Any, ExecutionFrame], Any]


@dataclass
class Execution:
    """One execution of a machine.

    ``now`` returns the time as an aware datetime. ``sleep`` waits a number of seconds; if it is
    None, waits end early when the branch is stopped. ``on_event`` receives one event at a time.
    ``max_workers`` limits the tasks that run concurrently. ``variables`` are the context variables
    of the caller, for Python tasks. ``run_states`` runs the states of a machine, a branch or a
    processor.
    """

    tasks: TaskRegistry
    now: Callable[[], dt.datetime]
    sleep: Callable[[float], object] | None
    on_event: Callable[[Event], object] | None
    max_workers: int
    variables: Context
    run_states: StateRunner
    deadline: dt.datetime | None = None
    _event_lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._slots = threading.Semaphore(self.max_workers)

    def emit(
        self,
        kind: EventKind,
        path: JsonLocation,
        error: StateError | None = None,
        attempt: int = 1,
        wait: float = 0.0,
    ) -> None:
        """Pass an event to the caller."""
        if self.on_event is None:
            return
        name, cause = (error.name, error.cause) if error else ("", "")
        with self._event_lock:
            at = self.now().astimezone(dt.UTC)
            self.on_event(Event(kind, path, at, name, cause, attempt, wait))

    def check(self, scope: ExecutionScope) -> None:
        """Raise if the scope is stopped or the deadline has passed."""
        scope.check()
        if self.deadline is not None and self.now() >= self.deadline:
            why = "the machine exceeded its TimeoutSeconds; increase it, or omit it for no limit"
            raise ExecutionStopped(TIMEOUT, why)

    def seconds_left(self) -> float | None:
        """Seconds until the deadline, at least 0; None without a deadline."""
        if self.deadline is None:
            return None
        return max(0.0, (self.deadline - self.now()).total_seconds())

    def wait(self, seconds: float, scope: ExecutionScope) -> None:
        """Wait, at most until the deadline."""
        self.check(scope)
        left = self.seconds_left()
        seconds = seconds if left is None else min(seconds, left)
        if self.sleep is None:
            scope.wait(seconds)
        elif seconds > 0:
            self.sleep(seconds)
        self.check(scope)

    def call_task(
        self,
        task: Task,
        payload: Any,
        limit: float | None,
        scope: ExecutionScope,
        path: JsonLocation,
    ) -> Any:
        """Run the task of the state at ``path`` until it ends, its time limit or the deadline."""
        with self._slot(scope):
            left = self.seconds_left()
            shortest = min(
                (seconds for seconds in (limit, left) if seconds is not None), default=None
            )
            try:
                if isinstance(task, Command):
                    return run_command(task, payload, shortest, scope)
                if isinstance(task, BatchJobs):
                    return run_batch_job(task, payload, shortest, scope, path)
                # Copied because a function may change its input, which branches share.
                copy = copy_json(payload)
                return run_function(task, copy, shortest, scope, self.variables.copy())
            except StateError as error:
                if error.name == TIMEOUT and error.__cause__ is None:
                    self.check(scope)
                raise

    @contextmanager
    def _slot(self, scope: ExecutionScope) -> Iterator[None]:
        while not self._slots.acquire(timeout=_POLL_SECONDS):
            self.check(scope)
        try:
            self.check(scope)
            yield
        finally:
            self._slots.release()
