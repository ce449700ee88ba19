"""The engine ``ray:ssh``: a Ray cluster on a list of hosts, with its head on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, cast

from hyperplane.clusters import records
from hyperplane.clusters.engine import Availability
from hyperplane.clusters.host_faults import find_host_faults
from hyperplane.clusters.ray.engine import INSTALL_RAY, RemoteRayEngine
from hyperplane.clusters.ray.ssh.cluster import ENGINE, SshRayCluster
from hyperplane.core.errors import Fault
from hyperplane.core.optional import is_installed
from hyperplane.core.units import plural
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.request import ClusterRequest
from hyperplane.spec.settings import EngineSettings, HostSettings, RaySshSettings


class SshRayEngine(RemoteRayEngine):
    """Starts a head of Ray on this machine and worker nodes on hosts, owned by this process."""

    name: ClassVar[str] = ENGINE
    settings: ClassVar[type[EngineSettings]] = RaySshSettings

    def available(self) -> Availability:
        """Return whether Ray, asyncssh and cryptography are installed; hosts are not contacted."""
        if not is_installed("ray"):
            return Availability(False, INSTALL_RAY)
        missing = [name for name in ("asyncssh", "cryptography") if not is_installed(name)]
        if missing:
            needs = " and ".join(missing)
            return Availability(False, f"it needs {needs}: pip install 'hyperplane[ssh]'")
        return Availability(True, "Ray and asyncssh are installed; hosts are not contacted")

    def faults(self, request: ClusterRequest, settings: EngineSettings) -> list[Fault]:
        """Return faults if no hosts are set, or fewer than nodes, and for GPUs."""
        hosts = find_host_faults(request, cast(HostSettings, settings))
        return [*hosts, *super().faults(request, settings)]

    def start_line(self, plan: ClusterPlan) -> str:
        """Return a line with the number of worker nodes and their hosts."""
        workers = plural(plan.dask_workers, "worker node")
        hosts = ", ".join(dict.fromkeys(cast(HostSettings, plan.settings).hosts[: plan.nodes]))
        return f"starting the head node of Ray on this machine and {workers} on {hosts}"

    def build_cluster(
        self, plan: ClusterPlan, record: records.ClusterRecord, folder: Path
    ) -> SshRayCluster:
        """Return the object of a new cluster whose folder is valid."""
        return SshRayCluster(plan, record, folder)
