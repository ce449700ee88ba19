"""The engine ``spark:ssh``: a Spark cluster on a list of hosts, with its master on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, cast

from hyperplane.clusters import records
from hyperplane.clusters.engine import Availability
from hyperplane.clusters.host_faults import find_host_faults
from hyperplane.clusters.spark import installation
from hyperplane.clusters.spark.engine import RemoteSparkEngine
from hyperplane.clusters.spark.ssh.cluster import ENGINE, SshSparkCluster
from hyperplane.core.errors import Fault
from hyperplane.core.optional import is_installed
from hyperplane.core.units import plural
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.request import ClusterRequest
from hyperplane.spec.settings import EngineSettings, HostSettings, SparkSshSettings


class SshSparkEngine(RemoteSparkEngine):
    """Starts a master of Spark on this machine and workers on hosts, owned by this process."""

    name: ClassVar[str] = ENGINE
    settings: ClassVar[type[EngineSettings]] = SparkSshSettings

    def available(self) -> Availability:
        """Return whether Spark, Java and asyncssh are installed; hosts are not contacted."""
        if problem := installation.find_problem():
            return Availability(False, problem)
        if not is_installed("asyncssh"):
            return Availability(False, "it needs asyncssh: pip install 'hyperplane[ssh]'")
        return Availability(True, "Spark and asyncssh are installed; hosts are not contacted")

    def faults(self, request: ClusterRequest, settings: EngineSettings) -> list[Fault]:
        """Return a fault if no hosts are set or if there are fewer hosts than nodes."""
        return find_host_faults(request, cast(HostSettings, settings))

    def start_line(self, plan: ClusterPlan) -> str:
        """Return a line with the number of workers and their hosts."""
        workers = plural(plan.dask_workers, "worker")
        hosts = ", ".join(dict.fromkeys(cast(HostSettings, plan.settings).hosts[: plan.nodes]))
        return f"starting the master of Spark on this machine and {workers} on {hosts}"

    def build_cluster(
        self,
        plan: ClusterPlan,
        record: records.ClusterRecord,
        folder: Path,
        home: Path,
        secret: str,
    ) -> SshSparkCluster:
        """Return the object of a new cluster."""
        return SshSparkCluster(plan, record, folder, home, secret)
