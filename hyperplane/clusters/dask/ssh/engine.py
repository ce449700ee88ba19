"""The ssh engine: worker processes on a list of hosts, reached through ssh."""

from __future__ import annotations

from typing import ClassVar, cast

import yaml

from hyperplane.clusters.dask.gpu_layout import one_process_per_gpu
from hyperplane.clusters.engine import Availability, Feature, StartedCluster
from hyperplane.clusters.host_faults import find_host_faults
from hyperplane.core.errors import Fault
from hyperplane.core.optional import is_installed
from hyperplane.core.units import plural
from hyperplane.guard.preflight.request import PreflightRequest
from hyperplane.guard.preflight.run_checks import Check
from hyperplane.spec.capacity import MachineCapacity
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.request import ClusterRequest
from hyperplane.spec.settings import EngineSettings, HostSettings, SshSettings
from hyperplane.spec.worker import WorkerSpec


class SshEngine:
    """Starts worker processes on hosts that this user can log in to."""

    name: ClassVar[str] = "ssh"
    unsupported: ClassVar[frozenset[Feature]] = frozenset()
    supported: ClassVar[frozenset[Feature]] = frozenset({Feature.ADAPTIVE, Feature.BUDGET})
    ignored: ClassVar[frozenset[str]] = frozenset(
        {"worker_spec_yaml", "node_selector", "scheduler_ram", "scheduler_cpu", "local_fit"}
    )
    settings: ClassVar[type[EngineSettings]] = SshSettings
    uses_pools: ClassVar[bool] = False

    def available(self) -> Availability:
        """Return whether asyncssh and cryptography are installed; hosts are not contacted."""
        missing = [name for name in ("asyncssh", "cryptography") if not is_installed(name)]
        if missing:
            needs = " and ".join(missing)
            return Availability(False, f"it needs {needs}: pip install 'hyperplane[ssh]'")
        return Availability(
            True,
            "asyncssh is installed; hosts are in hyperplane.engines.ssh.hosts; "
            "they are contacted when a cluster starts",
        )

    def capacity(self, settings: EngineSettings) -> MachineCapacity | None:
        """Return None: hosts are not contacted; each checks its memory when a cluster starts."""
        del settings
        return None

    def layout(self, asked: WorkerSpec) -> tuple[WorkerSpec, str]:
        """Return the layout with one worker process on each GPU, if GPUs are requested."""
        return one_process_per_gpu(asked)

    def faults(self, request: ClusterRequest, settings: EngineSettings) -> list[Fault]:
        """Return a fault if no hosts are set or if there are fewer hosts than nodes."""
        return find_host_faults(request, cast(HostSettings, settings))

    def render(self, plan: ClusterPlan) -> str:
        """Return as YAML the processes of each host, without the key pair of the cluster."""
        from hyperplane.clusters.dask.ssh.start import describe

        return str(yaml.safe_dump(describe(plan), sort_keys=False, width=100))

    def start_line(self, plan: ClusterPlan) -> str:
        """Return a line with the number of processes and their hosts."""
        settings = cast(SshSettings, plan.settings)
        scheduler = f"on {settings.scheduler_host or settings.hosts[0]}"
        workers = plural(plan.dask_workers, "worker process")
        hosts = ", ".join(dict.fromkeys(settings.hosts[: plan.nodes]))
        return f"starting the scheduler {scheduler} and {workers} on {hosts}"

    def preflight_checks(self, plan: ClusterPlan, request: PreflightRequest) -> list[Check]:
        """Return the checks of the hosts and of the dashboard's port."""
        from hyperplane.clusters.dask.ssh.preflight import list_checks

        return list_checks(plan, request)

    def start(self, plan: ClusterPlan) -> StartedCluster:
        """Start scheduler and workers on the hosts; return when all workers have connected."""
        from hyperplane.clusters.dask.ssh.start import start

        return start(plan)

    def connect(self, name: str, settings: EngineSettings) -> StartedCluster:
        """Attach to a cluster that another process of this user started on this machine."""
        from hyperplane.clusters.dask.attach import attach

        return attach(name, self.name, settings)
