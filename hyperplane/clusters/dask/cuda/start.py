"""Start the cluster of a plan on the GPUs of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import dask.config
from distributed import Client

from hyperplane.clusters import records
from hyperplane.clusters.dask.cluster_records import new_record, release_cluster
from hyperplane.clusters.dask.guarded_cluster import cluster_settings, scheduler_settings
from hyperplane.clusters.dask.local_process import LOOPBACK, log_tail, worker_preloads
from hyperplane.clusters.dask.settings import (
    apply_client_settings,
    drop_overridden,
    drop_overridden_variables,
    user_settings,
)
from hyperplane.clusters.dask.wait_for_workers import start_timeout
from hyperplane.clusters.dask.worker_memory import select_variables
from hyperplane.clusters.engine import StartedCluster
from hyperplane.core.errors import EngineError, Fault, StartFailed, check
from hyperplane.core.units import bytes_to_gb
from hyperplane.platforms.local.gpus import VARIABLE
from hyperplane.spec.dask_options import DaskOptions
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import CudaSettings
from hyperplane.spec.worker import WorkerSpec

if TYPE_CHECKING:
    from hyperplane.clusters.dask.cuda.cluster import GuardedCudaCluster

#: Setting that dask-cuda changes in the configuration of this process, for every protocol.
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
        When the plan needs more GPUs than this process may use.
    StartTimeout
        When the workers did not connect in time.
    StartFailed
        When the start failed otherwise. In both cases nothing is left running.
    """
    processes = plan.nodes * worker.nprocs
    if processes > len(visible):
        allowed = f"at most {len(visible)}, the GPUs that this process may use"
        check([Fault("num_workers x ngpus", str(processes), allowed, "ask for fewer")])
    settings = cast(CudaSettings, plan.settings)
    record = _reserve_record(plan, worker, settings)
    with log_tail() as tail:
        try:
            cluster = _cluster(plan, worker, settings, visible, record.scratch)
        except BaseException as error:
            release_cluster(plan.name, record.scratch)
            if not isinstance(error, Exception):
                raise
            raise _start_error(error, plan, processes, "\n".join(tail)) from error
    try:
        apply_client_settings(plan.name, record.client)
        client = Client(cluster, direct_to_workers=record.direct_to_workers or None)
        cluster.remember_client(client)
        addresses = {"scheduler": cluster.scheduler_address, "dashboard": cluster.dashboard_link}
        records.write(replace(record, **addresses))
        cluster.begin_idle_timeout()
    except BaseException:
        cluster.close()
        raise
    return StartedCluster(client, cluster)


def _cluster(
    plan: ClusterPlan,
    worker: WorkerSpec,
    settings: CudaSettings,
    visible: Sequence[str],
    scratch: str,
) -> GuardedCudaCluster:
    from hyperplane.clusters.dask.cuda.cluster import CudaNanny, GuardedCudaCluster

    with user_settings():
        arguments = cluster_arguments(plan, worker, settings, visible, scratch)
    with dask.config.set({_UCX_SETTING: dask.config.get(_UCX_SETTING, default=None)}):
        return GuardedCudaCluster(worker_class=CudaNanny, **arguments)


def _reserve_record(
    plan: ClusterPlan, worker: WorkerSpec, settings: CudaSettings
) -> records.ClusterRecord:
    """Reserve and return the record of the cluster, with its scratch folder."""
    record = new_record(
        plan,
        workers=plan.nodes * worker.nprocs,
        threads=plan.nodes * worker.total_threads,
        ram_gb=bytes_to_gb(plan.nodes * worker.total_ram),
        client=client_settings(plan, settings),
        direct_to_workers=DaskOptions.of(plan.options).tuning.direct_to_workers,
    )
    try:
        with user_settings():
            spill_to = settings.local_directory or dask.config.get("temporary-directory", None)
        return records.reserve(record, spill_to)
    except OSError as error:
        raise StartFailed(plan.engine, str(error)) from error


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
        # The rest are arguments of LocalCluster and of the guards.
        "name": plan.name,
        "host": LOOPBACK,
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
        "idle_timeout": plan.idle_timeout,
        "import_meanwhile": (),
        "guard": {
            **drop_overridden({**tuning.server, **client_settings(plan, settings)}),
            **options.memory.as_config(),
        },
        "environ": environ,
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


def _start_error(error: Exception, plan: ClusterPlan, processes: int, tail: str) -> EngineError:
    causes: list[BaseException] = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None:
        causes.append(cause)
    if any(isinstance(cause, TimeoutError) for cause in causes):
        advice = "Raise timeout: CUDA contexts and libraries take seconds to load"
        return start_timeout(plan, None, advice, tail, processes)
    advice = (
        "nvidia-smi shows whether other processes hold GPU memory; a worker process runs the "
        'script again, so in a script move the call below `if __name__ == "__main__":`'
    )
    return StartFailed(plan.engine, f"{causes[-1]} (everything was closed again). {advice}", tail)
