"""Schedule the steps of one job."""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from hyperplane.core.errors import JobStoreError
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.failure_kinds import INPUT
from hyperplane.jobs.execution.job_folder import remove_cancel_marker
from hyperplane.jobs.execution.resource_allocator import ResourceAllocator
from hyperplane.jobs.execution.retries import MAX_LOST_ATTEMPTS, count_retries, jitter, retry_delay
from hyperplane.jobs.execution.step_executor import StepExecutor
from hyperplane.jobs.notification_sender import NotificationSender
from hyperplane.jobs.notifications import Event, Notification
from hyperplane.jobs.runners.base import ClosableRunner
from hyperplane.jobs.store.backoff import is_disk_full
from hyperplane.jobs.store.job_records import (
    CANCELLED,
    DONE,
    FAILED,
    IN_PROGRESS,
    LOST,
    OPEN,
    TIMED_OUT,
    Attempt,
    Job,
    WorkUnit,
    timeout_reason,
)  # fmt: skip
from hyperplane.jobs.store.job_store import JobStore
from hyperplane.jobs.submission import submission_snapshot
from hyperplane.jobs.submission.submission_environment import SubmissionEnvironment
from hyperplane.platforms.local import machine

_log = logging.getLogger(__name__)

#: Maximum number of failed attempts named in the reason of a job.
_MAX_REASONS = 3
#: File in the job's folder with the time of the submission whose lateness was notified.
_LATE_MARKER = "notified-late"


class JobScheduler:
    """Run the steps of one job in dependency order, with retries.

    Parameters
    ----------
    store : JobStore
        Store of the job.
    job : Job
        The job; finished steps are not run again.
    capacity : ResourceAllocator
        Resources shared with the steps of other jobs.
    submission : SubmissionEnvironment
        Environment that the job was submitted with.
    sender : NotificationSender
        Sends the notifications of the job.
    """

    def __init__(
        self,
        store: JobStore,
        job: Job,
        capacity: ResourceAllocator,
        submission: SubmissionEnvironment,
        sender: NotificationSender,
    ) -> None:
        self.store, self.job = store, job
        self._snapshot = submission_snapshot.load_snapshot(job)
        self._settings = self._snapshot.settings
        self.submission, self._capacity, self._sender = submission, capacity, sender
        #: Notification of the end of the job and its targets, until it is sent.
        self._end_notice: tuple[Notification, Iterable[str]] | None = None
        self._executor: StepExecutor | None = None
        self._work: asyncio.Task[tuple[str, str]] | None = None
        self._cancelled, self._cancel_reason, self._try_count = False, "", job.tries
        self._started = job.started
        #: Address of the dashboard of a step's Dask cluster.
        self.dashboard = job.dashboard

    def cancel(self, why: str = "") -> None:
        """Cancel the job and end its steps; ``why`` is its reason, by default that in the store."""
        if not self._cancelled:  # a second one would interrupt the wait for the processes to end
            self._cancelled, self._cancel_reason = True, why
            self._abort(CANCELLED)

    def _abort(self, status: str) -> None:
        if self._executor is not None and self._work is not None:
            self._executor.ending = status
            self._work.cancel()

    async def end_processes(self) -> None:
        """End the running steps although their state cannot be stored."""
        if self._executor is not None:
            with suppress(JobStoreError, OSError):
                await self._executor.end_running()
            await self._close_runner()

    async def run(self) -> None:
        """Run the job to its end and store the outcome."""
        try:
            await self._run_and_store()
        finally:
            await self._close_runner()

    async def _close_runner(self) -> None:
        """Close the connections of the runner; a later request opens others."""
        if self._executor is not None and isinstance(self._executor.runner, ClosableRunner):
            closing = self._executor.runner.close()
            if inspect.isawaitable(closing):  # a runner of another package may close at once
                await closing

    async def _run_and_store(self) -> None:
        try:
            status, reason = await self._run_to_outcome()
        except JobStoreError:
            raise  # nothing can be stored now; the next supervisor continues the job
        except Exception as error:
            if is_disk_full(error):
                raise
            status, reason = FAILED, " ".join(f"{type(error).__name__}: {error}".split())[:500]
        ended: dict[str, Any] = {
            "status": status, "reason": reason, "ended": time.time(), "dashboard": ""
        }  # fmt: skip
        if not self.store.update(self.job.id, if_status=OPEN, **ended):
            return  # it has ended already
        # Not read from the store: that may fail now, or the job be resumed already.
        job = replace(self.job, started=self._started, tries=self._try_count, **ended)
        if status in (FAILED, TIMED_OUT) and self._settings.notify:
            log = "" if self._executor is None else self._executor.read_failed_log()
            self._end_notice = self._describe(job, "failed", log_tail=log), self._settings.notify
        elif status == DONE and self._settings.notify_success:
            self._end_notice = self._describe(job, "succeeded"), self._settings.notify_success
        remove_cancel_marker(self.job)

    def _describe(self, job: Job, event: Event, **more: Any) -> Notification:
        return Notification(job, event, message=self._snapshot.notify.message, **more)

    def send_end_notice(self) -> None:
        """Send the notification of the end of the job, if there is one, without waiting for it.

        After the lock of the job was given back: its receiver may resume the job at once.
        """
        notice, self._end_notice = self._end_notice, None
        if notice is not None:
            self._sender.send(notice[0], self.submission.environment, notice[1])

    async def _notify_if_late(self) -> None:
        """Wait until the job is late, and send this once for each submission and resume."""
        late_at = self.job.requested + self._settings.late_seconds
        await asyncio.sleep(late_at - time.time())
        marker = self.job.folder_path / _LATE_MARKER
        submitted = f"{self.job.requested}"
        try:
            if marker.exists() and marker.read_text() == submitted:
                return  # an earlier supervisor has sent it
            marker.write_text(submitted)
            attempts = self.store.attempts(self.job.id)
            running = [_format_unit(each) for each in attempts if each.status == IN_PROGRESS]
            job = self.store.get(self.job.id)
            notification = self._describe(job, "late", running=tuple(running))
            self._sender.send(notification, self.submission.environment, self._settings.notify_late)
        except (JobStoreError, OSError) as error:
            _log.warning("no notification that job %s is late: %s", self.job.id, error)

    async def _run_to_outcome(self) -> tuple[str, str]:
        started = self._started = self.job.started or time.time()
        # A job that is already cancelled is not marked as started: there may be no room for that.
        if not self._cancelled and not self.store.update(
            self.job.id, if_status=OPEN, status=IN_PROGRESS, started=started
        ):
            return CANCELLED, ""  # it has ended since it was claimed; nothing is stored
        executor = StepExecutor(
            self.store, self.job, self._capacity, self.submission, self._snapshot
        )
        await executor.load_attempts()
        self._executor = executor
        self._work = work = asyncio.ensure_future(self._run_with_retries(executor))
        late_notice = None
        if self._settings.notify_late:
            late_notice = asyncio.ensure_future(self._notify_if_late())
        if self._cancelled:
            self._abort(CANCELLED)
        try:
            deadline, reason_if_late = self._deadline(started)
            seconds = None if deadline == math.inf else max(0.0, deadline - time.time())
            await asyncio.wait({work}, timeout=seconds)
            late = not work.done() and not self._cancelled
            if late:
                self._abort(TIMED_OUT)
            await asyncio.wait({work})
        finally:
            work.cancel()  # if this task is cancelled; the steps then keep running
            if late_notice is not None:
                late_notice.cancel()
        if not work.cancelled():
            return work.result()
        await executor.end_running()
        if late:
            return TIMED_OUT, reason_if_late
        return CANCELLED, self._cancel_reason or self.store.get(self.job.id).reason

    def _deadline(self, started: float) -> tuple[float, str]:
        """Return when the job must have ended, and the reason if it has not."""
        limits = [(math.inf, "")]
        if self.job.timeout >= 0:
            limits.append((self.job.requested + self.job.timeout, timeout_reason(self.job.timeout)))
        if self.job.active_timeout >= 0:
            reason = f"exceeded its active_timeout of {self.job.active_timeout:g} s from its start"
            limits.append((started + self.job.active_timeout, reason))
        return min(limits)

    async def _run_with_retries(self, executor: StepExecutor) -> tuple[str, str]:
        tries = self._try_count = self.job.tries
        while True:
            failed = await self._run_steps(executor)
            if not failed:
                return DONE, ""
            tries = self._try_count = tries + 1
            self.store.update(self.job.id, tries=tries)
            own_limit = {step.name for step in executor.steps if step.retries is not None}
            final = [
                attempt for attempt in failed if attempt.fault == INPUT or attempt.step in own_limit
            ]
            if tries > self.job.max_retries or len(final) == len(failed):
                return FAILED, _format_reason(failed)
            await asyncio.sleep(jitter(retry_delay(tries, self._settings)))

    async def _run_steps(self, executor: StepExecutor) -> list[Attempt]:
        """Run the pending units whose dependencies are done; return the final failures."""
        usual = self._settings.chunks_at_once or machine.cores()

        def count_running(step: Step) -> int:
            sized = executor.sizes.resize(step)
            return executor.runner.chunks_at_once(self._capacity, sized, usual)

        queues = {
            step.name: _StepQueue(step, executor.pending_units(step), count_running(step))
            for step in executor.steps
        }
        running: dict[asyncio.Task[Attempt | None], WorkUnit] = {}
        failed: list[Attempt] = []
        try:
            while True:
                for unit in _pop_startable(queues):
                    task = asyncio.ensure_future(
                        self._run_unit(executor, queues[unit.step].step, unit)
                    )
                    running[task] = unit
                if not running:
                    return failed
                ended, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in ended:
                    failure = task.result()
                    queue = queues[running.pop(task).step]
                    queue.record_end(succeeded=failure is None)
                    # A forecast before the first attempt, or a lack of memory, changes the sizes.
                    queue.max_running = count_running(queue.step)
                    failed += [] if failure is None else [failure]
                    if queue.step.name in executor.skipped_steps:
                        queue.units.clear()
        finally:
            for task in running:
                task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*running, return_exceptions=True)

    async def _run_unit(self, executor: StepExecutor, step: Step, unit: WorkUnit) -> Attempt | None:
        """Run a step or chunk with retries; return its last failure, None if it succeeded."""
        # Steps without ``retries`` have one attempt for each try of the job.
        max_attempts = 1 + count_retries(step, self._try_count)
        while True:
            failed, lost = executor.recent_failures(unit)
            if failed and (failed[-1].fault == INPUT or len(failed) >= max_attempts):
                return failed[-1]
            if len(lost) > MAX_LOST_ATTEMPTS:
                return lost[-1]
            ended = await executor.run_attempt(step, unit)
            if ended.status == DONE:
                return None
            if ended.status != LOST:
                await asyncio.sleep(
                    jitter(retry_delay(len(failed) + 1, self._settings))
                    if len(failed) + 1 < max_attempts
                    else 0
                )


class _StepQueue:
    """Units of a step that have not started."""

    def __init__(self, step: Step, units: Iterable[WorkUnit], max_running: int) -> None:
        self.step, self.units, self.max_running = step, deque(units), max_running
        self.running, self.failed = 0, 0

    @property
    def done(self) -> bool:
        return not (self.units or self.running or self.failed)

    def record_end(self, *, succeeded: bool) -> None:
        self.running -= 1
        self.failed += not succeeded


def _pop_startable(queues: dict[str, _StepQueue]) -> Iterable[WorkUnit]:
    """Yield the units that can start now, and count them as running."""
    for queue in queues.values():
        if queue.units and all(queues[name].done for name in queue.step.depends_on):
            while queue.units and queue.running < queue.max_running:
                queue.running += 1
                yield queue.units.popleft()


def _format_reason(failed: list[Attempt]) -> str:
    named = [
        f"{_format_unit(attempt)} {attempt.status}: {attempt.reason}"
        for attempt in failed[:_MAX_REASONS]
    ]
    more = [f"and {len(failed) - _MAX_REASONS} more"] * (len(failed) > _MAX_REASONS)
    return "; ".join(named + more)


def _format_unit(attempt: Attempt) -> str:
    chunk = f" [{attempt.chunk}]" if attempt.chunk >= 0 else ""
    return f"step {attempt.step!r}{chunk}"
