"""What a running cluster takes: memory, time, spilled bytes and restarts, from its scheduler.

Schedulers without this package receive this module by value, and those that it imports.
"""

from __future__ import annotations

import asyncio
import math
import pickle
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from distributed.diagnostics.plugin import SchedulerPlugin
from tornado.ioloop import PeriodicCallback

from hyperplane.guard.computation_usage import ENDS, Computations, process_metrics
from hyperplane.guard.pressure_warnings import PressureWarnings
from hyperplane.guard.process_usage import ProcessUsage
from hyperplane.guard.timeline_recorder import FIRST_PART, TimelineRecorder
from hyperplane.history.figures import (
    OUT_OF_MEMORY,
    TaskUsage,
    WorkerUsage,
    add_usage,
    count_cause,
    note_limit,
)

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import WorkerState

#: Scheduler handlers that return :meth:`UsageMonitor.report`, and the same after asking workers.
USAGE_HANDLER, FINAL_USAGE_HANDLER = "hyperplane_usage", "hyperplane_final_usage"
#: Name of the plugin BudgetGuard, and why a cluster ends whose budget is used up.
_BUDGET, BUDGET_USED = "hyperplane-budget-guard", "its budget is used up"
#: Name of the plugin MemoryExplainer.
_EXPLAINER = "hyperplane-memory-explainer"
#: Topic of the events about worker processes that ended for lack of memory (memory_report.TOPIC).
MEMORY_TOPIC = "hyperplane-memory"
#: Seconds between two measurements.
INTERVAL = 2.0
#: Seconds that workers may take to tell what they have taken; seconds between two such requests
#: while the cluster runs, and most workers that are asked then. Heartbeats tell it, too.
_ASK_SECONDS, _ASK_INTERVAL, _ASK_WORKERS = 2.0, 1.0, 64
#: Seconds in which a report of lacking memory belongs to the restart before it.
_LATE_REPORT = 60.0
#: Causes of restarts besides OUT_OF_MEMORY.
CLIENT, OTHER = "client", "other"
#: Most operations that are recorded separately; tasks of further ones count together.
MAX_OPERATIONS = 1000
OTHER_OPERATIONS = "(other operations)"
#: Most workers that are recorded separately, as far as they are not all connected: those of an
#: adaptive cluster have new names. The first ones that have left count together.
MAX_WORKERS = 1000
OTHER_WORKERS = "(other workers)"


class UsageMonitor(SchedulerPlugin):
    """Scheduler plugin that measures what a cluster takes, and warns about lacking memory.

    Parameters
    ----------
    spill : float or False
        Threshold of the memory policy above which a worker is watched; False for none.
    warn : callable, optional
        Receives each warning; by default all clients of the cluster issue it.
    plan : mapping, optional
        Fields of ``history.PlanSummary``, for those that look at the cluster while it runs.
    """

    name = "hyperplane-usage-monitor"

    def __init__(
        self,
        spill: float | bool,
        warn: Callable[[str], None] | None = None,
        plan: Mapping[str, Any] | None = None,
    ) -> None:
        self.warn = warn
        self.plan = dict(plan or {})
        self._workers: dict[str, WorkerUsage] = {}
        self._tasks: dict[str, TaskUsage] = {}
        self._computations = Computations()
        #: What processes have told of themselves before, by the addresses of their workers.
        self._told: dict[str, dict[str, float]] = {}
        #: Workers by address: the last limit of one that has left may be newer than its figures.
        self._states: dict[str, WorkerState] = {}
        self._asked = 0.0
        #: Names of workers whose next start has a known cause, and times of unexplained restarts.
        self._expected: dict[str, str] = {}
        self._unexplained: dict[str, float] = {}
        self._pressure = PressureWarnings(spill, self._name_operation)

    async def start(self, scheduler: Scheduler) -> None:
        """Start to measure."""
        self.scheduler = scheduler
        # Not earlier: this object may have been sent from another machine, with another clock.
        self._timeline = TimelineRecorder()
        self._add_handlers(scheduler)
        for worker in scheduler.workers.values():
            self._figures_of(worker)
        self._measured = time.monotonic()
        self._watch = PeriodicCallback(self.measure, INTERVAL * 1000)
        self._watch.start()
        self._samples = PeriodicCallback(self._sample, FIRST_PART * 1000)
        self._samples.start()

    def _add_handlers(self, scheduler: Scheduler) -> None:
        scheduler.handlers[USAGE_HANDLER] = self.report
        scheduler.handlers[FINAL_USAGE_HANDLER] = self.report_final

    async def close(self) -> None:
        """Stop to measure."""
        self._watch.stop()
        self._samples.stop()

    def _sample(self) -> None:
        """Add to the timeline between two measurements, while its parts are that short."""
        self._timeline.sample(self.scheduler.workers.values())
        if self._timeline.part_seconds >= INTERVAL:
            self._samples.stop()

    @property
    def process_hours(self) -> float:
        """Hours of all worker processes together, until now."""
        return self._timeline.process_hours

    def usage(self) -> dict[str, Any]:
        """Return all figures, as fields of ``history.RunRecord``."""
        self.measure()
        tasks = sorted(self._tasks.values(), key=lambda task: -task.seconds)
        return {
            "workers": [asdict(worker) for worker in self._workers.values()],
            "tasks": [asdict(task) for task in tasks],
            "computations": [asdict(each) for each in self._computations.list_done()],
            "timeline": self._timeline.as_dict(),
        }

    def report(self) -> dict[str, Any]:
        """Return all figures, the plan, and as ``ending`` why the cluster is about to end.

        ``fix`` is the change that the latest error for lack of memory proposes; empty without one.
        ``limit`` is the present memory limit of all workers together.
        """
        explainer = self.scheduler.plugins.get(_EXPLAINER)
        budget = getattr(self.scheduler.plugins.get(_BUDGET), "meter", None)
        ending = BUDGET_USED if budget is not None and budget.noticed else ""
        fix = getattr(explainer, "last_fix", "")
        told = {"plan": self.plan, "ending": ending, "fix": fix}
        return {**self.usage(), **told, "limit": self.scheduler.total_memory}

    async def report_final(self) -> dict[str, Any]:
        """Return the same after all workers have told what they have taken."""
        await self.ask_workers()
        return self.report()

    async def ask_workers(self) -> None:
        """Ask all workers what they have taken, which heartbeats tell up to a second later."""
        await self._ask_all()
        self.measure()

    async def _ask_all(self) -> None:
        self._asked = time.monotonic()
        # Others, such as threads of one process, have no such handler and would log an error.
        has_plugin = ProcessUsage.name in self.scheduler.worker_plugins
        workers = [
            worker
            for worker in self.scheduler.workers.values()
            if has_plugin or ProcessUsage.metric in worker.metrics
        ]
        # Not Scheduler.broadcast, which logs an error for each worker that has just ended.
        asked = [self._ask(worker) for worker in workers]
        with suppress(TimeoutError):  # the figures of the last heartbeats remain
            await asyncio.wait_for(asyncio.gather(*asked), _ASK_SECONDS)

    async def _ask(self, worker: WorkerState) -> None:
        with suppress(Exception):
            connection = self.scheduler.rpc(worker.address)
            told = await getattr(connection, ProcessUsage.metric)()
            if isinstance(told, dict):
                worker.metrics = {**worker.metrics, **ProcessUsage.as_metrics(told)}

    def measure(self) -> None:
        """Measure the memory of all workers; what they report with their heartbeats."""
        now = time.monotonic()
        # A longer time is that of a suspended machine or a busy event loop.
        passed = min(now - self._measured, 3 * INTERVAL)
        self._measured = now
        for worker in self.scheduler.workers.values():
            metrics = worker.metrics
            process = self._read_memory(worker)
            spilled = (metrics.get("spilled_bytes") or {}).get("disk", 0)
            figures = self._figures_of(worker)
            figures.peak = max(figures.peak, process)
            figures.demand = max(figures.demand, process + spilled)
            self._add_told(worker, figures, process)
            if spilled:
                figures.spilled = max(figures.spilled, spilled)
                figures.spilling_seconds += passed
            for task in worker.executing:
                running = self._operation(task.prefix.name)
                running.memory = max(running.memory, process)
            if worker.status.name == "paused":
                figures.paused_seconds += passed
            if text := self._pressure.check(worker, process, spilled, now):
                self._issue(text)
        self._computations.measure(self.scheduler.workers.values())
        self._timeline.sample(self.scheduler.workers.values())

    def _add_told(self, worker: WorkerState, figures: WorkerUsage, process: int) -> None:
        """Add what the process of a worker has told of itself since the last measurement."""
        self._note_empty(figures, process)
        told = process_metrics(worker)
        before = self._told.get(worker.address, {})
        self._told[worker.address] = told
        figures.peak = max(figures.peak, self._find_peak(worker.address, told))
        figures.demand = max(figures.demand, figures.peak)
        figures.cpu_seconds += max(0.0, told.get("cpu", 0.0) - before.get("cpu", 0.0))
        for name in ("read", "written"):
            increase = max(0, int(told.get(name, 0) - before.get(name, 0)))
            setattr(figures, name, getattr(figures, name) + increase)

    def _note_empty(self, figures: WorkerUsage, process: int) -> None:
        """Note the memory of a process at its first measurement."""
        if not figures.empty:
            figures.empty = process
            if not self._tasks:  # later processes have had work before they were measured
                self._computations.empty = max(self._computations.empty, process)

    def _read_memory(self, worker: WorkerState) -> int:
        return worker.metrics.get("memory") or 0

    def _find_peak(self, _: str, told: dict[str, float]) -> int:
        """Return the largest memory of a process that belongs to the measured time."""
        return int(told.get("peak", 0))

    def _issue(self, text: str) -> None:
        if self.warn is not None:
            self.warn(text)
        else:
            # Clients subscribe to this topic and issue its messages as warnings.
            self.scheduler.log_event("warn", {"message": pickle.dumps(text)})

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """Count a restart if a worker of that name was there before."""
        state = scheduler.workers[worker]
        name = str(state.name)
        is_restart = name in self._workers
        self._figures_of(state)
        self._computations.disturb()
        if not is_restart:
            return
        self._timeline.note_restart(name)
        cause = self._expected.pop(name, "")
        if cause != OUT_OF_MEMORY:  # those are counted when they are reported
            self._count_restart(name, cause or OTHER)
            if not cause:
                self._unexplained[name] = time.monotonic()

    def remove_worker(self, scheduler: Scheduler, worker: str, **kwargs: Any) -> None:
        """Forget since when a worker lacked memory, and what its process has told."""
        del scheduler, kwargs
        if state := self._states.pop(worker, None):
            note_limit(self._figures_named(str(state.name)), state.memory_limit or 0)
        self._pressure.since.pop(worker, None)
        self._told.pop(worker, None)
        self._computations.disturb()

    def update_graph(
        self, scheduler: Scheduler, *, keys: Iterable[Any], tasks: Iterable[Any], **kwargs: Any
    ) -> None:
        """Begin to measure a computation."""
        del kwargs
        if not (self._computations.empty or self._tasks):
            self.measure()
        self._computations.begin(scheduler, keys, tasks)

    def restart(self, scheduler: Scheduler) -> None:
        """Remember that a client restarts all workers."""
        del scheduler
        self._expected.update(dict.fromkeys(self._workers, CLIENT))

    def log_event(self, topic: str, msg: Any) -> None:
        """Count a worker process that ended for lack of memory, as its nanny reports it."""
        if not isinstance(msg, dict):
            return
        if msg.get("action") == "worker-status-change" and topic in self.scheduler.workers:
            name = str(self.scheduler.workers[topic].name)
            self._timeline.note_status(name, msg.get("status") == "paused")
        if topic != MEMORY_TOPIC or "name" not in msg:
            return
        name = str(msg["name"])
        figures = self._figures_named(name)
        peak = int(msg.get("peak") or 0)
        figures.peak = max(figures.peak, peak)
        figures.demand = max(figures.demand, peak + int(msg.get("spilled") or 0))
        self._timeline.note_killed(name, peak)
        for task in msg.get("running") or ():
            running = self._operation(str(task.get("prefix")))
            running.memory = max(running.memory, peak)
        since = self._unexplained.pop(name, None)
        if since is not None and time.monotonic() - since < _LATE_REPORT:
            count_cause(figures, OTHER, -1)  # it has restarted before this report came
            count_cause(figures, OUT_OF_MEMORY)
        else:
            self._expected[name] = OUT_OF_MEMORY
            self._count_restart(name, OUT_OF_MEMORY)

    def _count_restart(self, name: str, cause: str) -> None:
        figures = self._workers[name]
        figures.restarts += 1
        count_cause(figures, cause)

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Add the figures of a task that has ended."""
        del args
        if finish in ENDS and key in self._computations.wanted:
            self._end_result(key, finish)
        if start != "processing" or finish not in ("memory", "erred"):
            return
        task = self.scheduler.tasks.get(key)
        if task is None:
            return
        figures = self._operation(task.prefix.name)
        figures.count += 1
        has_failed = finish == "erred"
        for step in kwargs.get("startstops") or ():
            if step["action"] == "compute":
                began, ended = step["start"], step["stop"]
                self._timeline.groups.add(task.group.name, figures.name, began, ended, has_failed)
                seconds = max(0.0, ended - began)
                if not has_failed:
                    figures.seconds += seconds
                    if seconds > figures.longest:
                        figures.longest = seconds
        if has_failed:
            figures.failed += 1
            return
        size = kwargs.get("nbytes") or 0
        figures.output += size
        if size > figures.largest_output:
            figures.largest_output = size
        if task.dependencies:
            size = sum([other.nbytes for other in task.dependencies if other.nbytes > 0])
            figures.input += size
            if size > figures.largest_input:
                figures.largest_input = size

    def _end_result(self, key: Any, finish: str) -> None:
        """Note that a result that a client wants is there; ask the workers if it was the last."""
        if not self._computations.end_key(key, finish):
            return
        is_small = len(self.scheduler.workers) <= _ASK_WORKERS
        if is_small and time.monotonic() - self._asked > _ASK_INTERVAL:
            self._asked = time.monotonic()
            self.scheduler.loop.add_callback(self.ask_workers)

    def _operation(self, name: str) -> TaskUsage:
        figures = self._tasks.get(name)
        if figures is None:
            # A program may give each task a name that is an operation for Dask.
            name = name if len(self._tasks) < MAX_OPERATIONS else OTHER_OPERATIONS
            figures = self._tasks.setdefault(name, TaskUsage(name))
        return figures

    def _name_operation(self, name: str) -> str:
        """Return the name under which tasks with a prefix count."""
        return self._operation(name).name

    def _figures_of(self, worker: WorkerState) -> WorkerUsage:
        figures = self._figures_named(str(worker.name))
        figures.nthreads = worker.nthreads
        note_limit(figures, worker.memory_limit or 0)
        self._states[worker.address] = worker
        return figures

    def _figures_named(self, name: str) -> WorkerUsage:
        figures = self._workers.get(name)
        if figures is None:
            if len(self._workers) >= MAX_WORKERS:
                self._merge_departed()
            figures = self._workers[name] = WorkerUsage(name)
        return figures

    def _merge_departed(self) -> None:
        """Count half of the workers that have left together, the first ones."""
        connected = {str(worker.name) for worker in self.scheduler.workers.values()}
        left = [name for name in self._workers if name not in {*connected, OTHER_WORKERS}]
        for name in left[: math.ceil(len(left) / 2)]:
            figures = self._workers.pop(name)
            others = self._workers.setdefault(OTHER_WORKERS, WorkerUsage(OTHER_WORKERS))
            add_usage(others, figures)
            self._expected.pop(name, None)
            self._unexplained.pop(name, None)
