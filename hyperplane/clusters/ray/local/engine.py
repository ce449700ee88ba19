"""The engine ``ray:local``: a Ray cluster that is limited to the resources of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, cast

from hyperplane.clusters import records
from hyperplane.clusters.engine import Availability, StartedCluster
from hyperplane.clusters.gpu_requests import explain_none_visible, find_excess_gpus, fit_gpus
from hyperplane.clusters.ray.client import RayClient
from hyperplane.clusters.ray.engine import INSTALL_RAY, BaseRayEngine
from hyperplane.clusters.ray.local.cluster import ENGINE, LocalRayCluster
from hyperplane.clusters.spark import on_ray
from hyperplane.core.errors import Fault
from hyperplane.core.optional import is_installed
from hyperplane.core.units import plural
from hyperplane.platforms.local import gpus as local_gpus
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.request import ClusterRequest
from hyperplane.spec.settings import EngineSettings, RayLocalSettings
from hyperplane.spec.worker import WorkerSpec


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

    def faults(self, request: ClusterRequest, settings: EngineSettings) -> list[Fault]:
        """Return faults for GPUs that this process may not use, or that are too many."""
        faults = super().faults(request, settings)
        if faults or not request.ngpus:
            return faults
        gpus = local_gpus.detect_gpus()
        if not gpus.visible:
            return [Fault("ngpus", str(request.ngpus), f"0: {explain_none_visible(gpus)}")]
        if (request.local_fit or cast(RayLocalSettings, settings).fit) == "exact":
            return find_excess_gpus(request, gpus)
        return []

    def fit_nodes(self, worker: WorkerSpec, nodes: int) -> tuple[WorkerSpec, int, str]:
        """Reduce the worker nodes to those that the GPUs of this machine suffice for."""
        if not worker.ngpus:
            return worker, nodes, ""
        return fit_gpus(worker, nodes, len(local_gpus.detect_gpus().visible))

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
