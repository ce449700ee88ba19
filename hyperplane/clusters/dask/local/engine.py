"""The local engine: Dask's LocalCluster, limited to the cores and memory of this machine."""

from __future__ import annotations

from typing import ClassVar, cast

from hyperplane.clusters.engine import Availability, Feature, StartedCluster
from hyperplane.clusters.machine_capacity import read_capacity
from hyperplane.core.errors import Fault
from hyperplane.core.units import plural
from hyperplane.spec.capacity import MachineCapacity
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.request import ClusterRequest
from hyperplane.spec.settings import EngineSettings, LocalSettings


class LocalEngine:
    """Starts worker processes on this machine, owned by this process."""

    name: ClassVar[str] = "local"
    unsupported: ClassVar[frozenset[Feature]] = frozenset({Feature.GPUS})
    ignored: ClassVar[frozenset[str]] = frozenset(
        {"worker_spec_yaml", "node_selector", "scheduler_ram", "scheduler_cpu"}
    )
    settings: ClassVar[type[EngineSettings]] = LocalSettings
    uses_pools: ClassVar[bool] = False

    def available(self) -> Availability:
        """Return that it is always usable."""
        return Availability(True, "needs nothing but this machine")

    def capacity(self, settings: EngineSettings) -> MachineCapacity:
        """Return the usable cores, and the memory that one more cluster may reserve."""
        return read_capacity(cast(LocalSettings, settings).reserve_fraction)

    def faults(self, request: ClusterRequest, settings: EngineSettings) -> list[Fault]:
        """Return no faults: the planner reduces a larger request, or notes that it is too large."""
        del request, settings
        return []

    def start_line(self, plan: ClusterPlan) -> str:
        """Return a line with the number of worker processes on this machine."""
        workers = plural(plan.dask_workers, "worker process")
        return f"starting the scheduler in this process and {workers} on this machine"

    def start(self, plan: ClusterPlan) -> StartedCluster:
        """Start scheduler and workers; return when all workers have connected."""
        # Imported here: distributed takes a third of a second, and a plan does not need it.
        from hyperplane.clusters.dask.local.start import start

        return start(plan)

    def connect(self, name: str, settings: EngineSettings) -> StartedCluster:
        """Attach to a cluster that another process of this user runs on this machine."""
        del settings
        from hyperplane.clusters.dask.attach import attach

        return attach(name, self.name)
