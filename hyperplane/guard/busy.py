"""Keep workers that are busy from being taken for dead.

A worker sends no heartbeat while a call into C holds the interpreter's lock. Dask's
``worker-ttl`` cannot tell such a worker from a dead one: it kills the process with its results
and runs the task again, which ends the same way. The nanny is a separate process or thread, so
it can look at the worker's process meanwhile.

Schedulers elsewhere get this module by value, as text or pickled: it uses no other one of this
package.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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

#: Seconds without a heartbeat that a process gets which runs but uses no processor: the
#: ``worker-ttl`` that Dask ships. It may wait for a disk with the lock held, or be deadlocked.
WAITING_LIMIT = 300.0
#: Part of one processor that counts as busy. Threads that wait for the lock use below 0.01.
BUSY_SHARE = 0.05
#: Seconds that a nanny has to answer.
ANSWER_LIMIT = 5.0
_STOPPED = {psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP, psutil.STATUS_ZOMBIE}


@dataclass
class SilentWorker:
    """A worker's time without a heartbeat.

    Parameters
    ----------
    renewed : float
        What this module has set as the time of the worker's last heartbeat.
    looked : float
        Time of the last look at its process.
    cpu : float
        Processor seconds of the process at that look.
    idle_since : float
        Time since when the process has used no processor.
    """

    renewed: float
    looked: float
    cpu: float
    idle_since: float


def process_activity(dask_worker: Nanny) -> tuple[int, float] | None:
    """Process number and processor seconds of a nanny's worker, None if it cannot run.

    Runs in the nanny; Dask passes it under this name.
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


def _by_value(function: Callable[..., Any]) -> bytes:
    """A function pickled with its code: where it runs, this module need not be."""
    module = sys.modules.get(function.__module__)
    if module is not None:  # else it came here by value itself, and goes on so
        cloudpickle.register_pickle_by_value(module)
    try:
        pickled: bytes = cloudpickle.dumps(function)
    finally:
        if module is not None:
            cloudpickle.unregister_pickle_by_value(module)
    return pickled


class BusyWorkerGuard(SchedulerPlugin):
    """Renew the time-to-live of silent workers whose process is at work.

    A process that uses a processor is left alone for as long as it does. One that runs but waits
    gets ``WAITING_LIMIT``. One that is stopped or gone, or whose nanny does not answer, is left to
    Dask's ``worker-ttl``.
    """

    name = "hyperplane-busy-worker-guard"

    def __init__(self) -> None:
        self._silent: dict[str, SilentWorker] = {}

    async def start(self, scheduler: Scheduler) -> None:
        """Look at silent workers several times in each time-to-live."""
        self.scheduler = scheduler
        self._watch: PeriodicCallback | None = None
        if scheduler.worker_ttl:
            self._watch = PeriodicCallback(self.look, min(scheduler.worker_ttl / 4, 15.0) * 1000)
            self._watch.start()
            check = scheduler.periodic_callbacks["worker-ttl"]
            check.callback = self._with_look_before(check.callback)

    def _with_look_before(
        self, check: Callable[[], Awaitable[None] | None]
    ) -> Callable[[], Awaitable[None]]:
        """Return Dask's check of the time-to-live with a look at silent workers before it.

        After the scheduler's own process was stopped (Ctrl-Z and ``fg``, a suspended machine), the
        check is due at once, and all workers are silent because no heartbeat was read.
        """

        async def check_after_look() -> None:
            await self.look()
            checking = check()
            if checking is not None:
                await checking

        return check_after_look

    async def close(self) -> None:
        """Stop looking."""
        if self._watch is not None:
            self._watch.stop()

    async def look(self) -> None:
        """Ask the nannies of silent workers, and renew the workers that are at work."""
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
            heard = worker.last_seen != seen  # while its nanny was asked
            if activity is not None and not heard and workers.get(worker.address) is worker:
                self._judge(worker, *activity)

    async def _activity(self, worker: WorkerState) -> tuple[int, float] | None:
        try:
            async with rpc(worker.nanny, connection_args=self.scheduler.connection_args) as nanny:
                call = nanny.run(function=_by_value(process_activity))
                reply = await asyncio.wait_for(call, ANSWER_LIMIT)
        except Exception:  # noqa: BLE001 - no answer, or none that can be read: not known to be busy
            return None
        result: tuple[int, float] | None = reply.get("result")
        return result

    def _judge(self, worker: WorkerState, pid: int, cpu: float) -> None:
        now = time.time()
        silence = self._silent.get(worker.address)
        if silence is None or silence.renewed != worker.last_seen:
            since = worker.last_seen
            silence = SilentWorker(renewed=since, looked=now, cpu=cpu, idle_since=since)
            self._silent[worker.address] = silence
            logger.warning(
                "worker %s has sent no heartbeat for %.0f s, but its process %d runs: "
                "a task holds the interpreter's lock (GIL); the worker is left at work",
                worker.address,
                now - since,
                pid,
            )
        else:
            if cpu - silence.cpu >= BUSY_SHARE * (now - silence.looked):
                silence.idle_since = now
            silence.looked, silence.cpu = now, cpu
        if now - silence.idle_since < WAITING_LIMIT:
            worker.last_seen = silence.renewed = now


async def dask_setup(scheduler: Scheduler) -> None:
    """Guard the workers of a scheduler that reads this module as a preload."""
    guard = BusyWorkerGuard()
    scheduler.add_plugin(guard)
    await guard.start(scheduler)
