"""The head of a cluster on this machine, and its workers on other machines."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hyperplane.clusters.local_nodes.worker_group import WorkerGroup, WorkerProcess
from hyperplane.core.event_loop_thread import EventLoopThread


class RemoteWorkerGroup(WorkerGroup):
    """The workers of a cluster, which are on other machines.

    Their starts run together, in an event loop of another thread; :meth:`check` reports how each
    has ended.

    Parameters
    ----------
    report : callable
        Reports an event by its keywords.
    """

    def __init__(self, report: Callable[..., None]) -> None:
        super().__init__(report)
        self._loop = EventLoopThread()

    @abstractmethod
    def _configure(self, request: dict[str, Any], host: str) -> dict[str, Any]:
        """Return the configuration of the program with a requested worker at an address."""

    async def _complete_start(self, worker: WorkerProcess, reply: dict[str, Any]) -> str:
        """Wait until the head has registered a worker whose program has replied, or return why not.

        A program of Ray replies when its node is registered.
        """
        del worker, reply
        return ""

    def _start_worker(self, request: dict[str, Any]) -> None:
        self._starting[request["worker"]] = self._loop.start(self._start_remote_worker(request))

    @abstractmethod
    async def _start_remote_worker(self, request: dict[str, Any]) -> WorkerProcess:
        """Start a worker on another machine, and return it when it is registered."""

    def check(self) -> bool:
        """Report the workers whose start has ended; then as for workers of this machine."""
        for name, future in list(self._starting.items()):
            if not future.done():
                continue
            del self._starting[name]
            try:
                self._register(name, future.result())
            except Exception as error:  # noqa: BLE001 - of any library; the reason is reported
                self._handle_failure(name, error)
        return super().check()

    def end(self) -> None:
        """End all workers, and all processes of this machine."""
        for future in self._starting.values():
            future.cancel()
        with suppress(Exception):
            self._loop.run(self._end_workers())
        super().end()

    @abstractmethod
    async def _end_workers(self) -> None:
        """End the workers on other machines."""
