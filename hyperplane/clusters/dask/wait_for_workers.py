"""Last steps of a remote start: connect a client, wait for all workers, compare versions."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from distributed import Client, Scheduler
from distributed.deploy.cluster import Cluster

from hyperplane.clusters import interrupts
from hyperplane.clusters.dask import recovery, versions
from hyperplane.clusters.dask.open_client import open_client
from hyperplane.clusters.dask.recovery import RecoverySettings
from hyperplane.clusters.dask.scheduler_silence import watch_scheduler
from hyperplane.clusters.dask.settings import apply_client_settings
from hyperplane.clusters.dask.start_errors import (
    StepTimeout,
    remaining,
    start_timeout,
    step_timeout,
)
from hyperplane.clusters.dask.worker_layout import layout_of
from hyperplane.clusters.start_progress import report_start
from hyperplane.core.errors import EngineError, StartFailed
from hyperplane.guard import memory_plugins
from hyperplane.guard.scheduler_unreachable import SchedulerUnreachable
from hyperplane.spec.dask_options import DaskOptions
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import RemoteSettings

#: Seconds between two calls of ``explain_wait``.
POLL_INTERVAL = 2.0

logger = logging.getLogger(__name__)

_NO_ANSWER = (OSError, TimeoutError, asyncio.TimeoutError)


def connect_client(
    cluster: Cluster,
    plan: ClusterPlan,
    settings: RemoteSettings,
    began: float,
    explain_wait: Callable[[], str],
) -> Client:
    """Connect a client to a starting cluster and return it when all workers have connected.

    The caller closes the cluster when this raises.

    Parameters
    ----------
    cluster : Cluster
        A cluster whose scheduler runs.
    plan : ClusterPlan
        Its plan.
    settings : RemoteSettings
        Settings of its engine.
    began : float
        When the start began, by ``time.monotonic``.
    explain_wait : callable
        Returns one line on why workers are missing; raises an EngineError if waiting is useless.

    Raises
    ------
    StartTimeout
        If workers are missing after the plan's timeout; the message ends with that line.
    StartFailed
        If package versions differ between this process and the cluster, or if the scheduler
        does not answer.
    """
    # Restored when the cluster closes.
    apply_client_settings(plan.name, DaskOptions.of(plan.options).tuning.client)
    client = None
    try:
        client = open_client(lambda: Client(cluster), cluster, remaining(plan, began))
        with interrupts.allow_interrupts():
            _wait_for_workers(client, plan, began, explain_wait)
            versions.check(client, plan.engine, settings, remaining(plan, began))
        # The watch first: Ctrl-C does not end a call that adds plugins.
        watch_scheduler(client, cluster, plan.name, plan.stall_timeout)
        # Ctrl-C is deferred: it could leave modules registered to be pickled by value, or the lock
        # of that held, for which the next start would wait forever.
        _add_plugins(client, cluster, plan)
    except BaseException as error:
        if client is not None:
            client.close()
        if isinstance(error, StepTimeout):
            advice = (
                "Check that this machine can open connections to it, and that no preload of "
                "clients (distributed.client.preload) blocks"
            )
            raise step_timeout(plan, error, advice) from error
        # StartTimeout is a TimeoutError too, but its message is complete.
        if isinstance(error, EngineError) or not isinstance(error, _NO_ANSWER):
            raise
        cause = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise StartFailed(
            plan.engine,
            f"the scheduler {cluster.scheduler_address} does not answer this machine ({cause}); "
            "everything was closed again. Check that this machine can open connections to it",
        ) from error
    return client


def _add_plugins(client: Client, cluster: Cluster, plan: ClusterPlan) -> None:
    """Add the plugins of the guard, unless the scheduler is in this process."""
    if isinstance(getattr(cluster, "scheduler", None), Scheduler):
        return  # the cluster object has added them
    try:
        # The retries first: they count a report before the explainer asks which tasks fail.
        recovery.register(client, RecoverySettings.of(plan, replaces_workers=plan.engine != "ssh"))
        memory_plugins.register(client, layout_of(plan))
    except SchedulerUnreachable:
        raise
    except Exception as error:  # noqa: BLE001 - the scheduler can raise any exception
        logger.warning(
            "cluster %s accepts no plugins (%s): failures for memory are not explained, and a "
            "cluster without progress is not detected",
            plan.name,
            error,
        )


def _wait_for_workers(
    client: Client, plan: ClusterPlan, began: float, explain_wait: Callable[[], str]
) -> None:
    deadline = began + plan.request.timeout
    while True:
        seconds = max(0.1, min(POLL_INTERVAL, deadline - time.monotonic()))
        # Not Client.wait_for_workers: its limit does not apply to a scheduler that does not answer.
        connected = client.sync(
            _poll_workers,
            client,
            plan.dask_workers,
            seconds,
            callback_timeout=seconds + remaining(plan, began),
        )
        if connected >= plan.dask_workers:
            return
        report_start(plan.name, connected)
        reason = explain_wait()
        report_start(plan.name, connected, reason)
        if time.monotonic() > deadline:
            raise start_timeout(plan, connected, reason)


async def _poll_workers(client: Any, count: int, seconds: float) -> int:
    """Return the number of workers that run when there are enough, or after some seconds."""
    end = time.monotonic() + seconds
    while True:
        workers = (await client.scheduler.identity(n_workers=-1))["workers"].values()
        running = len([worker for worker in workers if worker["status"] == "running"])
        if running >= count or time.monotonic() > end:
            return running
        await asyncio.sleep(0.1)
