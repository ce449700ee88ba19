"""The cluster object of the engine ``ray:local``."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from hyperplane.clusters import records
from hyperplane.clusters.machine_capacity import read_capacity
from hyperplane.clusters.ray.cluster import OwnedRayCluster
from hyperplane.core.errors import Fault, check
from hyperplane.core.units import format_bytes, plural
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import RayLocalSettings

ENGINE = "ray:local"


class LocalRayCluster(OwnedRayCluster):
    """A head and worker nodes of Ray on this machine, which this process owns.

    Parameters
    ----------
    plan, record, folder
        As those of OwnedRayCluster.
    """

    engine: ClassVar[str] = ENGINE
    node_group: ClassVar[str] = "hyperplane.clusters.ray.node_group:RayNodeGroup"
    loopback: ClassVar[bool] = True
    starts_together: ClassVar[bool] = False  # they share the cores of this machine

    def __init__(self, plan: ClusterPlan, record: records.ClusterRecord, folder: Path) -> None:
        settings = plan.settings
        assert isinstance(settings, RayLocalSettings)  # noqa: S101 - of this engine
        super().__init__(plan, record, folder, False, {"dashboard": settings.dashboard})

    def check_room(self, count: int) -> None:
        """Raise a RequestError if this machine is too small for more worker nodes."""
        machine = read_capacity(self.plan.settings.reserve_fraction)  # type: ignore[attr-defined]
        cores = (len(self.workers) + count) * self.plan.worker.nthreads
        ram = count * self.plan.worker.ram_per_proc
        if cores > machine.cores or ram > machine.ram:
            size = f"{plural(cores, 'core')} in all and {format_bytes(ram)} more memory"
            allowed = (
                f"worker nodes for which this machine has room: it has "
                f"{plural(machine.cores, 'core')} and {format_bytes(max(0, machine.ram))} of memory"
            )
            check([Fault("extra_workers", f"{count} ({size})", allowed)])
