"""Clusters of other classes than Dask's, as dask-labextension uses a cluster.

Their objects block the event loop, or set variables of this process, which kernels would inherit.
They are therefore used in threads, and those of Ray and Spark in other processes.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import sys
from collections.abc import Awaitable
from typing import Any, NamedTuple

from distributed.core import Status

import hyperplane
from hyperplane import cluster_stop
from hyperplane.clusters import cluster_listing, records
from hyperplane.clusters.dask.attach import AdaptiveLimits
from hyperplane.clusters.listed_cluster import ListedCluster
from hyperplane.clusters.records import ClusterRecord
from hyperplane.core.argument_checks import find_count_faults
from hyperplane.core.errors import EngineError, check
from hyperplane.core.units import gb_to_bytes
from hyperplane.spec.engine_names import DASK, framework_of

#: Engines of Dask whose clusters a program attaches to through their platform.
_ATTACHED = ("gateway", "kubernetes")
#: Status of an object whose cluster has ended; that of a gateway is a text.
_CLOSED = (Status.closed, Status.closed.name)
#: What platforms call clusters that end, and jobs of Slurm.
_ENDING = {"closing", "stopping", "stopped", "failed", "completing", "completed", "cancelled"}
#: Seconds within which a cluster of another process has to end.
_STOP_SECONDS = 180.0

logger = logging.getLogger(__name__)


class Listing(NamedTuple):
    """Clusters of platforms by their keys, and a line for each platform that did not answer."""

    clusters: dict[str, ListedCluster]
    warnings: tuple[str, ...]


def list_elsewhere() -> Listing:
    """Return the clusters that platforms list and this machine has no record of.

    It asks all configured engines, for some seconds at most. Clusters that end are left out.
    """
    # A cluster of Slurm has jobs before its start has ended.
    listing = cluster_listing.list_clusters(records.read_all(starting=True))
    running = {make_key(each): each for each in listing.clusters if not _is_ending(each.status)}
    return Listing(running, listing.warnings)


def _is_ending(status: str) -> bool:
    """Return whether a cluster of a platform ends; Slurm counts the jobs of each state."""
    words = {word.strip(",").lower() for word in status.split() if not word.isdigit()}
    return bool(words) and words <= _ENDING


def make_key(cluster: ClusterRecord | ListedCluster) -> str:
    """Return what the pane shows as the address of the scheduler; it is that of one cluster."""
    if isinstance(cluster, ClusterRecord):
        return cluster.scheduler
    return f"{cluster.engine}:{cluster.name}"


class OtherCluster:
    """A running cluster in the pane.

    Parameters
    ----------
    cluster : ClusterRecord or ListedCluster
        The cluster.

    Attributes
    ----------
    scheduler_info : dict
        Has ``workers``, as that of Dask's clusters; those of Ray and Spark are the planned ones.
    has_ended : bool
        Whether the cluster has ended, so that closing this object stops nothing.
    """

    def __init__(self, cluster: ClusterRecord | ListedCluster) -> None:
        self._cluster = cluster
        self._handle: Any = None
        self._is_attaching = False
        self._requests: set[asyncio.Future[None]] = set()
        self.name, self.scheduler_address = cluster.name, make_key(cluster)
        self.scheduler_info: dict[str, Any] = {"workers": {}}
        self.has_ended = False

    async def attach(self) -> None:
        """Attach to the cluster, if its engine permits it from this process."""
        if self.can_attach:
            self._is_attaching = True
            try:
                self._handle = await asyncio.to_thread(_attach, self._cluster)
            finally:
                self._is_attaching = False
            if self.has_ended:  # meanwhile
                await self.close_handle()
        self.refresh(self._cluster)

    def refresh(self, cluster: ClusterRecord | ListedCluster) -> None:
        """Read the workers: from the cluster, or from its record, which may have changed."""
        self._cluster = cluster
        if self._handle is not None:
            workers = dict(self._handle.scheduler_info.get("workers", {}))
        elif isinstance(cluster, ClusterRecord):
            workers = _describe_workers(cluster)
        else:
            workers = {}
        self.scheduler_info = {"workers": workers}

    @property
    def can_attach(self) -> bool:
        """Whether this object could read the workers of the cluster, and does not yet."""
        is_busy = self._is_attaching or self._handle is not None or self.has_ended
        return self._cluster.engine in _ATTACHED and not is_busy

    @property
    def is_closed(self) -> bool:
        """Whether the platform has ended the cluster, as far as this object knows."""
        return self.has_ended or getattr(self._handle, "status", None) in _CLOSED

    @property
    def dashboard_link(self) -> str:
        """Link to the dashboard; empty if it is not known."""
        if self._handle is not None:
            return str(self._handle.dashboard_link or "")
        return self._cluster.dashboard if isinstance(self._cluster, ClusterRecord) else ""

    async def scale(self, n: int) -> None:
        """Scale the cluster to `n` worker processes; raise an EngineError if that is impossible."""
        check(find_count_faults("n", n, least=0))
        await self._call("scale", n)

    def adapt(self, minimum: int | None = 0, maximum: float | None = None) -> AdaptiveLimits:
        """Let the cluster adapt to the work; raise an EngineError if that is impossible."""
        self._check_scalable()
        least = 0 if minimum is None else minimum
        most = None if maximum is None or maximum == math.inf else int(maximum)
        task = asyncio.ensure_future(
            self._log_failure(self._call("adapt", minimum=least, maximum=most))
        )
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)
        return AdaptiveLimits(least, math.inf if most is None else most)

    async def read_limits(self) -> AdaptiveLimits | None:
        """Return None: platforms do not report the limits of an adaptive cluster."""
        return None

    async def _call(self, method: str, *args: Any, **kwargs: Any) -> None:
        self._check_scalable()
        await asyncio.to_thread(getattr(self._handle, method), *args, **kwargs)
        self.refresh(self._cluster)

    async def _log_failure(self, request: Awaitable[None]) -> None:
        try:
            await request
        except Exception as error:  # noqa: BLE001 - of a platform
            logger.warning("cluster %s does not adapt: %s", self.name, error)

    def _check_scalable(self) -> None:
        if self._handle is None:
            raise EngineError(self._cluster.engine, _explain_size(self._cluster))

    async def close(self) -> None:
        """Stop the cluster; only close this object if it has ended."""
        if self.has_ended:
            await self.close_handle()
        elif self._handle is not None:
            await asyncio.to_thread(self._handle.close)
            self._handle = None
        else:
            await _stop(self._cluster)
        self.has_ended = True

    async def close_handle(self) -> None:
        """Close this object but not the cluster."""
        handle, self._handle = self._handle, None
        if handle is not None:
            await asyncio.to_thread(_detach, handle)


def _attach(cluster: ClusterRecord | ListedCluster) -> Any:
    started = hyperplane.get_cluster(cluster.name, cluster.engine)
    # Its heartbeats would renew the lease of the cluster.
    started.client.close()
    return started.cluster


def _detach(handle: Any) -> None:
    if hasattr(handle, "detach"):
        handle.detach()
    else:
        handle.close(shutdown=False)  # of a gateway


def _describe_workers(record: ClusterRecord) -> dict[str, dict[str, int]]:
    """Return the workers of a record, which has the sums of their threads and memory."""
    if not record.workers:
        return {}
    memory = gb_to_bytes(record.ram_gb) // record.workers
    threads, more = divmod(record.threads, record.workers)
    return {
        str(number): {"nthreads": threads + (number < more), "memory_limit": memory}
        for number in range(record.workers)
    }


def _explain_size(cluster: ClusterRecord | ListedCluster) -> str:
    """Return why the pane cannot scale a cluster, and what can be done."""
    framework = framework_of(cluster.engine)
    restart = "stop it and start one of the wanted size"
    if isinstance(cluster, ListedCluster) and cluster.engine not in _ATTACHED:
        reason = "this machine has not started it, and only the program that did can scale it"
    elif framework == DASK:
        reason = "it does not answer; the log of the Jupyter server has the reason"
    elif framework == "ray":
        reason = "only the program that started it can add worker nodes"
        restart = f"call get_ray_cluster(extra_workers=...) there, or {restart}"
    else:
        reason = f"a cluster of {framework.title()} keeps its size"
    return f"cluster {cluster.name!r} cannot be scaled here: {reason}; {restart}"


async def _stop(cluster: ClusterRecord | ListedCluster) -> None:
    """Stop a cluster without an object of it in this process."""
    if isinstance(cluster, ListedCluster):
        if reason := await asyncio.to_thread(cluster_stop.stop_cluster, cluster):
            raise EngineError(cluster.engine, f"{cluster.name} may still be running: {reason}")
        return
    words = ["-m", "hyperplane", "cluster", "stop", cluster.name]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE, env=dict(os.environ),
    )  # fmt: skip
    try:
        _, message = await asyncio.wait_for(process.communicate(), _STOP_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()
        reason = f"it did not end within {_STOP_SECONDS:g} s"
        raise EngineError(cluster.engine, f"{cluster.name} is still running: {reason}") from None
    if process.returncode:
        raise EngineError(cluster.engine, message.decode(errors="replace").strip()[-500:])
