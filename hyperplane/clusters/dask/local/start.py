"""Start the local cluster of a plan."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

from hyperplane.clusters.dask.cluster_guards import ClusterGuards
from hyperplane.clusters.dask.guarded_cluster import cluster_settings, scheduler_settings
from hyperplane.clusters.dask.local import forkserver, main_module
from hyperplane.clusters.dask.local.cluster import (
    GuardedLocalCluster,
    GuardedNanny,
    release_local_cluster,
)
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
from hyperplane.clusters.free_memory import MachineMemory
from hyperplane.core.errors import EngineError, StartFailed
from hyperplane.core.units import gb_to_bytes
from hyperplane.platforms.local import machine
from hyperplane.spec.dask_options import DaskOptions
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import LocalSettings


def start(plan: ClusterPlan, forked: bool) -> StartedCluster:
    """Start scheduler and workers on this machine; return when all workers have connected.

    Parameters
    ----------
    plan : ClusterPlan
        What to start.
    forked : bool
        Whether worker processes are forked from the forkserver, which this cluster has acquired;
        it is released when the cluster ends or does not start.

    Raises
    ------
    StartTimeout
        If the workers did not connect in time.
    StartFailed
        If the start failed otherwise. In both cases nothing is left running.
    """
    settings = cast(LocalSettings, plan.settings)
    began = time.monotonic()
    with log_tail() as tail, _pause_gc():
        try:
            record = reserve_local_record(plan)
        except BaseException:
            if forked:
                forkserver.release()
            raise
        try:
            environ = DaskOptions.of(plan.options).tuning.environ
            with user_settings():
                worker_config = _worker_config(plan, settings, record.scratch)
                environ = select_variables(environ, drop_overridden_variables(environ))
                scheduler_config = scheduler_settings(plan, settings)
                cluster_config = cluster_settings(settings)
                security = local_security(settings.security)
                preloads = worker_preloads()
            main = main_module.spawn_preparation() if forked else {}
        except BaseException:  # after this block the cluster object cleans up
            release_local_cluster(plan.name, record.scratch, forked)
            raise
        try:
            cluster = GuardedLocalCluster(
                name=plan.name,
                n_workers=plan.dask_workers,
                threads_per_worker=plan.worker.nthreads,
                memory_limit=plan.worker.ram_per_proc,
                host=LOOPBACK,
                security=security,
                dashboard_address=f"{LOOPBACK}:{plan.dashboard_port}",
                local_directory=record.scratch,
                death_timeout=plan.request.timeout,
                preload=preloads,
                env={**environ, **worker_variables()},
                # The dashboard: see lazy_dashboard.
                scheduler_kwargs={"dashboard": False, "local_directory": record.scratch},
                scheduler_config=scheduler_config,
                cluster_config=cluster_config,
                release=partial(release_local_cluster, plan.name, record.scratch, forked),
                deadline=began + plan.request.timeout,
                guards=ClusterGuards.of(
                    plan,
                    lends=True,
                    shared_ram=machine.free_ram(),
                    free_memory=MachineMemory.of(plan.name, settings.oom_free_memory),
                ),
                import_meanwhile=settings.preload if forked else (),
                worker_class=GuardedNanny,
                config=worker_config,
                forked=forked,
                main=main,
            )
        except Exception as error:
            raise _start_error(error, plan, began, forked, "\n".join(tail)) from error
        return connect_local_client(cluster, record, plan, began)


def _worker_config(plan: ClusterPlan, settings: LocalSettings, scratch: str) -> dict[str, Any]:
    """Return the Dask settings of the workers: tuning, memory policy, limit of spilled data."""
    free = machine.free_disk(str(Path(scratch).parent)) - gb_to_bytes(settings.reserve_disk_gb)
    options = DaskOptions.of(plan.options)
    return {
        **drop_overridden({**options.tuning.server, **options.tuning.client}),
        **options.memory.as_config(),
        **drop_overridden(
            {"distributed.worker.memory.max-spill": max(0, free) // plan.dask_workers}
        ),
    }


def _start_error(
    error: Exception, plan: ClusterPlan, began: float, forked: bool, tail: str
) -> EngineError:
    advice = "Raise timeout or ask for fewer processes"
    if isinstance(error, StepTimeout):
        return step_timeout(plan, error, advice, tail)
    if is_start_timeout(error, plan, began):
        return start_timeout(plan, None, advice, tail)
    message = f"{describe_cause(error, plan)} (everything was closed again)"
    if "daemonic" in message:
        message += "; start the cluster in the main program, not in a process of a pool"
    elif not forked:
        message += (
            "; a spawned worker process runs the script again: move the call below "
            '`if __name__ == "__main__":`'
        )
    return StartFailed("local", message, tail)


@contextmanager
def _pause_gc() -> Iterator[None]:
    """Pause the cyclic garbage collector during the block.

    The imports of a start create some hundred thousand permanent objects, and the collector would
    traverse them repeatedly for a fifth of the time. At the end all objects move to the oldest
    generation without being traversed; they remain collectable.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if gc.get_freeze_count() == 0:  # unfreeze would release objects the caller has frozen
                gc.freeze()
                gc.unfreeze()
            gc.enable()
