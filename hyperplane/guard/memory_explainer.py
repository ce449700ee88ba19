"""Scheduler plugin that lets tasks end with WorkerOutOfMemory where memory was the reason.

Schedulers without this package receive this module by value; they do not need the class of the
error, because its pickle has the function that creates it.
"""

from __future__ import annotations

import logging
import pickle
import re
import time
from collections import deque
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from distributed.core import Status
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.scheduler import KilledWorker, NoWorkerError

from hyperplane.core.dask_internals import task_errors
from hyperplane.core.dask_internals.actor_answers import LOST_ACTORS
from hyperplane.guard.lost_actors import (
    ActorWorkers,
    describe_lost_actors,
    explain_lost_actors,
)
from hyperplane.guard.memory_advice import (
    MemoryFailure,
    WorkerLayout,
    advise,
    describe_operation,
    explain,
)
from hyperplane.guard.memory_causes import PROCESS_ENDS, is_certain, select_reports
from hyperplane.guard.memory_record import shorten_key
from hyperplane.guard.memory_recorder import is_allocation_error
from hyperplane.guard.memory_report import EXIT_TOPIC, TOPIC, Cause, MemoryReport, RunningTask
from hyperplane.guard.worker_exits import WorkerExits

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import TaskState

logger = logging.getLogger("distributed.scheduler")

#: Number of reports and of removed workers that are kept.
_KEPT = 200
#: Beginning of the errors of a peer-to-peer shuffle whose worker was lost, with its identifier.
_SHUFFLE_ERROR = re.compile(r"RuntimeError\('P2P (\S+) failed during ")
#: Causes of the reports of workers that stay paused.
_PAUSES = ("spill disk", "paused")
#: States with which a run of a task ends.
_ENDS = ("memory", "erred", "forgotten")


class _ErrorLoader:
    """Callable that pickles as the function in its bytes."""

    def __init__(self, pickled: bytes) -> None:
        self._pickled = pickled

    def __call__(self, state: dict[str, Any]) -> Any:
        return pickle.loads(self._pickled)(state)  # noqa: S301 - from the client of this cluster

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self._pickled,)


class _ErrorRecipe:
    """Object that pickles as the call which creates an error."""

    def __init__(self, load: _ErrorLoader, state: dict[str, Any]) -> None:
        self._load, self._state = load, state

    def __reduce__(self) -> tuple[Any, ...]:
        return self._load, (self._state,)


def _never(reports: Iterable[MemoryReport]) -> bool:
    return False


class MemoryExplainer(SchedulerPlugin):
    """Scheduler plugin that collects MemoryReports and explains errors with them.

    Parameters
    ----------
    load_error : bytes
        From ``worker_out_of_memory.pickle_loader``.
    layout : WorkerLayout
        What the advice may change.
    decide : callable
        Returns whether a task of a report has failed for good; by default :func:`is_certain`.
    """

    name = "hyperplane-memory-explainer"

    def __init__(
        self,
        load_error: bytes,
        layout: WorkerLayout,
        decide: Callable[[MemoryReport, RunningTask], bool] = is_certain,
    ) -> None:
        self._load_error, self.layout, self.decide = load_error, layout, decide
        #: Returns whether workers that all stay paused, by their reports, have got more memory.
        self.relieve: Callable[[Iterable[MemoryReport]], bool] = _never
        self.reports: deque[MemoryReport] = deque(maxlen=_KEPT)
        # By the clock of the scheduler; the times of reports are by that of another machine.
        self._arrivals: deque[float] = deque(maxlen=_KEPT)
        #: Keys in reports, and when their last run ended.
        self._ended: dict[str, float] = {}
        self._removed: dict[str, frozenset[Any]] = {}
        #: Reports of the workers that stay paused, by address.
        self._stuck: dict[str, MemoryReport] = {}
        self._actors = ActorWorkers()
        self._exits = WorkerExits()
        #: The change that the latest error proposes; empty without an error.
        self.last_fix = ""

    async def start(self, scheduler: Scheduler) -> None:
        """Start to translate the errors of tasks."""
        self.scheduler = scheduler
        task_errors.translate_task_errors(scheduler, self.translate)

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """Remember the name of a worker, by which a report finds its address."""
        self._exits.add_worker(str(scheduler.workers[worker].name), worker)

    def log_event(self, topic: str, msg: Any) -> None:
        """Receive reports, the tasks of removed workers, and the ends of pauses."""
        action = msg.get("action") if isinstance(msg, Mapping) else None
        if topic == TOPIC:
            self.add_report(MemoryReport.from_event(msg))
        elif topic == EXIT_TOPIC:
            msg = self._exits.complete(msg)
            given = self._spare_others(msg["worker"], set(msg.get("running") or ()))
            self._exits.add(msg, given)
        elif action == "worker-status-change":
            self._stuck.pop(topic, None)
        elif topic == "all" and action == "remove-worker":
            self._stuck.pop(msg["worker"], None)
            self._removed[msg["worker"]] = frozenset(msg["processing-tasks"])
            while len(self._removed) > _KEPT:
                del self._removed[next(iter(self._removed))]

    def add_report(self, report: MemoryReport) -> None:
        """Keep a report, restore the count of tasks that only waited, and fail what is certain."""
        self.reports.append(report)
        self._arrivals.append(time.time())
        keys = {task.key for each in self.reports for task in each.running}
        self._ended = {key: self._ended.get(key, 0.0) for key in keys}
        if report.cause in _PAUSES:
            self._stuck[report.worker] = report
            self._end_stuck_tasks()
        if report.cause not in PROCESS_ENDS:
            return
        running = ", ".join(task.key for task in report.running) or "nothing"
        text = f"worker {report.worker}: {report.cause} at {report.peak} of {report.limit} bytes"
        logger.warning("%s, running: %s", text, running)
        if actors := self._actors.take_lost(report.worker):
            self._explain_lost(actors, report)
        given = self._spare_others(report.worker, {task.key for task in report.running})
        for task in report.running:
            if task.key in given and self.decide(report, task):
                self.fail(given[task.key], task.prefix, report.cause)

    def _explain_lost(self, actors: list[Any], report: MemoryReport) -> None:
        """Warn of lost actors, and keep the reason for the errors of their calls."""
        reason = explain_lost_actors(actors, report, self.layout)
        event = {"worker": report.worker, "actors": actors, "reason": reason}
        self.scheduler.log_event(LOST_ACTORS, event)
        # Clients subscribe to this topic and issue its messages as warnings.
        text = describe_lost_actors(actors, reason)
        self.scheduler.log_event("warn", {"message": pickle.dumps(text)})

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Remember actors, and ends of runs of tasks: reports of a run do not count in the next."""
        if finish == "forgotten":
            self._actors.remove(key)
        elif finish == "memory" and (task := self.scheduler.tasks.get(key)) and task.actor:
            self._actors.add(key, kwargs.get("worker", ""))
        if finish in _ENDS and (self._ended or self._exits.reports):
            self._exits.end_run(text := shorten_key(key))
            if text in self._ended:
                self._ended[text] = time.time()

    def _find_reports(self, since: float) -> list[MemoryReport]:
        """Return the reports that arrived after a time."""
        received = zip(self._arrivals, self.reports, strict=True)
        return [report for arrival, report in received if arrival > since]

    def _find_keys(self, worker: str) -> Iterable[Any]:
        """Return the keys of the tasks that a worker was given, also if it was removed."""
        tasks = task_errors.find_tasks(self.scheduler, worker)
        return tasks or self._removed.get(worker, frozenset())

    def _spare_others(self, worker: str, running: set[str]) -> dict[str, Any]:
        """Do not blame tasks for the end of a worker on which they only waited.

        Dask counts it for all tasks of the worker, before or after the report arrives. Return the
        keys of all of them by their texts in reports.
        """
        given = {shorten_key(key): key for key in self._find_keys(worker)}
        for text, key in given.items() if running else ():
            task = self.scheduler.tasks.get(key)
            if task is not None and text not in running:
                task.suspicious -= 1
        return given

    def _end_stuck_tasks(self) -> None:
        """End the tasks that wait for workers, if all of them stay paused.

        One that was paused a moment ago may run a task, and go on when that has ended.
        """
        workers = self.scheduler.workers
        paused = {address for address, each in workers.items() if each.status == Status.paused}
        if self.scheduler.running or not paused <= self._stuck.keys():
            return
        if paused and self.relieve([self._stuck[address] for address in paused]):
            for address in paused:
                del self._stuck[address]
            return
        for address in paused:
            report = self._stuck[address]
            for key, prefix in task_errors.find_waiting(self.scheduler, address).items():
                error = self.create_error(key, prefix, report.cause, "", (report,))
                if error is not None:
                    task_errors.fail_task(self.scheduler, key, error, "WorkerOutOfMemory")

    def find_reported(self, tasks: Iterable[TaskState], workers: Container[str]) -> Any:
        """Return the task that ran in the largest process of these workers that memory has ended.

        None if none of the tasks ran there.
        """
        reports = [
            each for each in self.reports if each.cause in PROCESS_ENDS and each.worker in workers
        ]
        by_text = {shorten_key(task.key): task for task in tasks}
        for report in sorted(reports, key=lambda each: -each.peak):
            for running in report.running:
                if running.key in by_text:
                    return by_text[running.key]
        return None

    def explain_pause(self, key: Any, prefix: str) -> bytes | None:
        """Return the error of a task that waits for paused workers.

        None if one of them has not reported that it stays paused. A worker reports that once in
        each pause: tasks that were submitted later, or that wait after a pause was interrupted for
        a moment, have no other report.
        """
        workers = self.scheduler.workers
        paused = {address for address, each in workers.items() if each.status == Status.paused}
        reports = {each.worker: each for each in self.reports if each.cause in _PAUSES}
        if not paused or not paused <= reports.keys():
            return None
        report = max((reports[address] for address in paused), key=lambda each: each.time)
        return self.create_error(key, prefix, report.cause, "", (report,))

    def fail(self, key: Any, prefix: str, cause: Cause, detail: str = "") -> bool:
        """End a task with the explanation of its reports; return whether it was ended."""
        exception = self.create_error(key, prefix, cause, detail)
        if exception is None:
            return False
        return task_errors.fail_task(self.scheduler, key, exception, "WorkerOutOfMemory")

    def create_error(
        self,
        key: Any,
        prefix: str,
        cause: Cause,
        detail: str = "",
        reports: tuple[MemoryReport, ...] = (),
        killed: KilledWorker | None = None,
        original: bytes | None = None,
    ) -> bytes | None:
        """Return the pickled error of a task; None without any report of it."""
        text = shorten_key(key)
        # Reports of earlier attempts do not say why Dask does not start a task.
        if cause != "inputs":
            reports = self._select_reports(text) or reports
        if not reports:
            return None
        failure = MemoryFailure(
            text,
            prefix,
            cause,
            reports,
            input_type=self._input_type(key),
            detail=detail,
            results=task_errors.estimate_results(self.scheduler),
            # The report of the last end may arrive later.
            attempts=0 if killed is None else killed.allowed_failures + 1,
        )
        report, self.last_fix = failure.report, advise(failure, self.layout)
        state = {
            "message": explain(failure, self.layout),
            "key": key,
            "last_worker": SimpleNamespace(address=reports[-1].worker, name=reports[-1].name)
            if killed is None
            else killed.last_worker,
            "operation": describe_operation(prefix),
            "peak": report.peak,
            "limit": report.limit,
            "inputs": failure.inputs,
            "attempts": failure.attempts,
            "cause": cause,
            "fix": self.last_fix,
            "original": original,
        }
        return pickle.dumps(_ErrorRecipe(_ErrorLoader(self._load_error), state))

    def _select_reports(self, text: str) -> tuple[MemoryReport, ...]:
        """Return the reports of the current run of a task."""
        return select_reports(self._find_reports(self._ended.get(text, 0.0)), text)

    def translate(self, key: Any, exception: Any, text: str) -> bytes | None:
        """Return the error to end a task with instead of another; None to keep that."""
        prefix = self._prefix(key)
        if is_allocation_error(text):
            original = task_errors.copy_error(exception)
            return self.create_error(key, prefix, "allocation", text, original=original)
        if (shuffle := _SHUFFLE_ERROR.match(text)) is not None:
            workers = task_errors.find_shuffle_workers(self.scheduler, shuffle[1])
            return self._explain_by_others(key, exception, text, workers)
        error = task_errors.load_scheduler_error(exception)
        if type(error) is KilledWorker:
            reports = self._select_reports(shorten_key(key)) or tuple(
                report for report in self.reports if report.worker == error.last_worker.address
            )
            if reports:
                cause = reports[-1].cause
                return self.create_error(key, prefix, cause, "", reports, error)
            if (crash := self._exits.create_state(key, prefix, error)) is not None:
                return pickle.dumps(_ErrorRecipe(_ErrorLoader(self._load_error), crash))
        if type(error) is MemoryError and (report := self._describe_inputs(key)) is not None:
            original = task_errors.copy_error(exception)
            return self.create_error(
                key, prefix, "inputs", str(error), (report,), original=original
            )
        if isinstance(error, NoWorkerError) and not self.scheduler.workers:
            return self._explain_by_others(key, exception, str(error))
        return None

    def _describe_inputs(self, key: Any) -> MemoryReport | None:
        """Return a report of a task that Dask does not start, because its inputs are too large."""
        task = self.scheduler.tasks.get(key)
        worker = task.processing_on if task is not None else None
        if task is None or worker is None:
            return None
        inputs = sum(each.get_nbytes() for each in task.dependencies)
        run = RunningTask(shorten_key(key), self._prefix(key), 0.0, memory_before=0, inputs=inputs)
        return MemoryReport(
            worker=worker.address,
            name=str(worker.name),
            cause="inputs",
            peak=worker.memory.process,
            limit=worker.memory_limit,
            running=(run,),
            held={},
            spilled=0,
            threads=worker.nthreads,
            pid=0,
            time=time.time(),
        )

    def _explain_by_others(
        self, key: Any, exception: Any, detail: str, workers: Collection[str] | None = None
    ) -> bytes | None:
        """Return an error with the reports of other tasks, such as those of the same shuffle.

        Only those of processes that have ended since the computation began count; if workers are
        given, only theirs.
        """
        since = task_errors.find_start(self.scheduler, key)
        if since is None:
            return None
        reports = tuple(
            report
            for report in self._find_reports(since)
            if report.cause in PROCESS_ENDS and (workers is None or report.worker in workers)
        )
        if not reports:
            return None
        original = task_errors.copy_error(exception)
        cause = reports[-1].cause
        return self.create_error(key, self._prefix(key), cause, detail, reports, original=original)

    def _prefix(self, key: Any) -> str:
        task = self.scheduler.tasks.get(key)
        return str(task.prefix.name) if task is not None else ""

    def _input_type(self, key: Any) -> str:
        """Return the type of the largest input of a task."""
        task = self.scheduler.tasks.get(key)
        inputs = [each for each in task.dependencies if each.nbytes > 0] if task else []
        return max(inputs, key=lambda each: each.nbytes).type or "" if inputs else ""
