"""List the running clusters of this user in the pane of dask-labextension.

The pane lists the clusters of a manager in the Jupyter server. It is used through its public
methods only: a running cluster is added by its own ``start_cluster``, in whose factory
:mod:`hyperplane.lab.factory` returns an object for the running cluster instead of a new one. The
clusters are those of ``hyperplane cluster list``: of the records of this machine, which are read
every two seconds, and of the platforms of all configured engines.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
import uuid
from collections.abc import Coroutine
from typing import Any

from hyperplane.cluster_stop import read_records
from hyperplane.clusters.dask.attach import AttachedCluster, attach_asynchronously
from hyperplane.clusters.listed_cluster import ListedCluster
from hyperplane.clusters.records import ClusterRecord
from hyperplane.lab import factory
from hyperplane.lab.other_clusters import OtherCluster, list_elsewhere, make_key

#: Seconds between two readings of the records of clusters; the pane itself asks every five.
INTERVAL_SECONDS = 2.0
#: Seconds between two requests to the platforms for clusters without a record on this machine.
LISTING_SECONDS = 30.0

RunningCluster = ClusterRecord | ListedCluster


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
        #: Objects of the clusters that Dask's class cannot attach to, by the keys of the list.
        self._others: dict[str, OtherCluster] = {}
        #: What the platforms have listed, and when they were asked.
        self._elsewhere: dict[str, ListedCluster] = {}
        self._asked_at = -math.inf

    async def run(self) -> None:
        """Update the list until the event loop ends."""
        while True:
            await self._log_failure(self.update(), "the clusters of this user are not listed")
            await asyncio.sleep(INTERVAL_SECONDS)

    async def update(self) -> None:
        """Begin to add the clusters that have started and to remove those that have ended."""
        before = self._list()
        self._begin_listing()
        records = await asyncio.to_thread(read_records)
        listed = self._list()
        running = self._merge(records)
        self._refresh_others(running, listed)
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

    def _merge(self, records: list[ClusterRecord]) -> dict[str, RunningCluster]:
        """Return the clusters of this machine, and those elsewhere, by their keys."""
        running: dict[str, RunningCluster] = {make_key(each): each for each in records}
        # One that was listed while it started has a record now, of another key.
        known = {(each.engine, name) for each in records for name in each.names}
        for key, cluster in self._elsewhere.items():
            if (cluster.engine, cluster.name) not in known:
                running.setdefault(key, cluster)
        return running

    def _begin_listing(self) -> None:
        """Begin to ask the platforms, if they were not asked for some time."""
        if time.monotonic() - self._asked_at >= LISTING_SECONDS:
            self._asked_at = math.inf  # not again before this has ended
            self._begin(self._ask_platforms(), "clusters elsewhere are not listed")

    async def _ask_platforms(self) -> None:
        try:
            self._elsewhere, warnings = await asyncio.to_thread(list_elsewhere)
            for warning in warnings:
                self._log_once(f"clusters are missing: {warning}")
            for other in self._others.values():
                if other.can_attach:
                    self._begin(other.attach(), f"cluster {other.name} is listed without workers")
        finally:
            self._asked_at = time.monotonic()

    def _refresh_others(self, running: dict[str, RunningCluster], listed: dict[str, str]) -> None:
        """Read the workers of the other clusters; leave out those that have ended."""
        for key, other in list(self._others.items()):
            if other.is_closed:
                self._elsewhere.pop(key, None)
                running.pop(key, None)
            if key in running:
                other.refresh(running[key])
            elif key not in listed and key not in self._adding:
                del self._others[key]

    def _list(self) -> dict[str, str]:
        """Return the IDs of the clusters of the manager by the addresses of their schedulers."""
        return {each["scheduler_address"]: each["id"] for each in self._manager.list_clusters()}

    def _remove(self, ended: dict[str, str]) -> None:
        """Begin to remove clusters, if they had ended at the last update: the pane may do it."""
        for address in ended.keys() & self._ended:
            if address in self._others:
                self._others[address].has_ended = True
            closing = self._manager.close_cluster(ended[address])
            self._begin(closing, "a cluster that has ended is still listed")
        self._ended = set(ended) - self._ended

    def _add_all(self, unlisted: dict[str, RunningCluster]) -> None:
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
            self._log_once(f"{failure}: {error}")

    def _log_once(self, line: str) -> None:
        self._log.log(logging.DEBUG if line in self._logged else logging.WARNING, "%s", line)
        self._logged.add(line)

    async def _attach(self, record: RunningCluster) -> AttachedCluster | OtherCluster:
        """Return an object of a running cluster, of Dask's class if that is possible."""
        if isinstance(record, ClusterRecord) and record.engine in factory.ENGINES:
            return await attach_asynchronously(record)
        other = OtherCluster(record)
        failure = f"cluster {other.name} is listed without workers"
        await self._log_failure(other.attach(), failure)
        other.refresh(record)
        return other

    async def _add(self, record: RunningCluster) -> None:
        """Add a running cluster to the manager."""
        cluster = None
        try:
            cluster = await self._attach(record)
            factory.LISTED.set(cluster)  # in this task only
            await self._manager.start_cluster(
                make_cluster_id(record), await _describe(cluster, record)
            )
            if isinstance(cluster, OtherCluster):
                self._others[make_key(record)] = cluster
        except BaseException:
            if cluster is not None:
                await cluster.close_handle()
            raise
        finally:
            self._adding.discard(make_key(record))


async def _describe(
    cluster: AttachedCluster | OtherCluster, record: RunningCluster
) -> dict[str, Any]:
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


def make_cluster_id(record: RunningCluster) -> str:
    """Return the ID of a running cluster in the pane.

    It is the same after a restart of the Jupyter server, so that the layout of JupyterLab finds the
    dashboards again.
    """
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{make_key(record)}/{record.name}"))
