"""The engine ``ray:kubernetes``: a Ray cluster in pods that the operator KubeRay starts."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from hyperplane.clusters import records
from hyperplane.clusters.engine import (
    Availability,
    Feature,
    StartedCluster,
    SupportedDeployMode,
)
from hyperplane.clusters.framework import RUNNING
from hyperplane.clusters.gpu_requests import find_division_fault
from hyperplane.clusters.interrupts import allow_interrupts
from hyperplane.clusters.listed_cluster import ListedCluster
from hyperplane.clusters.pod_requests import find_pod_faults
from hyperplane.clusters.ray.client import RayClient
from hyperplane.clusters.ray.cluster import OwnedRayCluster
from hyperplane.clusters.ray.engine import INSTALL_RAY
from hyperplane.clusters.ray.kubernetes.render import ENGINE, render
from hyperplane.clusters.ray.kubernetes.template_faults import find_template_faults
from hyperplane.clusters.running_clusters import read_running
from hyperplane.core.errors import Fault, StartFailed
from hyperplane.core.optional import is_installed
from hyperplane.core.units import plural
from hyperplane.platforms.local import temporary_folders
from hyperplane.spec.capacity import MachineCapacity
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.request import ClusterRequest
from hyperplane.spec.settings import EngineSettings, RayKubernetesSettings

if TYPE_CHECKING:
    from hyperplane.clusters.ray.kubernetes.cluster import KubernetesRayCluster

#: Maximum characters of a name: KubeRay appends to it.
LONGEST_NAME = 53
_IMAGE = "an image with the Python and Ray versions of this process"
#: Names that KubeRay accepts.
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
#: Seconds that a running cluster may take to answer the first request.
_CONNECT_SECONDS = 60.0


class KubernetesRayEngine:
    """Starts the head of Ray and each worker node in a separate pod."""

    name: ClassVar[str] = ENGINE
    settings: ClassVar[type[EngineSettings]] = RayKubernetesSettings
    unsupported: ClassVar[frozenset[Feature]] = frozenset()
    ignored: ClassVar[frozenset[str]] = frozenset({"local_fit", "memory", "tuning"})
    uses_pools: ClassVar[bool] = True
    supported_deploy_mode: ClassVar[SupportedDeployMode] = SupportedDeployMode(
        "remote", "the operator KubeRay starts the head in a pod"
    )

    def available(self) -> Availability:
        """Return whether the packages are installed; Kubernetes is not contacted."""
        if not is_installed("ray"):
            return Availability(False, INSTALL_RAY)
        missing = [name for name in ("kr8s", "cryptography") if not is_installed(name)]
        if missing:
            needs = " and ".join(missing)
            return Availability(False, f"it needs {needs}: pip install 'hyperplane[kubernetes]'")
        return Availability(
            True,
            "Ray and kr8s are installed; it uses the context that kubectl uses; Kubernetes is "
            "contacted when a cluster starts",
        )

    def capacity(self, settings: EngineSettings) -> MachineCapacity | None:
        """Return None: Kubernetes may add nodes as they are needed."""
        del settings
        return None

    def faults(self, request: ClusterRequest, settings: EngineSettings) -> list[Fault]:
        """Return faults for missing settings and for arguments that no pod can satisfy."""
        given = cast(RayKubernetesSettings, settings)
        faults = find_pod_faults(request, given, LONGEST_NAME, _IMAGE)
        if request.name and not _NAME.fullmatch(request.name):
            allowed = "lower-case letters, digits and dashes; the first a letter, the last no dash"
            faults.append(Fault("name", repr(request.name), allowed))
        faults += find_division_fault(request)
        return faults + find_template_faults(request.worker_spec_yaml, given.security == "tls")

    def render(self, plan: ClusterPlan) -> str:
        """Return the RayCluster, and the Job that ends it when it is idle, as YAML."""
        return render(plan)

    def start_line(self, plan: ClusterPlan) -> str:
        """Return a line with the number of pods."""
        workers = plural(plan.dask_workers, "worker pod")
        return f"creating a RayCluster of KubeRay with the pod of the head and {workers}"

    def start(self, plan: ClusterPlan) -> StartedCluster[RayClient, KubernetesRayCluster]:
        """Create the resource; return when all worker nodes have started."""
        return self.start_with_lines(plan, lambda kind, text: None)

    def start_with_lines(
        self, plan: ClusterPlan, announce: Callable[[str, str], None]
    ) -> StartedCluster[RayClient, KubernetesRayCluster]:
        """Create the resource, and report the address of the dashboard and the names of workers.

        ``announce`` is called with ``dashboard`` or ``worker``, and the address or name.
        """
        deadline = time.monotonic() + plan.request.timeout
        settings = cast(RayKubernetesSettings, plan.settings)
        cluster = self._create(plan, settings)
        try:
            cluster.create()
            with allow_interrupts():
                cluster.wait_for_head(deadline)
                announce("dashboard", cluster.dashboard)
                cluster.start_workers(
                    plan.dask_workers, deadline, lambda name: announce("worker", name)
                )
            cluster.complete_start()
            return StartedCluster(self.create_client(cluster), cluster)
        except BaseException:
            cluster.close()
            raise

    def _create(self, plan: ClusterPlan, settings: RayKubernetesSettings) -> KubernetesRayCluster:
        """Return the object of a new cluster, whose name is reserved on this machine."""
        try:
            record = records.reserve(records.ClusterRecord.from_plan(plan), None)
        except OSError as error:
            raise StartFailed(self.name, str(error)) from error
        from hyperplane.clusters.ray.kubernetes.cluster import KubernetesRayCluster

        try:
            return KubernetesRayCluster(plan.name, settings, plan, record, Path(record.scratch))
        except BaseException:
            records.remove(record.name, record.scratch)
            raise

    def create_client(self, cluster: KubernetesRayCluster) -> RayClient:
        """Return the client of a cluster."""
        return RayClient(
            self.name, cluster.address, cluster.variables, cluster.disconnect, cluster.find_end
        )

    def connect(
        self, name: str, settings: EngineSettings
    ) -> StartedCluster[RayClient, KubernetesRayCluster]:
        """Attach to a cluster of the namespace, which any program may have started."""
        from hyperplane.clusters.ray.kubernetes.cluster import attached

        if (own := _find_own(name)) is not None:
            return StartedCluster(self.create_client(own), own)
        pods = self._select_namespace(name, settings)
        if known := _find_running(attached.get((name, pods.namespace))):
            known.connect_programs()
            return StartedCluster(self.create_client(known), known)
        cluster = self._load(name, pods)
        try:
            cluster.renew_lease()
            cluster.wait_for_head(time.monotonic() + _CONNECT_SECONDS)
            cluster.connect_programs()
            attached[name, pods.namespace] = cluster
            return StartedCluster(self.create_client(cluster), cluster)
        except BaseException:
            cluster.detach()
            raise

    def _select_namespace(self, name: str, settings: EngineSettings) -> RayKubernetesSettings:
        """Return the settings with the namespace of a cluster that was started here."""
        pods = cast(RayKubernetesSettings, settings)
        for record in read_running(self.name):
            if (record.name, record.engine) == (name, self.name):  # started on this machine
                pods = pods.model_copy(update={"namespace": record.client.get("namespace")})
        return pods

    def _load(self, name: str, pods: RayKubernetesSettings) -> KubernetesRayCluster:
        """Return the object of a running cluster, without a connection to its head."""
        from hyperplane.clusters.ray.kubernetes.cluster import KubernetesRayCluster

        folder = temporary_folders.create_temporary_folder()
        try:
            cluster = KubernetesRayCluster(name, pods, None, None, folder)
        except BaseException:
            temporary_folders.remove_temporary_folder(folder)
            raise
        try:
            cluster.load()
        except BaseException:
            cluster.detach()
            raise
        return cluster

    def list_workers(
        self, record: records.ClusterRecord, settings: EngineSettings
    ) -> list[tuple[str, str]]:
        """Return the names and addresses of the worker pods that are ready now."""
        if (own := _find_own(record.name)) is not None:
            return list(own.hosts.items())
        cluster = self._load(record.name, self._select_namespace(record.name, settings))
        try:
            return list(cluster.hosts.items())
        finally:
            cluster.detach()

    def list_clusters(self, settings: EngineSettings, seconds: float) -> list[ListedCluster]:
        """Return the clusters of this user in the namespace, if an image is set."""
        given = cast(RayKubernetesSettings, settings)
        if given.image is None or not is_installed("kr8s"):
            return []
        from hyperplane.clusters.ray.kubernetes.resource import RayClusterResource
        from hyperplane.clusters.resource_listing import list_resources

        return list_resources(RayClusterResource, given, seconds)

    def stop_listed(self, cluster: ListedCluster, settings: EngineSettings) -> None:
        """Delete the resource of a cluster; return when its pods have ended."""
        from hyperplane.clusters.ray.kubernetes.resource import RayClusterResource
        from hyperplane.clusters.resource_listing import delete_listed

        delete_listed(RayClusterResource, cluster, cast(RayKubernetesSettings, settings))


def _find_own(name: str) -> KubernetesRayCluster | None:
    """Return the running cluster of a name that this process owns."""
    from hyperplane.clusters.ray.kubernetes.cluster import KubernetesRayCluster

    own = OwnedRayCluster.running.get(name)
    return _find_running(own if isinstance(own, KubernetesRayCluster) else None)


def _find_running(cluster: KubernetesRayCluster | None) -> KubernetesRayCluster | None:
    """Return a cluster of this process if it runs; release its object if it has ended."""
    if cluster is None or cluster.pid != os.getpid():
        return None
    return cluster if cluster.check_status() == RUNNING else None
