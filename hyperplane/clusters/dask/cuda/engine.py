"""The cuda engine: dask-cuda's LocalCUDACluster with one worker process on each GPU."""

from __future__ import annotations

import sys
from typing import ClassVar, cast

from hyperplane.clusters.dask.gpu_layout import one_process_per_gpu
from hyperplane.clusters.engine import Availability, Feature, StartedCluster
from hyperplane.clusters.gpu_requests import explain_none_visible, find_excess_gpus, fit_gpus
from hyperplane.core.errors import Fault
from hyperplane.core.optional import is_installed
from hyperplane.core.units import plural
from hyperplane.platforms.local import gpus as local_gpus
from hyperplane.spec.capacity import MachineCapacity
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.request import ClusterRequest
from hyperplane.spec.settings import CudaSettings, EngineSettings
from hyperplane.spec.worker import WorkerSpec

INSTALL = "pip install 'hyperplane[gpu]'"


class CudaEngine:
    """Starts one worker process for each requested GPU, owned by this process."""

    name: ClassVar[str] = "cuda"
    unsupported: ClassVar[frozenset[Feature]] = frozenset()
    supported: ClassVar[frozenset[Feature]] = frozenset({Feature.BUDGET})
    ignored: ClassVar[frozenset[str]] = frozenset(
        {"worker_spec_yaml", "node_selector", "scheduler_ram", "scheduler_cpu"}
    )
    settings: ClassVar[type[EngineSettings]] = CudaSettings
    uses_pools: ClassVar[bool] = False

    def available(self) -> Availability:
        """Return whether this process may use a GPU and dask-cuda is installed."""
        if not sys.platform.startswith("linux"):
            return Availability(False, "dask-cuda runs on Linux only")
        gpus = local_gpus.detect_gpus()
        if not gpus.visible:
            return Availability(False, explain_none_visible(gpus))
        if not is_installed("dask_cuda"):
            return Availability(False, f"it needs dask-cuda: {INSTALL}")
        return Availability(True, f"{plural(len(gpus.visible), 'NVIDIA GPU')} on this machine")

    def capacity(self, settings: EngineSettings) -> MachineCapacity | None:
        """Return None: cores do not limit GPU workers, whose threads mostly wait for the GPU."""
        del settings
        return None

    def layout(self, asked: WorkerSpec) -> tuple[WorkerSpec, str]:
        """Return the layout with one worker process on each GPU."""
        return one_process_per_gpu(asked)

    def fit_nodes(self, worker: WorkerSpec, nodes: int) -> tuple[WorkerSpec, int, str]:
        """Reduce the nodes to those that the GPUs suffice for, or to one node with all GPUs."""
        return fit_gpus(worker, nodes, len(local_gpus.detect_gpus().visible))

    def faults(self, request: ClusterRequest, settings: EngineSettings) -> list[Fault]:
        """Return faults for a request without GPUs or with too many, and for missing packages."""
        if not request.ngpus:
            allowed = "at least 1: a worker process runs on each GPU"
            return [Fault("ngpus", "0", allowed, "ngpus=1 takes one on each node")]
        gpus = local_gpus.detect_gpus()
        if not gpus.visible:  # the plan may be for another machine; a start reports it
            return []
        faults = _missing_packages(cast(CudaSettings, settings))
        if request.local_fit == "exact":
            faults += find_excess_gpus(request, gpus)
        return faults

    def render(self, plan: ClusterPlan) -> str:
        """Return a script that starts the same cluster on several machines."""
        from hyperplane.clusters.dask.cuda.render import render

        return render(plan, self.layout(plan.worker)[0])

    def start_line(self, plan: ClusterPlan) -> str:
        """Return a line with the number of worker processes on this machine."""
        workers = plural(plan.nodes * self.layout(plan.worker)[0].nprocs, "worker process")
        return (
            f"starting the scheduler in this process and {workers}, each on a GPU of this machine"
        )

    def start(self, plan: ClusterPlan) -> StartedCluster:
        """Start scheduler and workers; return when all workers have connected."""
        from hyperplane.clusters.dask.cuda.start import start

        visible = local_gpus.detect_gpus().visible
        return start(plan, self.layout(plan.worker)[0], visible)

    def connect(self, name: str, settings: EngineSettings) -> StartedCluster:
        """Attach to a cluster that another process of this user runs on this machine."""
        from hyperplane.clusters.dask.attach import attach

        return attach(name, self.name, settings)


def _missing_packages(settings: CudaSettings) -> list[Fault]:
    """Return a fault for each setting that needs a package which is not installed."""
    needs = {
        "dataframe_backend": ("dask_cudf", settings.dataframe_backend == "cudf", "'pandas'"),
        "enable_cudf_spill": ("cudf", settings.enable_cudf_spill, "False"),
        "rmm_pool_fraction": ("rmm", settings.rmm_pool_fraction is not None, "null"),
        "rmm_pool_gb": ("rmm", settings.rmm_pool_gb is not None, "null"),
        "rmm_async": ("rmm", settings.rmm_async, "False"),
    }
    return [
        Fault(
            f"hyperplane.engines.cuda.{name}",
            repr(getattr(settings, name)),
            f"{otherwise}, because {package} is not installed",
            INSTALL,
        )
        for name, (package, wanted, otherwise) in needs.items()
        if wanted and not is_installed(package)
    ]
