"""The engine ``ray:local``: a Ray cluster that is limited to the resources of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from hyperplane.clusters import records
from hyperplane.clusters.engine import Availability, StartedCluster
from hyperplane.clusters.ray.client import RayClient
from hyperplane.clusters.ray.engine import INSTALL_RAY, BaseRayEngine
from hyperplane.clusters.ray.local.cluster import ENGINE, LocalRayCluster
from hyperplane.clusters.spark import on_ray
from hyperplane.core.optional import is_installed
from hyperplane.core.units import plural
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import EngineSettings, RayLocalSettings


class LocalRayEngine(BaseRayEngine):
    """Starts a head and worker nodes of Ray on this machine, owned by this process."""

    name: ClassVar[str] = ENGINE
    settings: ClassVar[type[EngineSettings]] = RayLocalSettings
    loopback = True

    def available(self) -> Availability:
        """Return whether Ray is installed."""
        if not is_installed("ray"):
            return Availability(False, INSTALL_RAY)
        return Availability(True, "needs nothing but this machine")

    def start_line(self, plan: ClusterPlan) -> str:
        """Return a line with the number of worker nodes on this machine."""
        workers = plural(plan.dask_workers, "worker node")
        return f"starting the head node and {workers} of Ray on this machine"

    def build_cluster(
        self, plan: ClusterPlan, record: records.ClusterRecord, folder: Path
    ) -> LocalRayCluster:
        """Return the object of a new cluster whose folder is valid."""
        return LocalRayCluster(plan, record, folder)

    def attach(self, record: records.ClusterRecord) -> StartedCluster[RayClient, Any]:
        """Connect programs of this process to a running cluster; return its client and object."""
        conf = record.client.get("spark_conf")
        if conf and not on_ray.find_problem():
            on_ray.set_variables(Path(conf))
        return super().attach(record)
