"""The master of a Spark cluster on this machine, and its workers on other machines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from hyperplane.clusters.local_nodes.worker_group import WorkerProcess
from hyperplane.clusters.remote_nodes.worker_group import RemoteWorkerGroup
from hyperplane.clusters.spark.node_group import SparkNodeGroup

#: Seconds in which the master registers a worker that has opened its port.
_REGISTER_SECONDS = 120.0
_POLL_SECONDS = 0.5


class RemoteSparkNodeGroup(RemoteWorkerGroup, SparkNodeGroup):
    """The master and the workers of a cluster; the workers are on other machines.

    Parameters
    ----------
    report : callable
        Reports an event by its keywords.
    """

    def __init__(self, report: Callable[..., None]) -> None:
        super().__init__(report)
        #: The query of the master whose answer all workers that start wait for.
        self._query: asyncio.Task[set[tuple[str, int]]] | None = None

    def _configure(self, request: dict[str, Any], host: str) -> dict[str, Any]:
        """Return the configuration of the program with a requested worker at an address."""
        assert self._master is not None  # noqa: S101 - for mypy
        return {
            **request,
            "host": host,
            "local_directory": self._settings["local_directory"],
            "master": self._master.address,
            "properties": self._settings["worker_properties"],
            "secret": self._settings["secret"],
            "variables": {},
        }

    async def _complete_start(self, worker: WorkerProcess, reply: dict[str, Any]) -> str:
        """Wait until the master has registered a worker, or return why it has not."""
        address, deadline = (worker.host, reply["port"]), time.monotonic() + _REGISTER_SECONDS
        while address not in await self._find_registered():
            if not worker.is_running():
                return "the worker of Spark has ended at its start"
            if time.monotonic() > deadline:
                return f"the master has not registered the worker in {_REGISTER_SECONDS:g} s"
        return ""

    async def _find_registered(self) -> set[tuple[str, int]]:
        """Return the addresses of the registered workers; calls at the same time are one query."""
        if self._query is None or self._query.done():
            self._query = asyncio.create_task(self._query_master())
        return await asyncio.shield(self._query)  # of which one call may be cancelled

    async def _query_master(self) -> set[tuple[str, int]]:
        assert self._master is not None  # noqa: S101 - for mypy
        await asyncio.sleep(_POLL_SECONDS)
        return await asyncio.to_thread(self._master.find_workers)
