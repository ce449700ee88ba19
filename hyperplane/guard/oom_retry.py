"""Run tasks again whose worker was ended for its memory, in a way that may fit.

- A worker that would be ended gets a larger limit, if the machine has free memory
  (``memory_growth``), unless several tasks run together.
- If several tasks ran together, the worker gets one thread, so that they run one after the other.
- Otherwise a task that ran alone and exceeds the limit runs again on one worker with the memory of
  all workers on its node, if it may fit there.

Dask itself runs tasks of a lost worker again, without any change. A task is tried three times.
Which tasks fail without another try is decided for :class:`MemoryExplainer`, which ends them.

Remote schedulers receive this module pickled by value, so it imports only modules that are sent
with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distributed.comm.addressing import get_address_host
from distributed.diagnostics.plugin import SchedulerPlugin

from hyperplane.guard.large_inputs import LargeInputs
from hyperplane.guard.memory_causes import (
    PROCESS_ENDS,
    USABLE,
    is_certain,
    own_growth,
    own_reservation,
    uses_shared_buffers,
)
from hyperplane.guard.memory_growth import FreeMemory, MemoryGrowth
from hyperplane.guard.memory_record import shorten_key
from hyperplane.guard.memory_report import NEAR_LIMIT, TOPIC, MemoryReport, RunningTask
from hyperplane.guard.node_memory import MemoryLoan, NodeLender
from hyperplane.guard.single_threads import SingleThreads

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import WorkerState

logger = logging.getLogger(__name__)

#: Most retries of a task.
RETRIES = 2
#: Seconds after which an attempt to lend memory is given up.
LEND_SECONDS = 150.0
#: Number of reports and of removed workers that are remembered.
_KEPT = 200
_EXPLAINER = "hyperplane-memory-explainer"
#: States of tasks that do not run again.
_ENDED = ("memory", "erred", "forgotten")


def largest_result(report: MemoryReport) -> str:
    """Return the prefix of the tasks whose results take most of the memory of a worker."""
    return max(report.held, key=lambda name: report.held[name], default="")


@dataclass(frozen=True)
class ReportedWorker:
    """What the scheduler knows of the worker of a report, or knew when it removed the worker.

    The nanny's report of a process that the kernel ended follows the end.

    Parameters
    ----------
    nanny : str
        Address of its nanny, which starts it again; empty without one.
    memory_limit : int
        Its memory limit in bytes.
    keys : mapping
        Keys of the tasks that it was given, by their text in a report.
    seceded : frozenset of str
        The tasks among them that have left their thread (``secede``).
    """

    nanny: str
    memory_limit: int
    keys: Mapping[str, Any]
    seceded: frozenset[str]

    @classmethod
    def of(cls, worker: WorkerState) -> ReportedWorker:
        """Return what is known of a worker."""
        keys = {shorten_key(task.key): task.key for task in worker.processing}
        seceded = frozenset(shorten_key(task.key) for task in worker.long_running)
        return cls(worker.nanny or "", worker.memory_limit, keys, seceded)


class OomRetry(SchedulerPlugin):
    """Scheduler plugin that changes how tasks run again after a worker was ended for its memory.

    Parameters
    ----------
    lends : bool
        Whether workers with the same host are processes of one node that can lend memory.
    free_memory : FreeMemory or None
        Memory of the machine beyond the limits of the workers; None if they stay within these.
    warn : callable, optional
        Receives a warning if it is used.
    """

    name = "hyperplane-oom-retry"

    def __init__(
        self,
        lends: bool = False,
        free_memory: FreeMemory | None = None,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        self.lends, self.free_memory, self.warn = lends, free_memory, warn
        self.kills: Counter[str] = Counter()
        self._workers: dict[str, WorkerState] = {}
        self._removed: dict[str, ReportedWorker] = {}
        self._received: deque[tuple[str, float]] = deque(maxlen=_KEPT)
        self._lenders: dict[str, NodeLender] = {}
        self._work: set[asyncio.Task[None]] = set()

    async def start(self, scheduler: Scheduler) -> None:
        """Remember the scheduler and its workers."""
        self.scheduler = scheduler
        self._single = SingleThreads(scheduler)
        self._growth = MemoryGrowth(scheduler, self.free_memory, self.warn)
        self._large_inputs = LargeInputs(scheduler, self._growth, lambda: bool(self._lenders))
        self._workers = dict(scheduler.workers)
        self._decide_for_explainer()

    async def close(self) -> None:
        """End the work that is not complete."""
        self._growth.close()
        for work in self._work:
            work.cancel()

    @property
    def suspended(self) -> set[str]:
        """Addresses of the nannies of the workers whose memory is lent."""
        return {nanny for each in self._lenders.values() for nanny in each.suspended}

    @property
    def is_preparing(self) -> bool:
        """Whether workers wait for each other before the memory of their node is lent."""
        return any(lender.is_preparing for lender in self._lenders.values())

    def log_event(self, topic: str, msg: Any) -> None:
        """Receive the report of a process that was ended for its memory, or of a worker's state."""
        action = msg.get("action") if isinstance(msg, Mapping) else None
        if topic == TOPIC:
            self._decide_for_explainer()
            self._receive(MemoryReport.from_event(msg))
        elif topic == NEAR_LIMIT:
            self._extend_limit(MemoryReport.from_event(msg))
        elif topic == "all" and action == "remove-worker":
            self._remember(msg["worker"], bool(msg.get("expected")))
        elif action == "worker-status-change" and topic in self.scheduler.workers:
            for lender in self._lenders.values():
                lender.pause_started(self.scheduler.workers[topic])

    def _remember(self, address: str, expected: bool) -> None:
        """Keep what is known of a removed worker, whose tasks Dask gives to others after that."""
        worker = self._workers.pop(address, None)
        if worker is None:
            return
        if expected and worker.nanny:
            self._growth.remove_worker(worker.nanny)
        self._removed[address] = ReportedWorker.of(worker)
        while len(self._removed) > _KEPT:
            del self._removed[next(iter(self._removed))]

    def _find_worker(self, address: str) -> ReportedWorker | None:
        worker = self.scheduler.workers.get(address)
        return self._removed.get(address) if worker is None else ReportedWorker.of(worker)

    def _decide_for_explainer(self) -> None:
        """Decide which tasks the explainer ends; it may be added before or after this plugin."""
        explainer: Any = self.scheduler.plugins.get(_EXPLAINER)
        if explainer is not None:
            explainer.decide, explainer.relieve = self.has_failed, self._relieve_paused

    def _extend_limit(self, report: MemoryReport) -> bool:
        """Raise the limit of a worker that is about to be ended, unless one thread may do.

        Return whether it has grown.
        """
        worker = self.scheduler.workers.get(report.worker)
        if worker is None or self._lenders:
            return False
        seceded = {shorten_key(task.key) for task in worker.long_running}
        running = [task for task in report.running if task.key not in seceded]
        if len(running) > 1 and not self._is_in_shuffle(report):
            return False
        prefix = running[0].prefix if running else largest_result(report)
        return self._growth.grow(worker, prefix, report.peak)

    def _is_in_shuffle(self, report: MemoryReport) -> bool:
        """Return whether rows of a shuffle are in a process, which would start again without it."""
        extension: Any = self.scheduler.extensions.get("shuffle")
        shuffles = extension.active_shuffles.values() if extension is not None else ()
        return any(report.worker in shuffle.participating_workers for shuffle in shuffles)

    def _relieve_paused(self, reports: Iterable[MemoryReport]) -> bool:
        """Raise the limits of workers that all stay paused; return whether one can go on."""
        grown = False
        for report in reports:
            worker = self.scheduler.workers.get(report.worker)
            if worker is not None and not self._lenders:
                held = largest_result(report)
                grown |= self._growth.grow(worker, held, report.peak)
        return grown

    def _receive(self, report: MemoryReport) -> None:
        """Count the tasks of a report, and plan how they run again; once for each report."""
        identity = report.worker, report.time
        if report.cause not in PROCESS_ENDS or identity in self._received:
            return
        self._received.append(identity)
        worker = self._find_worker(report.worker)
        seceded = worker.seceded if worker is not None else frozenset()
        running = [task for task in report.running if task.key not in seceded]
        if len(running) > 1:
            if worker is not None and worker.nanny:
                self._single.limit(worker.nanny, {task.prefix for task in running})
            return
        # Only a task that ran alone has certainly used the memory itself.
        self.kills.update(task.key for task in running)
        if worker is None or not worker.nanny or not self.lends:
            return
        if len(report.running) == 1 and is_certain(report, report.running[0]):
            self._plan_loan(worker, report, report.running[0])

    def has_failed(self, report: MemoryReport, task: RunningTask) -> bool:
        """Return whether a task that ran in an ended process has failed for good."""
        self._receive(report)
        if report.cause not in PROCESS_ENDS or uses_shared_buffers(task.prefix):
            return False
        if self.kills[task.key] > RETRIES:
            return True
        if not is_certain(report, task):
            return False
        # While the memory of the node is lent, or returned, the task is tried again after that.
        lender = self._lenders.get(get_address_host(report.worker))
        return lender is None or report.limit >= lender.loan.total

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """Limit a worker that ran too many tasks together, before it receives a task."""
        state = scheduler.workers[worker]
        self._workers[worker] = state
        self._single.apply(state)
        self._growth.add_worker(state)
        for lender in self._lenders.values():
            lender.pause_started(state)

    def restart(self, scheduler: Scheduler) -> None:
        """Forget what was counted; loans end because their tasks are forgotten."""
        self.kills.clear()
        self._large_inputs.clear()
        self._single.clear()

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Forget a task, and give workers their threads again whose tasks have ended.

        A worker gets memory for a task whose inputs are complete and larger than the worker.
        """
        if self.free_memory is not None and finish in ("waiting", "memory"):
            task = self.scheduler.tasks[key]
            self._large_inputs.check([task] if finish == "waiting" else task.waiters or ())
        if finish not in _ENDED:
            return
        if finish == "forgotten":
            self._large_inputs.forget(key)
            if self.kills:
                self.kills.pop(shorten_key(key), None)
        for nanny in self._single.pop_ended():
            self._start_work(self._single.restore(nanny))

    def remove_worker(
        self, scheduler: Scheduler, worker: str, *, stimulus_id: str, **kwargs: Any
    ) -> None:
        """Place tasks with large inputs again that waited for a worker which has ended."""
        self._large_inputs.place_again(worker, stimulus_id)

    def _plan_loan(self, worker: ReportedWorker, report: MemoryReport, run: RunningTask) -> None:
        """Let a task wait for the memory of its node, if it may fit there."""
        task = self.scheduler.tasks.get(worker.keys.get(run.key, run.key))
        host = get_address_host(report.worker)
        if task is None or task.state in _ENDED or self._large_inputs.is_chosen(task):
            return
        lender = self._lenders.get(host)
        if lender is not None:
            if lender.accepts_tasks:
                lender.hold(task.key)
            return
        peers = self._find_peers(host, worker.nanny)
        total = worker.memory_limit + sum(peer.memory_limit for peer in peers)
        total = min(total, self._growth.find_bound() or total)
        needed = report.empty + max(own_growth(report, run), own_reservation(report, run))
        if not peers or needed > USABLE * total:
            return
        keeper = min(peers, key=lambda peer: peer.memory.process)
        others = (str(peer.nanny) for peer in peers if peer is not keeper)
        lender = NodeLender(self.scheduler, MemoryLoan(keeper, (worker.nanny, *others), total))
        self._lenders[host] = lender
        lender.hold(task.key)
        self._start_work(self._run_loan(host, lender, report))

    def _find_peers(self, host: str, nanny: str) -> list[WorkerState]:
        """Return the workers of a host but that of a nanny, which may have started it again."""
        return [
            peer
            for peer in self.scheduler.workers.values()
            if peer.nanny and peer.nanny != nanny and get_address_host(peer.address) == host
        ]

    async def _run_loan(self, host: str, lender: NodeLender, report: MemoryReport) -> None:
        """Lend memory until the tasks have ended, and undo everything, also after a failure.

        A cancelled loan is not undone: the cluster closes, and its nannies end.
        """
        is_complete = False
        try:
            await lender.wait_for_release()
            if await asyncio.wait_for(lender.lend(), LEND_SECONDS):
                is_complete = await lender.wait_for_tasks()
            if is_complete:
                await lender.wait_for_memory()
        except Exception:  # the tasks end with their explanation
            logger.exception("the memory of the node %s could not be lent", host)
        try:
            if not is_complete:
                self._fail(lender, report)
        finally:
            await self._end_loan(host, lender)

    async def _end_loan(self, host: str, lender: NodeLender) -> None:
        try:
            await lender.roll_back()
        except Exception:
            logger.exception("the memory of the node %s could not be returned", host)
        finally:
            del self._lenders[host]

    def _fail(self, lender: NodeLender, report: MemoryReport) -> None:
        """End the tasks of a loan, unless its worker was lost, after which they run again."""
        explainer: Any = self.scheduler.plugins.get(_EXPLAINER)
        if explainer is None or not (lender.is_preparing or lender.has_keeper()):
            return
        for key in lender.loan.keys:
            task = self.scheduler.tasks.get(key)
            if task is not None and task.state != "processing":  # it may end on another worker
                explainer.fail(key, task.prefix.name, report.cause)

    def _start_work(self, coroutine: Any) -> None:
        work = asyncio.ensure_future(coroutine)
        self._work.add(work)
        work.add_done_callback(self._work.discard)
