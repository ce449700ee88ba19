"""Start the clusters of the pane, in the process of the Jupyter server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import hyperplane
from hyperplane.cluster_stop import read_records
from hyperplane.clusters.dask.attach import AttachedCluster, attach_asynchronously
from hyperplane.clusters.engine import StartedCluster
from hyperplane.clusters.records import ClusterRecord
from hyperplane.core.errors import EngineError, Fault, RequestError
from hyperplane.lab.other_clusters import OtherCluster
from hyperplane.spec.plan import ClusterPlan

#: Engines of the clusters that the pane starts: their schedulers answer requests of other
#: processes. The others have classes of other packages, whose methods block the event loop.
ENGINES = ("local", "cuda", "ssh", "slurm")
#: What the factory returns instead of a new cluster, in the task that lists a running one.
LISTED: ContextVar[AttachedCluster | OtherCluster | None] = ContextVar("LISTED", default=None)
#: Names of clusters that are being started here.
starting: set[str] = set()
#: Running clusters that were started here, by the addresses of their schedulers.
owners: dict[str, Any] = {}


class HyperplaneCluster(AttachedCluster):
    """A cluster of the pane, which shows the name of this class and a number."""


async def create_cluster(
    args: Sequence[Any], arguments: dict[str, Any]
) -> AttachedCluster | OtherCluster:
    """Return a new cluster of this process, or the running one that is being listed."""
    listed = LISTED.get()
    if listed is not None:
        return listed
    asynchronous = arguments.pop("asynchronous")
    if asynchronous is not True:
        fault = Fault("asynchronous", repr(asynchronous)[:80], "True, as dask-labextension sets it")
        raise RequestError([fault])
    # In threads: the Jupyter server answers requests meanwhile.
    plan = await asyncio.to_thread(_plan, args, arguments)
    starting.add(plan.name)
    try:
        owner = await asyncio.to_thread(_start, plan)
        try:
            cluster = await attach_asynchronously(_find_record(plan), HyperplaneCluster)
        except BaseException:
            await asyncio.to_thread(owner.close)
            raise
        forget_closed()
        owners[cluster.scheduler_address] = owner
        return cluster
    finally:
        starting.discard(plan.name)


def forget_closed() -> None:
    """Forget the clusters of this process that have closed."""
    for address, owner in list(owners.items()):
        if owner.status.name == "closed":
            del owners[address]


def _plan(args: Sequence[Any], arguments: Mapping[str, Any]) -> ClusterPlan:
    plan = hyperplane.plan_cluster(*args, **arguments)
    if plan.engine not in ENGINES:
        fault = Fault(
            "engine",
            repr(plan.engine),
            f"one of {', '.join(ENGINES)} in the pane of JupyterLab",
            "start other clusters in a notebook, with initialize_cluster",
        )
        error = RequestError([fault])
        error.state("nothing was started")
        raise error
    return plan


def _start(plan: ClusterPlan) -> Any:
    started: StartedCluster[Any, Any] = hyperplane.start(plan)
    with suppress(OSError):
        started.client.close()  # notebooks connect their own clients
    return started.cluster


def _find_record(plan: ClusterPlan) -> ClusterRecord:
    for record in read_records():
        if record.name == plan.name:
            return record
    raise EngineError(plan.engine, f"cluster {plan.name!r} has ended before it was listed")
