"""Keep Dask from killing busy workers that send no heartbeat.

A worker sends no heartbeat while a call into C holds the GIL. Dask's ``worker-ttl`` cannot tell
such a worker from a dead one: it kills the process with its results and runs the task again, which
ends the same way. The nanny is a separate process or thread and can inspect the worker's process
meanwhile.

Remote schedulers receive this module as source text or pickled by value, so it imports no other
module of this package.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import cloudpickle
import psutil
from distributed import scheduler as dask_scheduler
from distributed.core import rpc
from distributed.diagnostics.plugin import SchedulerPlugin
from tornado.ioloop import PeriodicCallback

if TYPE_CHECKING:
    from distributed import Nanny, Scheduler
    from distributed.scheduler import WorkerState

logger = logging.getLogger(__name__)

#: Seconds without a heartbeat allowed for a process that runs but uses no CPU, which is Dask's
#: default ``worker-ttl``. It may wait for a disk while it holds the GIL, or be deadlocked.
WAITING_LIMIT = 300.0
#: Fraction of one core that counts as busy. Threads that wait for the GIL use less than 0.01.
BUSY_SHARE = 0.05
#: Seconds that a nanny may take to answer.
ANSWER_LIMIT = 5.0
_STOPPED = {psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP, psutil.STATUS_ZOMBIE}


@dataclass
class SilentWorker:
    """State of a worker that sends no heartbeat.

    Parameters
    ----------
    renewed : float
        The time that this module has set as the worker's last heartbeat.
    checked : float
        Time of the last check of its process.
    cpu : float
        CPU seconds of the process at the last check.
    idle_since : float
        Time since when the process has used no CPU.
    """

    renewed: float
    checked: float
    cpu: float
    idle_since: float


def process_activity(dask_worker: Nanny) -> tuple[int, float] | None:
    """Return process ID and CPU seconds of a nanny's worker, or None if it cannot run.

    Dask calls it in the nanny, and passes the nanny as the argument ``dask_worker``.
    """
    pid = dask_worker.pid
    if pid is None:
        return None
    try:
        process = psutil.Process(pid)
        if process.status() in _STOPPED:
            return None
        times = process.cpu_times()
    except psutil.Error:
        return None
    return pid, times.user + times.system


def _pickle_by_value(function: Callable[..., Any]) -> bytes:
    """Pickle a function with its code, so that the receiver does not have to import this module."""
    module = sys.modules.get(function.__module__)
    if module is not None:  # None in a process that received this module by value
        try:
            from hyperplane.core.by_value import pickled_by_value
        except ImportError:  # without this package nothing else pickles by value
            cloudpickle.register_pickle_by_value(module)
        else:
            with pickled_by_value(module):
                return cast(bytes, cloudpickle.dumps(function))
    return cast(bytes, cloudpickle.dumps(function))


class BusyWorkerGuard(SchedulerPlugin):
    """Scheduler plugin that renews the time-to-live of silent workers whose process is busy.

    A process that uses CPU is renewed for as long as it does. One that runs but waits is renewed
    for ``WAITING_LIMIT`` seconds. One that is stopped or gone, or whose nanny does not answer, is
    subject to Dask's ``worker-ttl``.
    """

    name = "hyperplane-busy-worker-guard"

    def __init__(self) -> None:
        self._silent: dict[str, SilentWorker] = {}
        self._watch: PeriodicCallback | None = None

    async def start(self, scheduler: Scheduler) -> None:
        """Start to check silent workers, several times in each time-to-live."""
        if self._watch is not None:  # a scheduler also starts the plugins that its preloads added
            return
        self.scheduler = scheduler
        if scheduler.worker_ttl:
            self._watch = PeriodicCallback(
                self.check_silent_workers, min(scheduler.worker_ttl / 4, 15.0) * 1000
            )
            self._watch.start()
            check = scheduler.periodic_callbacks["worker-ttl"]
            check.callback = self._renew_before(check.callback)

    def _renew_before(
        self, check: Callable[[], Awaitable[None] | None]
    ) -> Callable[[], Awaitable[None]]:
        """Return Dask's check of the time-to-live, preceded by a renewal of busy workers.

        After the scheduler's process was stopped (Ctrl-Z and ``fg``, a suspended machine), Dask's
        check is due at once, and all workers are silent because no heartbeat was read.
        """

        async def renew_and_check() -> None:
            await self.check_silent_workers()
            checking = check()
            if checking is not None:
                await checking

        return renew_and_check

    async def close(self) -> None:
        """Stop the checks."""
        if self._watch is not None:
            self._watch.stop()

    async def check_silent_workers(self) -> None:
        """Ask the nannies of silent workers about their processes, and renew the busy workers."""
        workers = self.scheduler.workers
        ttl = max(
            self.scheduler.worker_ttl or 0, 10 * dask_scheduler.heartbeat_interval(len(workers))
        )
        now = time.time()
        silent = {
            worker: worker.last_seen
            for worker in workers.values()
            if worker.nanny and now - worker.last_seen > ttl / 3
        }
        self._silent = {
            address: silence
            for address, silence in self._silent.items()
            if address in workers and workers[address].last_seen == silence.renewed
        }
        answers = await asyncio.gather(*(self._activity(worker) for worker in silent))
        for (worker, seen), activity in zip(silent.items(), answers, strict=True):
            has_reported = worker.last_seen != seen  # a heartbeat came while its nanny was asked
            if activity is not None and not has_reported and workers.get(worker.address) is worker:
                self._renew_if_busy(worker, *activity)

    async def _activity(self, worker: WorkerState) -> tuple[int, float] | None:
        try:
            async with rpc(worker.nanny, connection_args=self.scheduler.connection_args) as nanny:
                call = nanny.run(function=_pickle_by_value(process_activity))
                reply = await asyncio.wait_for(call, ANSWER_LIMIT)
        except Exception:  # noqa: BLE001 - without a readable answer the worker is not known to be busy
            return None
        result: tuple[int, float] | None = reply.get("result")
        return result

    def _renew_if_busy(self, worker: WorkerState, pid: int, cpu: float) -> None:
        now = time.time()
        silence = self._silent.get(worker.address)
        if silence is None or silence.renewed != worker.last_seen:
            since = worker.last_seen
            silence = SilentWorker(renewed=since, checked=now, cpu=cpu, idle_since=since)
            self._silent[worker.address] = silence
            logger.warning(
                "worker %s has sent no heartbeat for %.0f s, but its process %d runs: "
                "a task holds the interpreter's lock (GIL); the worker is not restarted",
                worker.address,
                now - since,
                pid,
            )
        else:
            if cpu - silence.cpu >= BUSY_SHARE * (now - silence.checked):
                silence.idle_since = now
            silence.checked, silence.cpu = now, cpu
        if now - silence.idle_since < WAITING_LIMIT:
            worker.last_seen = silence.renewed = now


async def dask_setup(scheduler: Scheduler) -> None:
    """Add the guard to a scheduler that loads this module as a preload."""
    guard = BusyWorkerGuard()
    scheduler.add_plugin(guard)
    await guard.start(scheduler)
