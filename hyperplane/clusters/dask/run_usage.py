"""The end of a run: ask the scheduler what it took, write the record, print the summary."""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any

from distributed import Scheduler
from tornado.ioloop import PeriodicCallback

from hyperplane.clusters import start_lines
from hyperplane.guard.run_recorder import RunRecorder
from hyperplane.guard.usage import UsageMonitor

logger = logging.getLogger(__name__)

#: Seconds that a scheduler on another machine may take to return what the cluster took.
USAGE_TIMEOUT = 5.0
#: Seconds between copies: a used budget ends a cluster ten seconds after its notice.
COPY_INTERVAL = 5.0
#: Seconds that writing a record may take: a home directory of NFS may never answer.
WRITE_TIMEOUT = 10.0


class UsageCopy:
    """Copy of what a cluster has taken, in case its scheduler ends before the cluster object.

    A scheduler in another process ends by itself after its idle timeout or budget.

    Parameters
    ----------
    cluster : Cluster
        The cluster object, whose event loop runs :attr:`timer`.
    """

    def __init__(self, cluster: Any) -> None:
        self._cluster = weakref.ref(cluster)
        self.usage: dict[str, Any] | None = None
        self.timer = PeriodicCallback(self._update, COPY_INTERVAL * 1000)

    async def _update(self) -> None:
        cluster = self._cluster()
        connection = None if cluster is None else cluster.scheduler_comm
        del cluster
        if connection is not None:
            with suppress(Exception):  # the next one may succeed
                self.usage = await _ask_usage(connection, None)


async def finish_record(
    recorder: RunRecorder,
    connection: Any,
    reason: str,
    scheduler: Scheduler | None = None,
    copy: UsageCopy | None = None,
) -> None:
    """Write the record of a cluster, and print the summary.

    It raises no Exception and ends in limited time: the cluster is closed in any case.

    Parameters
    ----------
    recorder : RunRecorder
        Writer of the record.
    connection : distributed.rpc or None
        Connection to the scheduler.
    reason : str
        Why the cluster closes.
    scheduler : Scheduler, optional
        The scheduler, if it runs in this process.
    copy : UsageCopy, optional
        What to record if the scheduler has ended.
    """
    try:
        usage = await _ask_usage(connection, scheduler, final=True)
    except Exception as error:  # noqa: BLE001 - the record has the plan then
        logger.info("the scheduler did not return what the cluster took: %r", error)
        usage = None
    if usage is None and copy is not None and copy.usage is not None:
        usage = copy.usage
        reason = usage.get("ending") or reason
    try:
        finished = _call_in_thread(partial(recorder.finish, usage, reason))
        summary = await asyncio.wait_for(asyncio.wrap_future(finished), WRITE_TIMEOUT)
        if summary:
            start_lines.print_run_summary(summary)
    except Exception:
        logger.warning("the run of %s may have no record", recorder.plan.name, exc_info=True)


async def _ask_usage(
    connection: Any, scheduler: Scheduler | None, final: bool = False
) -> dict[str, Any] | None:
    """Return what a cluster has taken; if ``final``, after asking its workers."""
    if scheduler is not None:
        monitor = scheduler.plugins.get(UsageMonitor.name)
        if not isinstance(monitor, UsageMonitor):
            return None
        await monitor.ask_workers()
        return monitor.report()
    if connection is None:
        return None
    ask = connection.hyperplane_final_usage if final else connection.hyperplane_usage
    return dict(await asyncio.wait_for(ask(), USAGE_TIMEOUT))


def _call_in_thread(function: Callable[[], str]) -> Future[str]:
    """Call a function in a daemon thread; Python would wait for one of a pool when it exits."""
    future: Future[str] = Future()
    future.set_running_or_notify_cancel()  # its result may come after its time limit

    def call() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # noqa: BLE001 - raised by the future
            future.set_exception(error)

    threading.Thread(target=call, name="hyperplane-record", daemon=True).start()
    return future
