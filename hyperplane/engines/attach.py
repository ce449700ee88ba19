"""Attaching to a local cluster that another process of this user runs."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

from distributed import Client
from distributed.core import rpc
from distributed.deploy.cluster import Cluster

from hyperplane.engines import records
from hyperplane.engines.base import Started
from hyperplane.errors import EngineError

#: How long closing waits for the owner to have cleaned up.
PATIENCE = 30.0


class AttachedCluster(Cluster):
    """Dask's Cluster for a scheduler that lives in another process.

    It shows the cluster and its logs and can close it; scaling belongs to the owner.

    Parameters
    ----------
    record : Record
        The running cluster.
    """

    def __init__(self, record: records.Record, **kwargs: Any) -> None:
        super().__init__(name=record.name, **kwargs)
        self._record = record
        if not self.called_from_running_loop:
            self._loop_runner.start()
            self.sync(self._start)

    async def _start(self) -> None:
        self.scheduler_comm = rpc(self._record.scheduler)
        await super()._start()

    async def _close(self) -> None:
        if self.scheduler_comm is not None and self.status.name == "running":
            with suppress(OSError):
                await self.scheduler_comm.terminate()
            deadline = time.monotonic() + PATIENCE
            while _listed(self._record.name) and time.monotonic() < deadline:
                await asyncio.sleep(0.05)
        await super()._close()


def _listed(name: str) -> bool:
    return any(record.name == name for record in records.read_all())


def attach(name: str) -> Started:
    """A client and a cluster object for the running cluster of that name.

    Raises
    ------
    EngineError
        When no such cluster runs, with the names of those that do.
    """
    running = records.read_all()
    found = next((record for record in running if record.name == name), None)
    if found is None:
        names = ", ".join(record.name for record in running) or "none"
        raise EngineError("local", f"no cluster {name!r} runs on this machine; running: {names}")
    cluster = AttachedCluster(found)
    return Started(Client(cluster), cluster)
