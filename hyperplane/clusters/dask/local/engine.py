"""The local engine: Dask's LocalCluster, limited to the cores and memory of this machine."""

from __future__ import annotations

from typing import ClassVar, cast

from hyperplane.clusters.engine import Availability, Feature, StartedCluster
from hyperplane.clusters.machine_capacity import read_capacity
from hyperplane.core.errors import Fault
from hyperplane.core.units import gb_to_bytes, plural
from hyperplane.guard.preflight.ports import check_dashboard_port
from hyperplane.guard.preflight.request import PreflightRequest
from hyperplane.guard.preflight.run_checks import Check
from hyperplane.guard.preflight.spill_disk import check_local_spill_folder
from hyperplane.spec.capacity import MachineCapacity
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.request import ClusterRequest
from hyperplane.spec.settings import EngineSettings, LocalSettings


class LocalEngine:
    """Starts worker processes on this machine, owned by this process."""

    name: ClassVar[str] = "local"
    unsupported: ClassVar[frozenset[Feature]] = frozenset({Feature.GPUS})
    supported: ClassVar[frozenset[Feature]] = frozenset({Feature.ADAPTIVE, Feature.BUDGET})
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

    def preflight_checks(self, plan: ClusterPlan, request: PreflightRequest) -> list[Check]:
        """Return the checks of the spill folder and of the dashboard's port, which are quick."""
        del request
        reserve = gb_to_bytes(cast(LocalSettings, plan.settings).reserve_disk_gb)
        return [
            Check("spill folder", lambda _: [check_local_spill_folder(reserve)]),
            Check("dashboard port", lambda _: check_dashboard_port(plan.dashboard_port)),
        ]

    def start(self, plan: ClusterPlan) -> StartedCluster:
        """Start scheduler and workers; return when all workers have connected."""
        # Imported here: distributed takes a third of a second, and a plan does not need it.
        from hyperplane.clusters.dask.local import forkserver

        # First, because the forkserver imports what workers need while this process imports.
        forked = forkserver.acquire_for(cast(LocalSettings, plan.settings))
        try:
            from hyperplane.clusters.dask.local.start import start
        except BaseException:
            if forked:
                forkserver.release()
            raise
        return start(plan, forked)

    def connect(self, name: str, settings: EngineSettings) -> StartedCluster:
        """Attach to a cluster that another process of this user runs on this machine."""
        from hyperplane.clusters.dask.attach import attach

        return attach(name, self.name, settings)
