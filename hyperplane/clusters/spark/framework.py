"""The framework Spark: sections of plans and printed lines that its engines share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from hyperplane.clusters.framework import ClusterAddresses, OptionsDraft
from hyperplane.core.errors import Fault, check
from hyperplane.core.units import format_bytes
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.request import ClusterRequest
from hyperplane.spec.spark_options import (
    MIN_EXECUTOR,
    MIN_HEAP,
    MIN_OVERHEAD,
    SparkOptions,
    subtract_overhead,
)
from hyperplane.spec.worker import WorkerSpec

if TYPE_CHECKING:
    from hyperplane.clusters.engine import StartedCluster

_ALLOWED = (
    f"at least {format_bytes(MIN_EXECUTOR)} for each executor: {format_bytes(MIN_HEAP)} for its "
    f"heap and {format_bytes(MIN_OVERHEAD)} beside it"
)


class SparkFramework:
    """Spark's clusters: a ``SparkClient`` and the cluster object of the engine."""

    name: ClassVar[str] = "spark"

    def draft_options(self, request: ClusterRequest) -> OptionsDraft:
        """Return the section for Spark: how the memory of an executor is divided."""
        asked = request.worker.ram_per_proc
        if "ram_gb_per_proc" in request.model_fields_set:
            check(_find_memory_faults(asked, format_bytes(asked)))

        def for_layout(worker: WorkerSpec, nodes: int) -> SparkOptions:
            del nodes
            available = worker.ram_per_proc
            value = f"{format_bytes(asked)}, for which {format_bytes(available)} are available"
            check(_find_memory_faults(available, value))
            heap = subtract_overhead(available)
            return SparkOptions(heap, available - heap)

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
        """Return the addresses of the master and of its web page."""
        return ClusterAddresses(started.cluster.address, started.cluster.dashboard)

    def starting_lines(self, plan: ClusterPlan) -> list[str]:
        """Return nothing: the engines have a start line."""
        del plan
        return []

    def ready_lines(self, plan: ClusterPlan, dashboard: str) -> list[str]:
        """Return the line about the dashboard."""
        del plan
        return [describe_dashboard(dashboard)] if dashboard else []


def describe_dashboard(dashboard: str) -> str:
    """Return the line about the dashboard."""
    return f"spark dashboard available at {dashboard}"


def _find_memory_faults(memory: int, value: str) -> list[Fault]:
    return [] if memory >= MIN_EXECUTOR else [Fault("ram_gb_per_proc", value, _ALLOWED)]
