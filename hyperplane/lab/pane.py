"""List the running clusters of this user in the pane of dask-labextension.

The pane lists the clusters of a manager in the Jupyter server. It is used through its public
methods only: a running cluster is added by its own ``start_cluster``, in whose factory
:mod:`hyperplane.lab.factory` returns an object for the running cluster instead of a new one.
"""

from __future__ import annotations

import asyncio
import logging
import math
import uuid
from collections.abc import Coroutine
from typing import Any

from hyperplane.cluster_stop import read_records
from hyperplane.clusters.dask.attach import AttachedCluster, attach_asynchronously
from hyperplane.clusters.records import ClusterRecord
from hyperplane.lab import factory

#: Seconds between two readings of the records of clusters; the pane itself asks every five.
INTERVAL_SECONDS = 2.0


class ClusterPane:
    """Keeps the clusters of a manager equal to the running clusters of this user.

    Parameters
    ----------
    manager : dask_labextension.manager.DaskClusterManager
        The manager of the pane.
    log : logging.Logger or LoggerAdapter
        The log of the Jupyter server.
    """

    def __init__(self, manager: Any, log: Any) -> None:
        self._manager = manager
        self._log = log
        #: Addresses of the schedulers of all clusters that have run: others are not removed.
        self._known: set[str] = set()
        self._adding: set[str] = set()
        #: What the last update has found: listed clusters that had ended, and running ones that
        #: were not listed.
        self._ended: set[str] = set()
        self._unlisted: set[str] = set()
        #: Lines of the log: a cluster that does not answer is asked again, without a new line.
        self._logged: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Update the list until the event loop ends."""
        while True:
            await self._log_failure(self.update(), "the clusters of this user are not listed")
            await asyncio.sleep(INTERVAL_SECONDS)

    async def update(self) -> None:
        """Begin to add the clusters that have started and to remove those that have ended."""
        before = self._list()
        records = await asyncio.to_thread(read_records)
        listed = self._list()
        running = {each.scheduler: each for each in records if each.engine in factory.ENGINES}
        self._known |= running.keys() | factory.owners.keys()
        self._remove({key: listed[key] for key in listed.keys() & self._known - running.keys()})
        # One that was stopped while the records were read is in the list from before.
        present = before.keys() | listed.keys() | self._adding
        self._add_all(
            {
                address: record
                for address, record in running.items()
                if address not in present and record.name not in factory.starting
            }
        )
        factory.forget_closed()

    def _list(self) -> dict[str, str]:
        """Return the IDs of the clusters of the manager by the addresses of their schedulers."""
        return {each["scheduler_address"]: each["id"] for each in self._manager.list_clusters()}

    def _remove(self, ended: dict[str, str]) -> None:
        """Begin to remove clusters, if they had ended at the last update: the pane may do it."""
        for address in ended.keys() & self._ended:
            closing = self._manager.close_cluster(ended[address])
            self._begin(closing, "a cluster that has ended is still listed")
        self._ended = set(ended) - self._ended

    def _add_all(self, unlisted: dict[str, ClusterRecord]) -> None:
        """Begin to add clusters; those that the pane has started may be added by it first."""
        for address, record in unlisted.items():
            if address not in factory.owners or address in self._unlisted:
                self._adding.add(address)
                self._begin(self._add(record), f"cluster {record.name} is not listed")
        self._unlisted = set(unlisted)

    def _begin(self, work: Coroutine[Any, Any, Any], failure: str) -> None:
        """Run work beside others: a cluster that does not answer does not delay them."""
        task = asyncio.create_task(self._log_failure(work, failure))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _log_failure(self, work: Coroutine[Any, Any, Any], failure: str) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - the list is updated again
            line = f"{failure}: {error}"
            self._log.log(logging.DEBUG if line in self._logged else logging.WARNING, "%s", line)
            self._logged.add(line)

    async def _add(self, record: ClusterRecord) -> None:
        """Add a running cluster to the manager."""
        cluster = None
        try:
            cluster = await attach_asynchronously(record)
            factory.LISTED.set(cluster)  # in this task only
            await self._manager.start_cluster(
                make_cluster_id(record), await _describe(cluster, record)
            )
        except BaseException:
            if cluster is not None:
                await cluster.close_handle()
            raise
        finally:
            self._adding.discard(record.scheduler)


async def _describe(cluster: AttachedCluster, record: ClusterRecord) -> dict[str, Any]:
    """Return the configuration with which the manager adds a cluster, and leaves it as it is.

    It has each key, because the manager takes others from the setting ``labextension.default``.
    """
    limits = await cluster.read_limits()
    # The pane shows the limits. Its JSON has no infinite numbers.
    is_shown = limits is not None and limits.maximum != math.inf
    return {
        "name": record.name,
        "workers": None,
        "adapt": limits._asdict() if limits is not None and is_shown else None,
    }


def make_cluster_id(record: ClusterRecord) -> str:
    """Return the ID of a running cluster in the pane.

    It is the same after a restart of the Jupyter server, so that the layout of JupyterLab finds the
    dashboards again.
    """
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{record.scheduler}/{record.name}"))
