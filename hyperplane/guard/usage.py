"""What a running cluster takes: memory, time, spilled bytes and restarts, from its scheduler.

Schedulers without this package receive this module by value, so it imports no other module of the
package than :mod:`hyperplane.guard.usage_texts`, which they receive, too.
"""

from __future__ import annotations

import math
import pickle
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from distributed.diagnostics.plugin import SchedulerPlugin
from tornado.ioloop import PeriodicCallback

from hyperplane.guard.usage_texts import describe_pressure

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import WorkerState

#: Scheduler handler that returns :meth:`UsageMonitor.report`.
USAGE_HANDLER = "hyperplane_usage"
#: Name of the plugin BudgetGuard, and why a cluster ends whose budget is used up.
_BUDGET, BUDGET_USED = "hyperplane-budget-guard", "its budget is used up"
#: Topic of the events about worker processes that ended for lack of memory (memory_report.TOPIC).
MEMORY_TOPIC = "hyperplane-memory"
#: Seconds between two measurements.
INTERVAL = 2.0
#: Seconds that a worker must be paused, or above its spill threshold, until there is a warning. A
#: worker whose results are spilled in time is above it for a few seconds only.
PAUSED_SECONDS, SPILL_SECONDS = 6.0, 20.0
#: Seconds in which a report of lacking memory belongs to the restart before it.
_LATE_REPORT = 60.0
#: Causes of restarts.
OUT_OF_MEMORY, CLIENT, OTHER = "out of memory", "client", "other"
#: Most operations that are recorded separately; tasks of further ones count together.
MAX_OPERATIONS = 1000
OTHER_OPERATIONS = "(other operations)"
#: Most workers that are recorded separately, as far as they are not all connected: those of an
#: adaptive cluster have new names. The first ones that have left count together.
MAX_WORKERS = 1000
OTHER_WORKERS = "(other workers)"


@dataclass
class WorkerFigures:
    """Figures of one worker, with the fields of ``history.WorkerUsage``.

    They are not that class, because a scheduler may have no pydantic.
    """

    name: str
    nthreads: int = 0
    limit: int = 0
    peak: int = 0
    demand: int = 0
    spilled: int = 0
    paused_seconds: float = 0.0
    spilling_seconds: float = 0.0
    restarts: int = 0
    causes: Counter[str] = field(default_factory=Counter)

    def add(self, other: WorkerFigures) -> None:
        """Add the figures of a worker that has left: sums, and the largest memory."""
        for name in ("nthreads", "limit", "peak", "demand", "spilled"):
            setattr(self, name, max(getattr(self, name), getattr(other, name)))
        for name in ("paused_seconds", "spilling_seconds", "restarts", "causes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class TaskFigures:
    """Figures of one operation, with the fields of ``history.TaskUsage``."""

    name: str
    count: int = 0
    failed: int = 0
    seconds: float = 0.0
    longest: float = 0.0
    output: int = 0
    largest_output: int = 0
    input: int = 0
    largest_input: int = 0
    memory: int = 0


class UsageMonitor(SchedulerPlugin):
    """Scheduler plugin that measures what a cluster takes, and warns about lacking memory.

    Parameters
    ----------
    spill : float or False
        Threshold of the memory policy above which a worker is watched; False for none.
    warn : callable, optional
        Receives each warning; by default all clients of the cluster issue it.
    """

    name = "hyperplane-usage-monitor"

    def __init__(self, spill: float | bool, warn: Callable[[str], None] | None = None) -> None:
        self.spill = spill
        self.warn = warn
        self._workers: dict[str, WorkerFigures] = {}
        self._tasks: dict[str, TaskFigures] = {}
        #: Names of workers whose next start has a known cause, and times of unexplained restarts.
        self._expected: dict[str, str] = {}
        self._unexplained: dict[str, float] = {}
        #: Times since when workers lack memory, and what warnings were about.
        self._pressed: dict[str, float] = {}
        self._warned: set[tuple[str, str]] = set()

    async def start(self, scheduler: Scheduler) -> None:
        """Start to measure."""
        self.scheduler = scheduler
        scheduler.handlers[USAGE_HANDLER] = self.report
        for worker in scheduler.workers.values():
            self._figures_of(worker)
        self._measured = time.monotonic()
        self._watch = PeriodicCallback(self.measure, INTERVAL * 1000)
        self._watch.start()

    async def close(self) -> None:
        """Stop to measure."""
        self._watch.stop()

    def usage(self) -> dict[str, Any]:
        """Return all figures, as the fields ``workers`` and ``tasks`` of ``history.RunRecord``."""
        self.measure()
        tasks = sorted(self._tasks.values(), key=lambda task: -task.seconds)
        workers = [{**asdict(worker), "causes": dict(worker.causes)} for worker in self._all()]
        return {"workers": workers, "tasks": [asdict(task) for task in tasks]}

    def report(self) -> dict[str, Any]:
        """Return all figures, and as ``ending`` why the cluster is about to end, if known."""
        budget = getattr(self.scheduler.plugins.get(_BUDGET), "meter", None)
        ending = BUDGET_USED if budget is not None and budget.noticed else ""
        return {**self.usage(), "ending": ending}

    def _all(self) -> list[WorkerFigures]:
        return list(self._workers.values())

    def measure(self) -> None:
        """Measure the memory of all workers; what they report with their heartbeats."""
        now = time.monotonic()
        # A longer time is that of a suspended machine or a busy event loop.
        passed = min(now - self._measured, 3 * INTERVAL)
        self._measured = now
        for worker in self.scheduler.workers.values():
            metrics = worker.metrics
            process = metrics.get("memory") or 0
            spilled = (metrics.get("spilled_bytes") or {}).get("disk", 0)
            figures = self._figures_of(worker)
            figures.peak = max(figures.peak, process)
            figures.demand = max(figures.demand, process + spilled)
            if spilled:
                figures.spilled = max(figures.spilled, spilled)
                figures.spilling_seconds += passed
            for task in worker.executing:
                running = self._operation(task.prefix.name)
                running.memory = max(running.memory, process)
            self._check_pressure(worker, figures, process, spilled, now, passed)

    def _check_pressure(
        self,
        worker: WorkerState,
        figures: WorkerFigures,
        process: int,
        spilled: int,
        now: float,
        passed: float,
    ) -> None:
        """Warn if a worker has been paused or above its spill threshold for long."""
        paused = worker.status.name == "paused"
        if paused:
            figures.paused_seconds += passed
        limit = worker.memory_limit
        if not limit or not (paused or (self.spill and process > self.spill * limit)):
            self._pressed.pop(worker.address, None)
            return
        seconds = now - self._pressed.setdefault(worker.address, now)
        if seconds < (PAUSED_SECONDS if paused else SPILL_SECONDS):
            return
        operation, held = self._find_cause(worker, process + spilled)
        known = self._operation(operation).name if operation else ""
        warning = known, "results" if held else "tasks"
        if warning in self._warned:
            return
        self._warned.add(warning)
        self._issue(
            describe_pressure(
                str(worker.name),
                process,
                limit,
                paused=paused,
                seconds=seconds,
                operation=operation,
                held=held,
                nthreads=worker.nthreads,
            )
        )

    def _find_cause(self, worker: WorkerState, memory: int) -> tuple[str, int]:
        """Return the operation that needs the memory, and the bytes of its results, or 0."""
        held: Counter[str] = Counter()
        for task in worker.has_what:
            held[task.prefix.name] += max(0, task.nbytes)
        executing = max(worker.executing.items(), key=lambda item: item[1], default=None)
        # Results of tasks that wait for more of them; fewer than half leave the running tasks.
        if held and (sum(held.values()) > memory / 2 or executing is None):
            [(operation, size)] = held.most_common(1)
            return operation, size
        return ("" if executing is None else executing[0].prefix.name), 0

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
        if not is_restart:
            return
        cause = self._expected.pop(name, "")
        if cause != OUT_OF_MEMORY:  # those are counted when they are reported
            self._count_restart(name, cause or OTHER)
            if not cause:
                self._unexplained[name] = time.monotonic()

    def remove_worker(self, scheduler: Scheduler, worker: str, **kwargs: Any) -> None:
        """Forget since when a worker lacked memory."""
        del scheduler, kwargs
        self._pressed.pop(worker, None)

    def restart(self, scheduler: Scheduler) -> None:
        """Remember that a client restarts all workers."""
        del scheduler
        self._expected.update(dict.fromkeys(self._workers, CLIENT))

    def log_event(self, topic: str, msg: Any) -> None:
        """Count a worker process that ended for lack of memory, as its nanny reports it."""
        if topic != MEMORY_TOPIC or not isinstance(msg, dict) or "name" not in msg:
            return
        name = str(msg["name"])
        figures = self._figures_named(name)
        peak = int(msg.get("peak") or 0)
        figures.peak = max(figures.peak, peak)
        figures.demand = max(figures.demand, peak + int(msg.get("spilled") or 0))
        for task in msg.get("running") or ():
            running = self._operation(str(task.get("prefix")))
            running.memory = max(running.memory, peak)
        since = self._unexplained.pop(name, None)
        if since is not None and time.monotonic() - since < _LATE_REPORT:
            figures.causes[OTHER] -= 1  # it has restarted before this report came
            figures.causes += Counter()  # drops a count of zero
            figures.causes[OUT_OF_MEMORY] += 1
        else:
            self._expected[name] = OUT_OF_MEMORY
            self._count_restart(name, OUT_OF_MEMORY)

    def _count_restart(self, name: str, cause: str) -> None:
        figures = self._workers[name]
        figures.restarts += 1
        figures.causes[cause] += 1

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Add the figures of a task that has ended."""
        del args
        if start != "processing" or finish not in ("memory", "erred"):
            return
        task = self.scheduler.tasks.get(key)
        if task is None:
            return
        figures = self._operation(task.prefix.name)
        figures.count += 1
        if finish == "erred":
            figures.failed += 1
            return
        size = kwargs.get("nbytes") or 0
        figures.output += size
        if size > figures.largest_output:
            figures.largest_output = size
        for step in kwargs.get("startstops") or ():
            if step["action"] == "compute":
                seconds = max(0.0, step["stop"] - step["start"])
                figures.seconds += seconds
                if seconds > figures.longest:
                    figures.longest = seconds
        if task.dependencies:
            size = sum([other.nbytes for other in task.dependencies if other.nbytes > 0])
            figures.input += size
            if size > figures.largest_input:
                figures.largest_input = size

    def _operation(self, name: str) -> TaskFigures:
        figures = self._tasks.get(name)
        if figures is None:
            # A program may give each task a name that is an operation for Dask.
            name = name if len(self._tasks) < MAX_OPERATIONS else OTHER_OPERATIONS
            figures = self._tasks.setdefault(name, TaskFigures(name))
        return figures

    def _figures_of(self, worker: WorkerState) -> WorkerFigures:
        figures = self._figures_named(str(worker.name))
        figures.nthreads, figures.limit = worker.nthreads, worker.memory_limit or 0
        return figures

    def _figures_named(self, name: str) -> WorkerFigures:
        figures = self._workers.get(name)
        if figures is None:
            if len(self._workers) >= MAX_WORKERS:
                self._merge_departed()
            figures = self._workers[name] = WorkerFigures(name)
        return figures

    def _merge_departed(self) -> None:
        """Count half of the workers that have left together, the first ones."""
        connected = {str(worker.name) for worker in self.scheduler.workers.values()}
        left = [name for name in self._workers if name not in {*connected, OTHER_WORKERS}]
        for name in left[: math.ceil(len(left) / 2)]:
            figures = self._workers.pop(name)
            self._workers.setdefault(OTHER_WORKERS, WorkerFigures(OTHER_WORKERS)).add(figures)
            self._expected.pop(name, None)
            self._unexplained.pop(name, None)
