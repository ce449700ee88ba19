"""The engine ``spark:slurm``: a Spark cluster with its master on this machine and jobs of Slurm."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import ClassVar, cast

from hyperplane.clusters import records
from hyperplane.clusters.engine import Availability
from hyperplane.clusters.listed_cluster import ListedCluster
from hyperplane.clusters.remote_nodes import slurm_jobs, slurm_listing
from hyperplane.clusters.spark import installation
from hyperplane.clusters.spark.engine import RemoteSparkEngine
from hyperplane.clusters.spark.slurm.cluster import ENGINE, PROGRAM, SlurmSparkCluster
from hyperplane.core.errors import Fault
from hyperplane.core.optional import is_installed
from hyperplane.core.units import plural
from hyperplane.platforms.slurm.commands import describe_missing_commands
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.request import ClusterRequest
from hyperplane.spec.settings import EngineSettings, SparkSlurmSettings


class SlurmSparkEngine(RemoteSparkEngine):
    """Starts a master of Spark on this machine and one Slurm job for each worker."""

    name: ClassVar[str] = ENGINE
    settings: ClassVar[type[EngineSettings]] = SparkSlurmSettings

    def available(self) -> Availability:
        """Return whether Spark, Java and Slurm's commands are installed; query nothing."""
        if problem := installation.find_problem():
            return Availability(False, problem)
        if not is_installed("cryptography"):
            return Availability(False, "it needs cryptography: pip install 'hyperplane[slurm]'")
        if missing_commands := describe_missing_commands():
            return Availability(False, missing_commands)
        contact = "Slurm is contacted when a cluster starts"
        return Availability(True, f"Spark is installed, and {shutil.which('sbatch')}; {contact}")

    def faults(self, request: ClusterRequest, settings: EngineSettings) -> list[Fault]:
        """Return a fault if the interface of the settings is one that no other machine reaches."""
        del request
        return slurm_jobs.find_interface_faults(cast(SparkSlurmSettings, settings))

    def start_line(self, plan: ClusterPlan) -> str:
        """Return a line with the number of jobs."""
        jobs = plural(plan.dask_workers, "Slurm job")
        return f"starting the master of Spark on this machine and submitting {jobs}"

    def render(self, plan: ClusterPlan) -> str:
        """Return the sbatch script of a worker, without contacting Slurm."""
        return slurm_jobs.render_plan(plan, PROGRAM)

    def scratch_parent(self, plan: ClusterPlan) -> str:
        """Return the folder that this machine shares with the nodes."""
        return slurm_jobs.create_shared_folder(cast(SparkSlurmSettings, plan.settings))

    def build_cluster(
        self,
        plan: ClusterPlan,
        record: records.ClusterRecord,
        folder: Path,
        home: Path,
        secret: str,
    ) -> SlurmSparkCluster:
        """Return the object of a new cluster."""
        host = slurm_jobs.find_own_address(self.name, cast(SparkSlurmSettings, plan.settings))
        return SlurmSparkCluster(plan, record, folder, home, secret, host)

    def list_clusters(self, settings: EngineSettings, seconds: float) -> list[ListedCluster]:
        """Return the clusters of this user in the queue of Slurm."""
        del settings
        return slurm_listing.list_jobs(self.name, seconds)

    def stop_listed(self, cluster: ListedCluster, settings: EngineSettings) -> None:
        """Cancel the jobs of a cluster."""
        del settings
        slurm_listing.cancel_listed(cluster)
