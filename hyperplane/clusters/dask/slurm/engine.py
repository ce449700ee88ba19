"""The slurm engine: each node of a plan is a Slurm job, started through dask-jobqueue."""

from __future__ import annotations

import shutil
from typing import ClassVar

from hyperplane.clusters.dask.gpu_layout import one_process_per_gpu
from hyperplane.clusters.engine import Availability, Feature, StartedCluster, SupportedDeployMode
from hyperplane.clusters.listed_cluster import ListedCluster
from hyperplane.clusters.remote_nodes import slurm_listing
from hyperplane.core.errors import Fault
from hyperplane.core.optional import is_installed
from hyperplane.core.units import plural
from hyperplane.guard.preflight.request import PreflightRequest
from hyperplane.guard.preflight.run_checks import Check
from hyperplane.platforms.slurm.commands import describe_missing_commands
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.request import ClusterRequest
from hyperplane.spec.settings import EngineSettings, SlurmSettings
from hyperplane.spec.worker import WorkerSpec

MODULES = {"dask_jobqueue": "dask-jobqueue", "cryptography": "cryptography"}


class SlurmEngine:
    """Starts the scheduler in this process and one Slurm job for each node."""

    name: ClassVar[str] = "slurm"
    unsupported: ClassVar[frozenset[Feature]] = frozenset()
    supported: ClassVar[frozenset[Feature]] = frozenset({Feature.ADAPTIVE, Feature.BUDGET})
    ignored: ClassVar[frozenset[str]] = frozenset(
        {"worker_spec_yaml", "node_selector", "scheduler_ram", "scheduler_cpu", "local_fit"}
    )
    settings: ClassVar[type[EngineSettings]] = SlurmSettings
    uses_pools: ClassVar[bool] = False
    supported_deploy_mode: ClassVar[SupportedDeployMode] = SupportedDeployMode(
        "local", "the scheduler runs in this process, and the jobs connect to it"
    )

    def available(self) -> Availability:
        """Return whether the needed packages and Slurm's commands are installed; query nothing."""
        missing = [name for module, name in MODULES.items() if not is_installed(module)]
        if missing:
            needs = " and ".join(missing)
            return Availability(False, f"it needs {needs}: pip install 'hyperplane[slurm]'")
        if missing_commands := describe_missing_commands():
            return Availability(False, missing_commands)
        sbatch = shutil.which("sbatch")
        contact = "Slurm is contacted when a cluster starts"
        return Availability(True, f"dask-jobqueue is installed, and {sbatch}; {contact}")

    def capacity(self, settings: EngineSettings) -> None:
        """Return None: the engine is not bound to one machine."""
        del settings

    def layout(self, asked: WorkerSpec) -> tuple[WorkerSpec, str]:
        """Return the layout with one worker process on each GPU, if GPUs are requested."""
        return one_process_per_gpu(asked)

    def faults(self, request: ClusterRequest, settings: EngineSettings) -> list[Fault]:
        """Return no faults: Slurm refuses invalid requests when a job is submitted."""
        del request, settings
        return []

    def render(self, plan: ClusterPlan) -> str:
        """Return the sbatch script of a node, without contacting Slurm."""
        from hyperplane.clusters.dask.slurm.script import render

        return render(plan)

    def start_line(self, plan: ClusterPlan) -> str:
        """Return a line with the numbers of worker processes and of jobs."""
        workers = plural(plan.dask_workers, "worker process")
        jobs = "a job" if plan.nodes == 1 else f"{plan.nodes} jobs"
        return f"starting the scheduler in this process and {workers} in {jobs} of Slurm"

    def preflight_checks(self, plan: ClusterPlan, request: PreflightRequest) -> list[Check]:
        """Return the checks of Python, of the shared folder and of the job's options."""
        from hyperplane.clusters.dask.slurm.preflight import list_checks

        return list_checks(plan, request)

    def start(self, plan: ClusterPlan) -> StartedCluster:
        """Start the scheduler, submit the jobs; return when all workers have connected."""
        from hyperplane.clusters.dask.slurm.start import start

        return start(plan)

    def connect(self, name: str, settings: EngineSettings) -> StartedCluster:
        """Attach to a cluster that another process of this user started on this machine."""
        from hyperplane.clusters.dask.attach import attach

        return attach(name, self.name, settings)

    def list_clusters(self, settings: EngineSettings, seconds: float) -> list[ListedCluster]:
        """Return the clusters of this user in the queue of Slurm."""
        del settings
        return slurm_listing.list_jobs(self.name, seconds)

    def stop_listed(self, cluster: ListedCluster, settings: EngineSettings) -> None:
        """Cancel the jobs of a cluster."""
        del settings
        slurm_listing.cancel_listed(cluster)
