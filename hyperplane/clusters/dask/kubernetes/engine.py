"""The kubernetes engine: pods that the operator of dask-kubernetes starts."""

from __future__ import annotations

from typing import ClassVar, cast

from hyperplane.clusters.dask.gpu_layout import one_process_per_gpu
from hyperplane.clusters.engine import Availability, Feature, StartedCluster, SupportedDeployMode
from hyperplane.core.errors import Fault, RequestError
from hyperplane.core.optional import is_installed
from hyperplane.spec.capacity import MachineCapacity
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.request import ClusterRequest
from hyperplane.spec.settings import EngineSettings, KubernetesSettings
from hyperplane.spec.settings.kubernetes import millicores
from hyperplane.spec.worker import WorkerSpec

#: The operator appends "-scheduler" to the name of a cluster, and names have at most 63 characters.
LONGEST_NAME = 53


class KubernetesEngine:
    """Starts the scheduler and each worker process in a separate pod."""

    name: ClassVar[str] = "kubernetes"
    unsupported: ClassVar[frozenset[Feature]] = frozenset()
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
        faults = []
        if cast(KubernetesSettings, settings).image is None:
            where = "hyperplane.engines.kubernetes.image"
            advice = (
                'set it, or give engine_options={"image": "..."} '
                "(on the command line --engine-options image=...)"
            )
            allowed = "an image with the Python version of this process"
            faults.append(Fault(where, "nothing", allowed, advice))
        if request.name and len(request.name) > LONGEST_NAME:
            faults.append(Fault("name", repr(request.name), f"at most {LONGEST_NAME} characters"))
        return faults + _faults_of_arguments(request)

    def render(self, plan: ClusterPlan) -> str:
        """Return the DaskCluster resource as YAML."""
        from hyperplane.clusters.dask.kubernetes.render import render

        return render(plan)

    def start(self, plan: ClusterPlan) -> StartedCluster:
        """Create the resource; return when all workers have connected."""
        from hyperplane.clusters.dask.kubernetes.start import start

        return start(plan)

    def connect(self, name: str, settings: EngineSettings) -> StartedCluster:
        """Attach to a cluster of the namespace, which any program may have started."""
        from hyperplane.clusters.dask.kubernetes.start import connect

        return connect(name, cast(KubernetesSettings, settings))


def _faults_of_arguments(request: ClusterRequest) -> list[Fault]:
    from hyperplane.clusters.dask.kubernetes.template import parse_selector, read_template

    faults: list[Fault] = []
    try:
        parse_selector(request.node_selector or {})
    except ValueError as error:
        faults.append(Fault("node_selector", repr(request.node_selector), str(error)))
    try:
        millicores(request.scheduler_cpu if request.scheduler_cpu is not None else 1)
    except ValueError as error:
        faults.append(Fault("scheduler_cpu", repr(request.scheduler_cpu), str(error)))
    try:
        if request.worker_spec_yaml:
            read_template(request.worker_spec_yaml)
    except RequestError as error:
        faults += error.faults
    return faults
