"""Start the local cluster of a plan."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import dask.config
from distributed import Client

from hyperplane.clusters import records
from hyperplane.clusters.dask.cluster_records import new_record
from hyperplane.clusters.dask.guarded_cluster import cluster_settings, scheduler_settings
from hyperplane.clusters.dask.local import forkserver, main_module
from hyperplane.clusters.dask.local.cluster import (
    GuardedLocalCluster,
    GuardedNanny,
    release_local_cluster,
)
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
from hyperplane.core.errors import EngineError, StartFailed
from hyperplane.core.units import gb_to_bytes
from hyperplane.platforms.local import machine
from hyperplane.spec.dask_options import DaskOptions
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import LocalSettings


def start(plan: ClusterPlan) -> StartedCluster:
    """Start scheduler and workers on this machine; return when all workers have connected.

    Raises
    ------
    StartTimeout
        When the workers did not connect in time.
    StartFailed
        When the start failed otherwise. In both cases nothing is left running.
    """
    settings = cast(LocalSettings, plan.settings)
    with log_tail() as tail, _pause_gc():
        record = _reserve_record(plan)
        forked = False
        try:
            preload = settings.start_method == "preload"
            forked = preload and forkserver.acquire(settings.preload, _pre_spawn())
            environ = DaskOptions.of(plan.options).tuning.environ
            with user_settings():
                worker_config = _worker_config(plan, settings, record.scratch)
                environ = select_variables(environ, drop_overridden_variables(environ))
                scheduler_config = scheduler_settings(plan, settings)
                cluster_config = cluster_settings(settings)
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
                dashboard_address=f"{LOOPBACK}:{plan.dashboard_port}",
                local_directory=record.scratch,
                death_timeout=plan.request.timeout,
                preload=preloads,
                env=environ,
                # The dashboard: see lazy_dashboard.
                scheduler_kwargs={"dashboard": False, "local_directory": record.scratch},
                scheduler_config=scheduler_config,
                cluster_config=cluster_config,
                release=partial(release_local_cluster, plan.name, record.scratch, forked),
                idle_timeout=plan.idle_timeout,
                import_meanwhile=settings.preload if forked else (),
                worker_class=GuardedNanny,
                config=worker_config,
                forked=forked,
                main=main,
            )
        except Exception as error:
            raise _start_error(error, plan, forked, "\n".join(tail)) from error
        return _with_client(cluster, record, plan)


def _reserve_record(plan: ClusterPlan) -> records.ClusterRecord:
    tuning = DaskOptions.of(plan.options).tuning
    record = new_record(plan, direct_to_workers=tuning.direct_to_workers)
    try:
        with user_settings():
            spill_to = dask.config.get("temporary-directory", default=None)
        return records.reserve(record, spill_to)
    except OSError as error:
        raise StartFailed("local", str(error)) from error


def _with_client(
    cluster: GuardedLocalCluster, record: records.ClusterRecord, plan: ClusterPlan
) -> StartedCluster:
    try:
        tuning = DaskOptions.of(plan.options).tuning
        apply_client_settings(plan.name, tuning.client)
        client = Client(cluster, direct_to_workers=tuning.direct_to_workers or None)
        cluster.remember_client(client)
        addresses = {"scheduler": cluster.scheduler_address, "dashboard": cluster.dashboard_link}
        records.write(replace(record, **addresses))
        cluster.begin_idle_timeout()
    except BaseException:
        cluster.close()
        raise
    return StartedCluster(client, cluster)


def _worker_config(plan: ClusterPlan, settings: LocalSettings, scratch: str) -> dict[str, Any]:
    """Return the Dask settings of the workers: tuning, memory policy and the limit of the disk."""
    free = machine.free_disk(str(Path(scratch).parent)) - gb_to_bytes(settings.reserve_disk_gb)
    options = DaskOptions.of(plan.options)
    return {
        **drop_overridden({**options.tuning.server, **options.tuning.client}),
        **options.memory.as_config(),
        **drop_overridden(
            {"distributed.worker.memory.max-spill": max(0, free) // plan.dask_workers}
        ),
    }


def _pre_spawn() -> dict[str, str]:
    """Return Dask's variables for starting worker processes; the user's have priority."""
    configured = dask.config.get("distributed.nanny.pre-spawn-environ")
    chosen = {
        name: os.environ.get(name, str(value))
        for name, value in configured.items()
        if value is not None
    }
    # The value that Dask uses, so that hashes of text agree between worker processes.
    if chosen.get("PYTHONHASHSEED") in (None, "0"):
        chosen["PYTHONHASHSEED"] = "6640"
    return chosen


def _start_error(error: Exception, plan: ClusterPlan, forked: bool, tail: str) -> EngineError:
    causes = [error]
    while isinstance(cause := causes[-1].__cause__ or causes[-1].__context__, Exception):
        causes.append(cause)
    if any(isinstance(cause, TimeoutError) for cause in causes):
        return start_timeout(plan, None, "Raise timeout or ask for fewer processes", tail)
    message = f"{causes[-1]} (everything was closed again)"
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
