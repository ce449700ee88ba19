"""End the tasks of a cluster that makes no progress, with an error that has the reason.

Dask waits forever when all workers are paused, when none is left and none returns, or when tasks
wait for tasks that have no thread. This guard looks at the state of the scheduler: a cluster has
stalled when no new task has finished for a time, while no worker that has tasks can work on them.
It first tries to free memory; then the tasks end with a ``ClusterStalled``.

A healthy worker may run one task for hours. A cluster without workers that were removed on purpose
(``scale(0)``), have not started yet or can be replaced by new jobs or pods has not stalled: Dask's
``no-workers-timeout`` applies. Adaptive scaling has some time to replace lost workers.

Remote schedulers receive this module pickled by value, so it imports only modules that are sent
with it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from distributed.core import Status
from distributed.diagnostics.plugin import SchedulerPlugin
from tornado.ioloop import PeriodicCallback

from hyperplane.guard import stall_causes
from hyperplane.guard.adaptive_requests import AdaptiveRequests
from hyperplane.guard.failing_tasks import (
    ErrorRecipe,
    explain_pause,
    fail_tasks,
    list_unfinished,
)
from hyperplane.guard.server_calls import ANSWER_LIMIT, run_in_server

if TYPE_CHECKING:
    from distributed import Nanny, Scheduler
    from distributed.scheduler import TaskState, WorkerState

logger = logging.getLogger(__name__)

#: Percent of one core below which a process counts as waiting; its event loop uses about 2.
_IDLE_CPU = 5.0
#: A task on a paused worker that uses no CPU may wait for a disk or for a server. It may do so
#: for this many timeouts.
_IDLE_TIMEOUTS = 5
#: Timeouts after which tasks that wait for a thread end in an adaptive cluster, which may have
#: reached its maximum; and after which a cluster without requests for its size is not adaptive any
#: more: Dask makes none while workers start.
_ADAPTIVE_TIMEOUTS = 5
#: Seconds that a worker which adaptive scaling starts may take to register.
_ADAPTIVE_START_SECONDS = 30.0
#: Processes that a nanny may start before a task finishes, and seconds before the next one.
_STARTS, _START_SECONDS = 3, 30.0
#: Name of the plugin OomRetry, which lets all workers of a node wait for some seconds.
_RETRY = "hyperplane-oom-retry"
#: Share of the memory of a process below which its results are few.
_RESULTS_SHARE = 0.5
#: Prefixes of the tasks of Dask's shuffles, which wait for other workers while they use no CPU.
_SHUFFLE_TASKS = {
    "hash-join-transfer",
    "hashjoinp2p",
    "p2pshuffle",
    "rechunk-merge-rechunk-transfer",
    "rechunk-p2p",
    "rechunk-transfer",
    "shuffle-barrier",
    "shuffle-p2p",
    "shuffle-transfer",
}
#: Most seconds that count between two checks. More pass if the process of the scheduler is stopped
#: or is busy, and the state that it knows is then old.
_LONGEST_STEP = 2.0


def read_worker_pid(dask_worker: Nanny) -> int | None:
    """Return the process ID of a nanny's worker; 0 between two processes, None if none follows.

    Dask calls it in the nanny, and passes the nanny as the argument ``dask_worker``.
    """
    if dask_worker.status not in (Status.starting, Status.running):
        return None
    return dask_worker.pid or 0


class WorkerStarts:
    """The processes that a nanny has started for a lost worker since a task has finished.

    Parameters
    ----------
    now : float
        Time of the first observation.
    """

    def __init__(self, now: float) -> None:
        self._pids: set[int] = set()
        #: When there was a process.
        self.seen_at = now

    def may_register(self, pid: int, now: float) -> bool:
        """Return whether the process with this ID, or after 0 the next one, may still register.

        Not if several have ended before. Seconds may pass between two processes on a busy machine.
        """
        if pid:
            self._pids.add(pid)
            self.seen_at = now
        return len(self._pids) <= _STARTS and now - self.seen_at <= _START_SECONDS


class StallGuard(SchedulerPlugin):
    """Scheduler plugin that ends the unfinished tasks of a stalled cluster.

    Parameters
    ----------
    timeout : float
        Seconds without a finished task, while no worker can work, after which tasks end.
    replaces_workers : bool
        Whether lost workers may be replaced by new ones, such as new jobs or pods; a cluster
        whose workers are all lost is then subject to Dask's ``no-workers-timeout``, and tasks
        that wait for a thread may run later.
    restarts : bool
        Whether paused workers restart that run nothing and whose memory has few results.
    """

    name = "hyperplane-stall-guard"

    def __init__(
        self,
        timeout: float,
        *,
        replaces_workers: bool = False,
        restarts: bool = False,
    ) -> None:
        self.timeout, self.restarts = timeout, restarts
        self.replaces_workers = replaces_workers
        self._adaptive = AdaptiveRequests()
        #: Seconds that the checks have counted; all times are by this clock.
        self._now, self._checked_at = 0.0, time.monotonic()
        self._progress_at = self._changed_at = 0.0
        self._stalled_since: float | None = None
        self._relieved = False
        self._restarted_at = -1.0
        self._finished: set[Any] = set()
        self._names: dict[str, tuple[Any, str | None]] = {}
        self._lost: dict[Any, str | None] = {}
        self._starts: dict[str, WorkerStarts] = {}
        # A worker that is closed on purpose reports it first; one that is killed does not.
        self._retired: set[str] = set()
        self._unhealthy_at: dict[str, float] = {}
        self._idle_since: dict[str, float] = {}

    async def start(self, scheduler: Scheduler) -> None:
        """Start the checks, one a second, or eight in a timeout of less than eight seconds."""
        self.scheduler = scheduler
        for address in scheduler.workers:
            self.add_worker(scheduler, address)
        self._adaptive.observe(scheduler)
        self._watch = PeriodicCallback(self.check_progress, min(1.0, self.timeout / 8) * 1000)
        self._watch.start()

    async def close(self) -> None:
        """Stop the checks."""
        self._watch.stop()

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """Remember the worker's name and nanny; a restarted worker is not lost any more."""
        state = scheduler.workers[worker]
        self._changed_at = self._now
        self._names[worker] = state.name, state.nanny
        if (starts := self._starts.get(state.nanny or "")) is not None:
            starts.seen_at = self._now
        if state.name in self._lost:
            del self._lost[state.name]
            self._unhealthy_at[worker] = self._now

    def log_event(self, topic: str, msg: Any) -> None:
        """Remember the workers that were lost, which Dask tells only in this event."""
        action = msg.get("action") if isinstance(msg, Mapping) else None
        if action == "worker-status-change" and msg["status"].startswith("closing"):
            self._retired.add(topic)
        if action != "remove-worker" or topic != "all":
            return
        address = msg["worker"]
        name, nanny = self._names.pop(address, (address, None))
        self._unhealthy_at.pop(address, None)
        self._idle_since.pop(address, None)
        if msg["expected"] or address in self._retired:
            self._lost.pop(name, None)
            if self._is_adaptive():
                self._lost.clear()  # it has more workers than it wants without them
        else:
            self._lost[name] = nanny
        self._retired.discard(address)

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Note the time of a task that finishes for the first time, or ends with an error."""
        if finish == "memory" and key not in self._finished:
            self._finished.add(key)
            self._progress_at = self._now
            self._starts.clear()
        elif finish == "erred":
            self._progress_at = self._now
        elif finish == "forgotten":
            self._finished.discard(key)

    async def check_progress(self) -> None:
        """Act, and later end the tasks, if the cluster makes no progress."""
        now = self._advance_clock()
        self._update_health(now)
        if not self._has_tasks():
            self._progress_at = now
        if not self._is_blocked(now):
            self._stalled_since, self._relieved = None, False
            await self._check_deadlock(now)
            return
        if self._stalled_since is None:
            self._stalled_since = now
        seconds = now - max(self._stalled_since, self._progress_at)
        if seconds > self.timeout / 2 and not self._relieved:
            self._relieved = True
            await self._release_memory()
        elif seconds > self.timeout and not await self._restart_paused():
            await self._end_blocked(seconds)

    def _advance_clock(self) -> float:
        moment = time.monotonic()
        self._now += min(moment - self._checked_at, _LONGEST_STEP)
        self._checked_at = moment
        return self._now

    def _update_health(self, now: float) -> None:
        for address, worker in self.scheduler.workers.items():
            if worker.status == Status.paused:
                self._unhealthy_at[address] = now
            if worker.metrics.get("cpu", 0) >= _IDLE_CPU:
                self._idle_since.pop(address, None)
            else:
                self._idle_since.setdefault(address, now)

    def _has_tasks(self) -> bool:
        scheduler = self.scheduler
        return bool(scheduler.queued or scheduler.unrunnable) or any(
            worker.processing for worker in scheduler.workers.values()
        )

    def _is_blocked(self, now: float) -> bool:
        """Return whether tasks wait, and no worker that has tasks can work on them."""
        scheduler = self.scheduler
        workers = list(scheduler.workers.values())
        if self._is_lending():
            return False
        if not workers:
            waiting = scheduler.queued or scheduler.unrunnable
            return bool(waiting and self._lost and not self.replaces_workers)
        if any(worker.processing and self._is_working(worker, now) for worker in workers):
            return False
        unhealthy = {each.address for each in workers if not self._is_healthy(each, now)}
        if any(worker.processing for worker in workers if worker.address in unhealthy):
            return True
        if len(unhealthy) == len(workers):
            return bool(scheduler.queued or scheduler.unrunnable)
        restricted = (task.worker_restrictions or set() for task in scheduler.unrunnable)
        return any(names and names <= unhealthy for names in restricted)

    def _is_adaptive(self) -> bool:
        """Return whether other workers may come by ``Cluster.adapt``."""
        return self._adaptive.are_regular(_ADAPTIVE_TIMEOUTS * self.timeout)

    def _is_lending(self) -> bool:
        """Return whether the workers of a node wait until one of them has their memory."""
        retry: Any = self.scheduler.plugins.get(_RETRY)
        return retry is not None and bool(retry.is_preparing)

    def _is_healthy(self, worker: WorkerState, now: float) -> bool:
        """Return whether a worker runs and was neither paused nor restarted lately."""
        unhealthy_at = self._unhealthy_at.get(worker.address)
        return unhealthy_at is None or now - unhealthy_at > self.timeout / 4

    def _is_working(self, worker: WorkerState, now: float) -> bool:
        """Return whether a worker can progress; a paused one completes what it runs."""
        if worker.status != Status.paused:
            return self._is_healthy(worker, now)
        running = [
            task
            for task in worker.executing
            if task.processing_on is worker and task.prefix.name not in _SHUFFLE_TASKS
        ]
        idle = now - self._idle_since.get(worker.address, now)
        if not running:
            return bool(worker.executing) and idle == 0
        return idle < (_IDLE_TIMEOUTS - 1) * self.timeout

    async def _release_memory(self) -> None:
        paused = [each for each in self.scheduler.workers.values() if each.status == Status.paused]
        for worker in paused:
            logger.warning("worker %s is paused and idle: its results move to disk", worker.name)
            await run_in_server(self.scheduler, worker.address, stall_causes.release_memory)

    async def _restart_paused(self) -> bool:
        """Restart workers whose memory is neither results nor tasks; return whether any was.

        Not again before another task has finished, because memory would then fill up again.
        """
        if not self.restarts or self._progress_at <= self._restarted_at:
            return False
        full = [
            worker.address
            for worker in self.scheduler.workers.values()
            if worker.status == Status.paused
            and worker.nanny  # starts it again
            and not worker.executing
            and not worker.actors
            and worker.memory.managed < _RESULTS_SHARE * worker.memory.process
            and all(task.run_spec is not None for task in worker.has_what)
        ]
        if not full:
            return False
        self._restarted_at = self._now
        self._stalled_since = None
        logger.warning("workers are paused and idle, and restart to free their memory: %s", full)
        await self.scheduler.restart_workers(
            full, wait_for_workers=False, on_error="return", stimulus_id=f"stalled-{time.time()}"
        )
        return True

    async def _end_blocked(self, seconds: float) -> None:
        scheduler = self.scheduler
        tasks = list_unfinished(scheduler)
        if any(
            worker.status == Status.init or (worker.processing and worker in scheduler.running)
            for worker in scheduler.workers.values()
        ):
            return  # It has just started again, and tasks may finish.
        if any(worker.status == Status.paused for worker in scheduler.workers.values()):
            message = stall_causes.describe_paused(scheduler, len(tasks), seconds)
            self._fail(tasks, "memory", message, seconds)
        if scheduler.workers:
            return  # Those that are not paused start or close.
        if self._is_adaptive() and seconds < self.timeout + _ADAPTIVE_START_SECONDS:
            return
        nannies = [nanny for nanny in self._lost.values() if nanny]
        calls = (run_in_server(scheduler, nanny, read_worker_pid) for nanny in nannies)
        pids = await asyncio.gather(*calls)
        # All are noted, also after the first that may register.
        may_register = list(map(self._may_register, nannies, pids))
        if any(may_register):
            return  # A worker is starting: Dask's no-workers-timeout applies.
        if not scheduler.workers:
            lost = [str(name) for name in self._lost]
            message = stall_causes.describe_lost(scheduler, len(tasks), seconds, lost)
            self._fail(tasks, "lost", message, seconds)

    def _may_register(self, nanny: str, pid: int | None) -> bool:
        """Return whether a lost worker may come back, by the answer of its nanny."""
        if pid is None:
            return False
        starts = self._starts.setdefault(nanny, WorkerStarts(self._now))
        return starts.may_register(pid, self._now)

    async def _check_deadlock(self, now: float) -> None:
        """End tasks that running tasks wait for, if these use all threads.

        Not while other workers may come, which would run the tasks.
        """
        scheduler = self.scheduler
        seconds = now - max(self._progress_at, self._changed_at)
        if seconds < self.timeout * (_ADAPTIVE_TIMEOUTS if self._is_adaptive() else 1):
            return
        if self._lost or self.replaces_workers or self._is_lending():
            return
        busy = [worker for worker in scheduler.workers.values() if worker.executing]
        if not busy or any(
            now - self._idle_since.get(worker.address, now) < self.timeout / 2 for worker in busy
        ):
            return
        waited = stall_causes.find_waited_tasks(scheduler)
        if waited and await stall_causes.do_all_wait(scheduler, ANSWER_LIMIT):
            message = stall_causes.describe_deadlock(waited, seconds)
            self._fail(waited, "deadlock", message, seconds)

    def _fail(self, tasks: list[TaskState], cause: str, message: str, seconds: float) -> None:
        logger.error("tasks end with ClusterStalled: %s", message)
        error = ErrorRecipe(
            "ClusterStalled", message, cause=cause, tasks=len(tasks), seconds=seconds
        )

        def explain(task: TaskState) -> bytes | None:
            return explain_pause(self.scheduler, task) if cause == "memory" else None

        fail_tasks(self.scheduler, tasks, error, f"stalled-{time.time()}", explain)
        self._stalled_since, self._relieved = None, False
