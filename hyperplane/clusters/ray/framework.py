"""The framework Ray: sections of plans and printed lines that its engines share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from hyperplane.clusters.framework import ClusterAddresses, OptionsDraft
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.ray_options import MIN_OBJECT_STORE, RayOptions
from hyperplane.spec.request import ClusterRequest
from hyperplane.spec.worker import WorkerSpec

if TYPE_CHECKING:
    from hyperplane.clusters.engine import StartedCluster

#: Fraction of a worker node's memory for its object store, as Ray divides the memory of a machine.
OBJECT_STORE_FRACTION = 0.3


class RayFramework:
    """Ray's clusters: a ``RayClient`` and the cluster object of the engine."""

    name: ClassVar[str] = "ray"

    def draft_options(self, request: ClusterRequest) -> OptionsDraft:
        """Return the section for Ray: how the memory of a worker node is divided."""
        del request

        def for_layout(worker: WorkerSpec, nodes: int) -> RayOptions:
            del nodes
            store = max(MIN_OBJECT_STORE, int(worker.ram_per_proc * OBJECT_STORE_FRACTION))
            return RayOptions(store, max(1, worker.ram_per_proc - store))

        return OptionsDraft(for_layout)

    def check_process(self) -> None:
        """Accept every process."""

    def prepare(self, started: StartedCluster[Any, Any], attached: bool) -> None:
        """Leave the objects as the engine returned them."""

    def status(self, cluster: Any) -> str:
        """Return the status of a cluster object."""
        status: str = cluster.status
        return status

    def addresses(self, started: StartedCluster[Any, Any]) -> ClusterAddresses:
        """Return the addresses of the head node and of the dashboard."""
        return ClusterAddresses(started.cluster.address, started.cluster.dashboard)

    def starting_lines(self, plan: ClusterPlan) -> list[str]:
        """Return nothing: the engines have a start line."""
        del plan
        return []

    def ready_lines(self, plan: ClusterPlan, dashboard: str) -> list[str]:
        """Return the documented line about the dashboard."""
        del plan
        return [describe_dashboard(dashboard)] if dashboard else []


def describe_dashboard(dashboard: str) -> str:
    """Return the documented line about the dashboard."""
    return f"ray dashboard available at {dashboard}"
