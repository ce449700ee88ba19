"""Requests of other processes to the object that owns a cluster: close, scale, adapt.

Clients only know the scheduler. If it runs in the process of the owner, handlers of the scheduler
pass these requests on.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

from distributed import Scheduler
from distributed.core import Status
from distributed.diagnostics.plugin import SchedulerPlugin

from hyperplane.core.dask_internals.clients import find_adaptive_class, get_adaptive

#: Handlers of a scheduler: close the whole cluster, scale it, adapt it, read how it adapts.
CLOSE_OWNER = "hyperplane_close_owner"
SCALE_OWNER = "hyperplane_scale_owner"
ADAPT_OWNER = "hyperplane_adapt_owner"
READ_LIMITS = "hyperplane_adaptive_limits"
#: Why a cluster ends.
CLOSED_BY_PROGRAM = "closed by another program"


class OwnerPlugin(SchedulerPlugin):
    """Scheduler plugin that passes requests to the cluster object which owns the scheduler.

    A client in another process can close the whole cluster through it, workers first. The cluster
    object also closes when the scheduler ends by itself; otherwise its status would stay running
    and its nannies would be left behind.

    Parameters
    ----------
    cluster : GuardedCluster
        The owner, in this process.
    """

    name = "hyperplane-owner"

    def __init__(self, cluster: Any) -> None:
        self.cluster: weakref.ref[Any] = weakref.ref(cluster)

    async def start(self, scheduler: Scheduler) -> None:
        """Register the handlers that clients call."""
        scheduler.handlers[CLOSE_OWNER] = self.close_cluster
        scheduler.handlers[SCALE_OWNER] = self.scale_cluster
        scheduler.handlers[ADAPT_OWNER] = self.adapt_cluster
        scheduler.handlers[READ_LIMITS] = self.read_limits

    def close_cluster(self, reason: str = CLOSED_BY_PROGRAM) -> None:
        """Close the cluster object in a new thread, because its event loop runs this method."""
        cluster = self._running_cluster()
        if cluster is not None:
            cluster.end_reason = cluster.end_reason or reason
            # Not a daemon thread, so that the program waits for it at exit.
            threading.Thread(
                target=cluster.close_all, name="hyperplane-close", daemon=False
            ).start()

    def scale_cluster(self, n: int) -> bool:
        """Scale a running cluster to a number of worker processes; it stops adapting.

        The answer is True, because Dask answers None for a handler that a scheduler does not have.
        """
        cluster = self._running_cluster()
        if cluster is not None:
            adaptive = get_adaptive(cluster)
            if adaptive is not None:
                adaptive.stop()  # it would undo the change
            cluster.scale(n)
        return True

    def adapt_cluster(self, minimum: int, maximum: float) -> bool:
        """Let a running cluster adapt to the work between two numbers of worker processes."""
        cluster = self._running_cluster()
        if cluster is not None and self.read_limits() != [minimum, maximum]:
            adaptive_class = find_adaptive_class(cluster)
            cluster.adapt(Adaptive=adaptive_class, minimum=minimum, maximum=maximum)
        return True

    def read_limits(self) -> list[float] | None:
        """Return between which numbers of worker processes it adapts; None if it does not."""
        cluster = self._running_cluster()
        adaptive = None if cluster is None else get_adaptive(cluster)
        return None if adaptive is None else [adaptive.minimum, adaptive.maximum]

    def _running_cluster(self) -> Any:
        cluster = self.cluster()
        return cluster if cluster is not None and cluster.status == Status.running else None

    async def close(self) -> None:
        """Close the cluster object when the scheduler ends."""
        cluster = self._running_cluster()
        if cluster is not None:
            # A request to a scheduler that has ended would wait 30 s for an answer.
            cluster.shutdown_scheduler = False
            self.close_cluster("its scheduler has ended")
