"""The workers of one cluster: which are started again, and when a cluster ends.

A framework adds its head, the start of one worker, and the idle time.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

#: Maximum starts of a worker, and maximum failed ones in succession; after that it is not replaced.
#: The pause before the next one doubles with each.
_MAX_STARTS, _MAX_FAILURES, _RETRY_SECONDS = 10, 3, 1.0
#: Seconds after which the starts of a worker that has run are counted from one again.
_STABLE_SECONDS = 600.0


class WorkerProcess(Protocol):
    """A worker that is registered."""

    #: Address of its machine.
    host: str
    #: Process ID on its machine.
    pid: int

    def is_running(self) -> bool:
        """Return whether it runs."""
        ...

    def end(self) -> None:
        """End its processes."""


class WorkerGroup(ABC):
    """The head and the workers of a cluster, for ``node_program.py``.

    Its events are ``head``, ``worker``, ``lost``, ``abandoned``, ``not_added``, ``withdrawn``,
    ``warning``, ``idle`` and ``failed``.

    Parameters
    ----------
    report : callable
        Reports an event by its keywords.
    """

    #: What a worker and the head are called in messages.
    noun: ClassVar[str] = "worker"
    head: ClassVar[str]

    def __init__(self, report: Callable[..., None]) -> None:
        self._report = report
        self._settings: dict[str, Any] = {}
        self._workers: dict[str, WorkerProcess] = {}
        #: Workers whose start has not ended when :meth:`handle` returns.
        self._starting: dict[str, Any] = {}
        self._requests: dict[str, dict[str, Any]] = {}
        self._starts: dict[str, int] = {}
        self._failures: dict[str, int] = {}
        self._registered_at: dict[str, float] = {}
        #: Workers to replace, and when.
        self._due: dict[str, float] = {}
        self._abandoned = ""
        self._ready_at: float | None = None

    def handle(self, request: dict[str, Any]) -> None:
        """Start the head or a worker, withdraw workers, or start the clock of the idle timeout."""
        if "folder" in request:
            self._start_head(request)
        elif "worker" in request:
            self._requests[request["worker"]] = request
            self._add_worker(request)
        elif "withdraw" in request:
            self._withdraw(request["withdraw"])
        else:
            self._set_ready(request["ready"])

    def _set_ready(self, ready: bool) -> None:
        """Start the clock of the idle timeout."""
        if ready:
            self._ready_at = time.monotonic()

    @abstractmethod
    def _start_head(self, request: dict[str, Any]) -> None:
        """Start the head."""

    @abstractmethod
    def _start_worker(self, request: dict[str, Any]) -> None:
        """Start a worker, and register it now or let :meth:`check` do it."""

    @abstractmethod
    def _is_head_started(self) -> bool:
        """Return whether the head accepts workers."""

    @abstractmethod
    def _is_head_running(self) -> bool:
        """Return whether the processes of the head run."""

    @abstractmethod
    def _is_idle(self) -> bool:
        """Return whether the idle timeout has passed, which is reported."""

    def _add_worker(self, request: dict[str, Any]) -> None:
        """Start a worker, for the first time or again."""
        name = request["worker"]
        self._starts[name] = self._starts.get(name, 0) + 1
        try:
            self._start_worker(request)
        except Exception as error:  # noqa: BLE001 - of any library; the reason is reported
            self._handle_failure(name, error)

    def _withdraw(self, names: list[str]) -> None:
        """Forget requested workers that have not started; those that have remain."""
        for name in names:
            if name not in self._requests or name in self._workers:
                continue
            if name in self._starting:
                if not self._starting[name].cancel():
                    continue  # it has just started, or failed
                del self._starting[name]
            for known in (self._requests, self._starts, self._failures, self._due):
                known.pop(name, None)
            self._report(event="withdrawn", name=name)

    def _register(self, name: str, worker: WorkerProcess) -> None:
        """Keep and report a worker that has started."""
        self._workers[name], self._failures[name] = worker, 0
        self._registered_at[name] = time.monotonic()
        self._report(event="worker", name=name, pid=worker.pid, host=worker.host)

    def _handle_failure(self, name: str, error: Exception) -> None:
        """Report that a worker has failed to start; try again if it has run before."""
        if self._starts[name] == 1:
            if self._ready_at is None:
                raise error  # the start of the cluster has failed
            # A running cluster continues without it.
            self._report(event="not_added", name=name, message=describe_error(error))
            return
        self._failures[name] = failures = self._failures.get(name, 0) + 1
        if failures >= _MAX_FAILURES or self._starts[name] >= _MAX_STARTS:
            self._abandon(name, f"it failed to start {failures} times: {describe_error(error)}")
            return
        self._due[name] = time.monotonic() + self._retry_pause() * 2 ** (failures - 1)
        reason = describe_error(error)
        message = f"{self.noun} {name} failed to start and will be started again: {reason}"
        self._report(event="warning", message=message)

    def check(self) -> bool:
        """Replace ended workers; return False if the head has ended or the timeout passed."""
        if not self._is_head_started():
            return True
        if not self._is_head_running():
            self._report(event="failed", message=f"{self.head} has ended")
            return False
        for name, worker in list(self._workers.items()):
            if worker.is_running():
                continue
            worker.end()
            del self._workers[name]
            self._report(event="lost", name=name)
            if time.monotonic() - self._registered_at[name] > _STABLE_SECONDS:
                self._starts[name] = 1
            if self._starts[name] < _MAX_STARTS:
                self._due[name] = time.monotonic()
            else:
                self._abandon(name, f"it has ended {_MAX_STARTS} times")
        for name, due in list(self._due.items()):
            if due <= time.monotonic():
                del self._due[name]
                self._add_worker(self._requests[name])
        if self._requests and not (self._workers or self._due or self._starting):
            self._report(event="failed", message=f"no {self.noun} is left: {self._abandoned}")
            return False
        return not self._is_idle()

    def _abandon(self, name: str, reason: str) -> None:
        self._abandoned = f"{self.noun} {name} is not replaced, because {reason}"
        self._report(event="abandoned", name=name, message=self._abandoned)

    def _retry_pause(self) -> float:
        """Return the seconds after the first of several failed starts."""
        return _RETRY_SECONDS

    def _is_starting(self) -> bool:
        """Return whether a worker is about to start."""
        return bool(self._starting)

    def end(self) -> None:
        """End all processes of the cluster."""
        self._end_processes()

    @abstractmethod
    def _end_processes(self) -> None:
        """End all processes of this machine."""


def describe_error(error: Exception) -> str:
    """Return the type and the text of an error."""
    return f"{type(error).__name__}: {error}"
