"""Start the cluster of a plan on the GPUs of this machine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import dask.config

from hyperplane.clusters.dask.cluster_guards import ClusterGuards
from hyperplane.clusters.dask.cluster_records import release_cluster
from hyperplane.clusters.dask.guarded_cluster import cluster_settings, scheduler_settings
from hyperplane.clusters.dask.local_process import (
    LOOPBACK,
    connect_local_client,
    local_security,
    log_tail,
    reserve_local_record,
    worker_preloads,
)
from hyperplane.clusters.dask.log_filters import worker_variables
from hyperplane.clusters.dask.settings import (
    drop_overridden,
    drop_overridden_variables,
    user_settings,
)
from hyperplane.clusters.dask.start_errors import (
    StepTimeout,
    describe_cause,
    is_start_timeout,
    start_timeout,
    step_timeout,
)
from hyperplane.clusters.dask.worker_memory import select_variables
from hyperplane.clusters.engine import StartedCluster
from hyperplane.clusters.records import ClusterRecord
from hyperplane.core.errors import EngineError, Fault, StartFailed, check
from hyperplane.core.units import bytes_to_gb
from hyperplane.platforms.local.gpus import VARIABLE
from hyperplane.spec.dask_options import DaskOptions
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import CudaSettings
from hyperplane.spec.worker import WorkerSpec

if TYPE_CHECKING:
    from hyperplane.clusters.dask.cuda.cluster import GuardedCudaCluster

#: Setting that dask-cuda changes in this process with any protocol; a start restores it.
_UCX_SETTING = "distributed-ucxx"


def start(plan: ClusterPlan, worker: WorkerSpec, visible: Sequence[str]) -> StartedCluster:
    """Start the scheduler and one worker process on each GPU; return when all have connected.

    Parameters
    ----------
    plan : ClusterPlan
        The plan to start.
    worker : WorkerSpec
        Layout of a node, with one process on each GPU.
    visible : sequence of str
        GPUs that this process may use. The first are used now, the others when the cluster scales.

    Raises
    ------
    RequestError
        If the plan needs more GPUs than this process may use.
    StartTimeout
        If the workers did not connect in time.
    StartFailed
        If the start failed otherwise. In both cases nothing is left running.
    """
    processes = plan.nodes * worker.nprocs
    if processes > len(visible):
        allowed = f"at most {len(visible)}, the GPUs that this process may use"
        check([Fault("num_workers x ngpus", str(processes), allowed, "ask for fewer")])
    settings = cast(CudaSettings, plan.settings)
    began = time.monotonic()
    record = _reserve_record(plan, worker, settings)
    with log_tail() as tail:
        try:
            cluster = _create_cluster(plan, worker, settings, visible, record.scratch, began)
        except BaseException as error:
            release_cluster(plan.name, record.scratch)
            if not isinstance(error, Exception):
                raise
            raise _start_error(error, plan, began, processes, "\n".join(tail)) from error
    return connect_local_client(cluster, record, plan, began)


def _create_cluster(
    plan: ClusterPlan,
    worker: WorkerSpec,
    settings: CudaSettings,
    visible: Sequence[str],
    scratch: str,
    began: float,
) -> GuardedCudaCluster:
    from hyperplane.clusters.dask.cuda.cluster import CudaNanny, GuardedCudaCluster

    with user_settings():
        arguments = cluster_arguments(plan, worker, settings, visible, scratch)
    with dask.config.set({_UCX_SETTING: dask.config.get(_UCX_SETTING, default=None)}):
        return GuardedCudaCluster(
            worker_class=CudaNanny, deadline=began + plan.request.timeout, **arguments
        )


def _reserve_record(plan: ClusterPlan, worker: WorkerSpec, settings: CudaSettings) -> ClusterRecord:
    """Reserve and return the record of the cluster, with its scratch folder."""
    return reserve_local_record(
        plan,
        settings.local_directory,
        workers=plan.nodes * worker.nprocs,
        threads=plan.nodes * worker.total_threads,
        ram_gb=bytes_to_gb(plan.nodes * worker.total_ram),
        client=client_settings(plan, settings),
    )


def client_settings(plan: ClusterPlan, settings: CudaSettings) -> dict[str, Any]:
    """Return the dotted Dask settings for clients, including tasks that use a client."""
    return {
        **DaskOptions.of(plan.options).tuning.client,
        "dataframe.backend": settings.dataframe_backend,
    }


def cluster_arguments(
    plan: ClusterPlan,
    worker: WorkerSpec,
    settings: CudaSettings,
    visible: Sequence[str],
    scratch: str,
) -> dict[str, Any]:
    """Return the arguments of GuardedCudaCluster for a plan."""
    processes = plan.nodes * worker.nprocs
    options = DaskOptions.of(plan.options)
    tuning = options.tuning
    environ = select_variables(tuning.environ, drop_overridden_variables(tuning.environ))
    return {
        **_dask_cuda_options(settings),
        VARIABLE: list(visible),  # all of them, so that cluster.scale can take more
        "n_workers": processes,
        "threads_per_worker": worker.nthreads,
        "memory_limit": worker.ram_per_proc,
        "protocol": "tcp",
        "local_directory": scratch,
        # From here on, arguments of LocalCluster and of GuardedCluster.
        "name": plan.name,
        "host": LOOPBACK,
        "security": local_security(settings.security),
        "dashboard_address": f"{LOOPBACK}:{plan.dashboard_port}",
        "death_timeout": plan.request.timeout,
        "preload": worker_preloads(),
        "scheduler_kwargs": {
            "dashboard": False,  # see lazy_dashboard
            "local_directory": scratch,
        },
        "scheduler_config": scheduler_settings(plan, settings),
        "cluster_config": cluster_settings(settings),
        "release": partial(release_cluster, plan.name, scratch),
        "guards": ClusterGuards.of(plan),
        "import_meanwhile": (),
        "settings": {
            **drop_overridden({**tuning.server, **client_settings(plan, settings)}),
            **options.memory.as_config(),
        },
        "environ": {**environ, **worker_variables()},
    }


def _dask_cuda_options(settings: CudaSettings) -> dict[str, Any]:
    """Return the arguments that only dask-cuda has."""
    return {
        "rmm_pool_size": settings.pool,
        "rmm_async": settings.rmm_async,
        "rmm_allocator_external_lib_list": list(settings.rmm_libraries) or None,
        "device_memory_limit": settings.device_memory_limit,
        "enable_cudf_spill": settings.enable_cudf_spill,
    }


def _start_error(
    error: Exception, plan: ClusterPlan, began: float, processes: int, tail: str
) -> EngineError:
    advice = "Raise timeout: CUDA contexts and libraries take seconds to load"
    if isinstance(error, StepTimeout):
        return step_timeout(plan, error, advice, tail)
    if is_start_timeout(error, plan, began):
        return start_timeout(plan, None, advice, tail, processes)
    advice = (
        "nvidia-smi shows whether other processes hold GPU memory; a worker process runs the "
        'script again, so in a script move the call below `if __name__ == "__main__":`'
    )
    message = f"{describe_cause(error, plan)} (everything was closed again). {advice}"
    return StartFailed(plan.engine, message, tail)
