"""Close what an interrupted start of a Dask cluster has begun, also if its event loop is blocked.

Dask closes a cluster whose start raises an Exception, but it waits for workers that are starting
and for a scheduler that does not answer. Each cluster here is a ``GuardedCluster``, which imports
this module.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Awaitable
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any

from distributed import Scheduler
from distributed.core import Status
from distributed.deploy.cluster import Cluster

from hyperplane.clusters.dask.interruptible_start import CLOSE_SECONDS
from hyperplane.core.units import plural

#: Seconds that each step of the cleanup may take, except that of the workers.
STEP_SECONDS = 20.0
#: Number of these steps.
_STEPS = 5

logger = logging.getLogger(__name__)


def describe_wait(cluster: Any) -> str:
    """Return what has not happened yet in a start, for the error of its time limit."""
    if cluster.scheduler is None or cluster.scheduler_comm is None:
        return f"{cluster.before_scheduler}the scheduler did not start"
    if cluster.status == Status.starting:
        return f"the scheduler at {cluster.scheduler_address} did not answer this process"
    if not cluster.has_guards:
        return f"the plugins of the scheduler at {cluster.scheduler_address} did not start"
    noun, verb = cluster.start_of_worker
    ready = sum(worker.status == Status.running for worker in list(cluster._created))
    return f"{ready} of {plural(len(cluster.worker_spec), noun)} {verb}"


def abandon(cluster: Any) -> None:
    """Close a cluster whose start failed after its workers had connected."""
    if cluster.responds():
        with suppress(TimeoutError):
            cluster.close(timeout=CLOSE_SECONDS)
            return
    end(cluster)
    cluster.release()


def end(cluster: Any) -> None:
    """Close a cluster that is still starting, unless Dask has closed it, and stop its event loop.

    If the event loop is blocked, worker processes of this machine are killed and ports are closed
    without it; the rest is closed when the loop continues.
    """
    runner = getattr(cluster, "_loop_runner", None)  # None if __init__ failed before it
    if runner is None or not runner.is_started():
        return
    loop = cluster.loop.asyncio_loop
    if getattr(cluster, "status", None) == Status.closed:
        _stop_loop(cluster)
        return
    work = _close(cluster)
    try:
        closing = asyncio.run_coroutine_threadsafe(work, loop)
    except RuntimeError:  # the event loop has ended
        work.close()
        _stop_loop(cluster)
        return
    responds = cluster.responds()
    try:
        _wait(closing, loop, cluster.end_workers_seconds + _STEPS * STEP_SECONDS if responds else 0)
    finally:  # after several Ctrl-C, too
        if closing.done():
            _stop_loop(cluster)
        else:
            _stop_without(cluster, closing, loop, responds)


def _stop_loop(cluster: Any) -> None:
    """Stop the event loop of a cluster; its errors do not replace that of the start.

    Its thread waits for functions in other threads, such as those of ``asyncio.to_thread``, and for
    coroutines that go on when they are cancelled. It ends with them, or with the program.
    """
    try:
        cluster._loop_runner.stop()
    except Exception as error:  # noqa: BLE001 - what has ended the loop
        logger.warning(
            "cluster %s: its event loop did not end: %s",
            cluster.name,
            "a function of it still runs" if isinstance(error, TimeoutError) else repr(error),
        )


def _wait(closing: Future[None], loop: asyncio.AbstractEventLoop, seconds: float) -> None:
    """Wait until a cluster is closed, at most some seconds, or until its event loop has ended."""
    end = time.monotonic() + seconds
    while not closing.done() and loop.is_running() and time.monotonic() < end:
        wait([closing], timeout=1)


def _stop_without(
    cluster: Any, closing: Future[None], loop: asyncio.AbstractEventLoop, responds: bool
) -> None:
    """Stop what an unfinished cleanup has left, without the event loop if it does not respond."""
    logger.warning(
        "cluster %s: its start could not be closed, because the event loop of this process %s; its "
        "processes on this machine were ended and its ports closed without it",
        cluster.name,
        "does not close it" if responds else "is blocked",
    )
    cluster.shutdown_on_close = False  # Dask would wait for it at the end of the program
    cluster.shutdown_scheduler = False  # nor does it answer any more
    cluster.kill_workers()
    for server in [cluster.scheduler, *list(cluster._created)]:
        _stop_listening(server, loop if responds and loop.is_running() else None)

    def stop_later() -> None:
        _wait(closing, loop, math.inf)
        _stop_loop(cluster)

    threading.Thread(target=stop_later, name="hyperplane-failed-start", daemon=True).start()


async def _close(cluster: Any) -> None:
    """Close a cluster that is still starting; Dask's ``_close`` closes only a running one."""
    # The starts of workers fail now, and nothing retrieves their exceptions.
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    # Set if Ctrl-C cancelled the task before it began; Dask's _close would wait for that task.
    cluster._correct_state_waiting = None
    if cluster.status == Status.closing:  # a close that was given up, for which the next would wait
        cluster.status = Status.failed
    await _try(cluster.end_workers(), cluster.end_workers_seconds)
    if cluster.status == Status.starting:
        await _close_scheduler(cluster)
    await _try(cluster._close())
    if cluster.status != Status.closed:  # it waits for an answer of the scheduler
        await _close_scheduler(cluster)
        await _try(Cluster._close(cluster))
    elif isinstance(cluster.scheduler, Scheduler):
        await _try(cluster.scheduler.close())
    for server in [cluster.scheduler, *list(cluster._created)]:  # if they were not closed in time
        _stop_listening(server, None)


async def _close_scheduler(cluster: Any) -> None:
    if cluster.scheduler is not None:
        await _try(cluster.scheduler.close())
    if cluster.scheduler_comm is not None:
        await _try(cluster.scheduler_comm.close_rpc())


async def _try(step: Awaitable[Any], seconds: float | None = None) -> None:
    """Wait for a step of the cleanup; the next ones follow in any case."""
    with suppress(Exception):
        await asyncio.wait_for(step, STEP_SECONDS if seconds is None else seconds)


def _stop_listening(server: Any, loop: asyncio.AbstractEventLoop | None) -> None:
    """Close the ports of a Dask server, in its event loop, or here if that is blocked."""
    stops = [server.stop] if hasattr(server, "listeners") else []
    if isinstance(server, Scheduler):
        stops.append(server.http_server.stop)
    for stop in stops:
        with suppress(Exception):
            if loop is None:
                stop()
            else:
                loop.call_soon_threadsafe(stop)
