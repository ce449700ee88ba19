"""The kubernetes engine: pods that the operator of dask-kubernetes starts."""

from __future__ import annotations

from typing import ClassVar, cast

from hyperplane.clusters.dask.gpu_layout import one_process_per_gpu
from hyperplane.clusters.engine import Availability, Feature, StartedCluster, SupportedDeployMode
from hyperplane.clusters.listed_cluster import ListedCluster
from hyperplane.clusters.pod_requests import find_pod_faults
from hyperplane.core.errors import Fault
from hyperplane.core.optional import is_installed
from hyperplane.guard.preflight.request import PreflightRequest
from hyperplane.guard.preflight.run_checks import Check
from hyperplane.spec.capacity import MachineCapacity
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.request import ClusterRequest
from hyperplane.spec.settings import EngineSettings, KubernetesSettings
from hyperplane.spec.worker import WorkerSpec

#: The operator appends "-scheduler" to the name of a cluster, and names have at most 63 characters.
LONGEST_NAME = 53


class KubernetesEngine:
    """Starts the scheduler and each worker process in a separate pod."""

    name: ClassVar[str] = "kubernetes"
    unsupported: ClassVar[frozenset[Feature]] = frozenset()
    supported: ClassVar[frozenset[Feature]] = frozenset({Feature.ADAPTIVE, Feature.BUDGET})
    ignored: ClassVar[frozenset[str]] = frozenset({"local_fit"})
    settings: ClassVar[type[EngineSettings]] = KubernetesSettings
    uses_pools: ClassVar[bool] = True
    supported_deploy_mode: ClassVar[SupportedDeployMode] = SupportedDeployMode(
        "remote", "the operator of dask-kubernetes starts the scheduler in a pod"
    )

    def available(self) -> Availability:
        """Return whether dask-kubernetes is installed; Kubernetes is not contacted."""
        if not is_installed("dask_kubernetes"):
            reason = "it needs dask-kubernetes: pip install 'hyperplane[kubernetes]'"
            return Availability(False, reason)
        return Availability(
            True,
            "dask-kubernetes is installed; it uses the context that kubectl uses; "
            "Kubernetes is contacted when a cluster starts",
        )

    def capacity(self, settings: EngineSettings) -> MachineCapacity | None:
        """Return None: Kubernetes may add nodes as they are needed."""
        del settings
        return None

    def layout(self, asked: WorkerSpec) -> tuple[WorkerSpec, str]:
        """Return the layout with one worker process on each GPU, if GPUs are requested."""
        return one_process_per_gpu(asked)

    def faults(self, request: ClusterRequest, settings: EngineSettings) -> list[Fault]:
        """Return faults for missing settings and for arguments that no pod can satisfy."""
        return find_pod_faults(request, cast(KubernetesSettings, settings), LONGEST_NAME)

    def render(self, plan: ClusterPlan) -> str:
        """Return the DaskCluster resource as YAML."""
        from hyperplane.clusters.dask.kubernetes.render import render

        return render(plan)

    def preflight_checks(self, plan: ClusterPlan, request: PreflightRequest) -> list[Check]:
        """Return the checks of the image, of the namespace and of its quotas."""
        from hyperplane.clusters.dask.kubernetes.preflight import list_checks

        return list_checks(plan, request)

    def start(self, plan: ClusterPlan) -> StartedCluster:
        """Create the resource; return when all workers have connected."""
        from hyperplane.clusters.dask.kubernetes.start import start

        return start(plan)

    def connect(self, name: str, settings: EngineSettings) -> StartedCluster:
        """Attach to a cluster of the namespace, which any program may have started."""
        from hyperplane.clusters.dask.kubernetes.start import connect

        return connect(name, cast(KubernetesSettings, settings))

    def list_clusters(self, settings: EngineSettings, seconds: float) -> list[ListedCluster]:
        """Return the clusters of this user in the namespace, if an image is set."""
        given = cast(KubernetesSettings, settings)
        if given.image is None or not is_installed("kr8s"):
            return []
        from hyperplane.clusters.dask.kubernetes.resource import DaskClusterResource
        from hyperplane.clusters.resource_listing import list_resources

        return list_resources(DaskClusterResource, given, seconds)

    def stop_listed(self, cluster: ListedCluster, settings: EngineSettings) -> None:
        """Delete the resource of a cluster; return when its pods have ended."""
        from hyperplane.clusters.dask.kubernetes.resource import DaskClusterResource
        from hyperplane.clusters.resource_listing import delete_listed

        delete_listed(DaskClusterResource, cluster, cast(KubernetesSettings, settings))
