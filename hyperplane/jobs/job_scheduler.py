"""One job, from where it stands to its end."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress

from hyperplane.engines import machine
from hyperplane.errors import JobStoreError
from hyperplane.jobs import cancel_marker, notifications, submission_snapshot
from hyperplane.jobs.backoff import is_disk_full
from hyperplane.jobs.capacity import Capacity
from hyperplane.jobs.definition.models import Step
from hyperplane.jobs.faults import INPUT
from hyperplane.jobs.states import (
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
from hyperplane.jobs.step_command import SubmissionEnvironment
from hyperplane.jobs.step_executor import StepExecutor
from hyperplane.jobs.store import JobStore
from hyperplane.units import parse_seconds

#: Failed attempts that the reason of a job names.
_MAX_REASONS = 3
#: How often a process may be killed by nobody knows whom; that is no fault of the step.
_MAX_LOST_ATTEMPTS = 5


class JobScheduler:
    """Starts the steps of a job as soon as those before them are done, again where that may help.

    Parameters
    ----------
    store : JobStore
        Where the job is kept.
    job : Job
        The job; steps that are done are not run again.
    capacity : Capacity
        What steps may take, together with those of other jobs.
    handed : Handed
        What the submission handed over.
    """

    def __init__(
        self, store: JobStore, job: Job, capacity: Capacity, handed: SubmissionEnvironment
    ) -> None:
        self.store, self.job = store, job
        self._kept = submission_snapshot.load_snapshot(job)
        self._settings = self._kept.settings
        self._capacity, self._handed = capacity, handed
        self._attempts: StepExecutor | None = None
        self._work: asyncio.Task[tuple[str, str]] | None = None
        self._cancelled, self._why, self._tried = False, "", 0
        #: Address of the dashboard of the Dask cluster that a step has.
        self.dashboard = job.dashboard

    def cancel(self, why: str = "") -> None:
        """End what runs; the job is cancelled then, and the store says why unless it is told."""
        if not self._cancelled:  # once: a second time would not wait for the processes to end
            self._cancelled, self._why = True, why
            self._break_off(CANCELLED)

    def _break_off(self, status: str) -> None:
        if self._attempts is not None and self._work is not None:
            self._attempts.ending = status
            self._work.cancel()

    async def end_processes(self) -> None:
        """End what runs, though nothing can be written down."""
        if self._attempts is not None:
            with suppress(JobStoreError, OSError):
                await self._attempts.end_running()

    async def run(self) -> None:
        """Work until the job has ended, and say so in the store."""
        try:
            status, reason = await self._outcome()
        except JobStoreError:
            raise  # nothing can be written down now; whoever comes next goes on
        except Exception as error:
            if is_disk_full(error):
                raise
            status, reason = FAILED, " ".join(f"{type(error).__name__}: {error}".split())[:500]
        ended = {"status": status, "reason": reason, "ended": time.time(), "dashboard": ""}
        self.store.update(self.job.id, if_status=OPEN, **ended)
        cancel_marker.remove_marker(self.job)
        if status in (FAILED, TIMED_OUT) and self._settings.notify:
            log = "" if self._attempts is None else self._attempts.last_words()
            now, environment = self.store.get(self.job.id), self._handed.environment
            targets = self._settings.notify
            await asyncio.to_thread(notifications.notify, now, log, environment, targets)

    async def _outcome(self) -> tuple[str, str]:
        started = self.job.started or time.time()
        # What is cancelled already needs no word of its beginning, for which there may be no room.
        if not self._cancelled and not self.store.update(
            self.job.id, if_status=OPEN, status=IN_PROGRESS, started=started
        ):
            return CANCELLED, ""  # it has ended since it was claimed; nothing more is written
        attempts = StepExecutor(self.store, self.job, self._capacity, self._handed, self._kept)
        await attempts.prepare()
        self._attempts = attempts
        self._work = work = asyncio.ensure_future(self._tries(attempts))
        if self._cancelled:
            self._break_off(CANCELLED)
        try:
            end, over = self._limit(started)
            left = None if end == math.inf else max(0.0, end - time.time())
            await asyncio.wait({work}, timeout=left)
            late = not work.done() and not self._cancelled
            if late:
                self._break_off(TIMED_OUT)
            await asyncio.wait({work})
        finally:
            work.cancel()  # if we are cancelled ourselves; its steps go on then
        if not work.cancelled():
            return work.result()
        await attempts.end_running()
        if late:
            return TIMED_OUT, over
        return CANCELLED, self._why or self.store.get(self.job.id).reason

    def _limit(self, started: float) -> tuple[float, str]:
        """When the job's time is over, and which of its limits that is."""
        limits = [(math.inf, "")]
        if self.job.timeout >= 0:
            limits.append((self.job.submitted + self.job.timeout, timeout_reason(self.job.timeout)))
        if self.job.active_timeout >= 0:
            why = f"its active_timeout of {self.job.active_timeout:g} s from its start is over"
            limits.append((started + self.job.active_timeout, why))
        return min(limits)

    async def _tries(self, attempts: StepExecutor) -> tuple[str, str]:
        tries = self._tried = self.job.tries
        while True:
            failed = await self._steps(attempts)
            if not failed:
                return DONE, ""
            tries = self._tried = tries + 1
            self.store.update(self.job.id, tries=tries)
            own = {step.name for step in attempts.steps if step.retries is not None}
            final = [one for one in failed if one.fault == INPUT or one.step in own]
            if tries > self.job.max_retries or len(final) == len(failed):
                return FAILED, _format_reason(failed)
            await asyncio.sleep(self._pause(tries))

    def _pause(self, times: int) -> float:
        """Seconds before another attempt; jobs that failed together shall part."""
        first = float(parse_seconds(self._settings.retry_wait))
        most = float(parse_seconds(self._settings.retry_wait_most))
        return min(most, first * 2.0 ** (times - 1)) * random.uniform(0.5, 1.0)  # noqa: S311

    async def _steps(self, attempts: StepExecutor) -> list[Attempt]:
        """Run all that is not done, as far as that can be; the attempts that failed at last."""
        usual = self._settings.chunks_at_once or machine.cores()
        todo = {
            step.name: _StepQueue(
                step,
                attempts.open_units(step),
                attempts.runner.chunks_at_once(self._capacity, step, usual),
            )
            for step in attempts.steps
        }
        running: dict[asyncio.Task[Attempt | None], WorkUnit] = {}
        failed: list[Attempt] = []
        try:
            while True:
                for unit in _pop_startable(todo):
                    task = asyncio.ensure_future(self._unit(attempts, todo[unit.step].step, unit))
                    running[task] = unit
                if not running:
                    return failed
                ended, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in ended:
                    last = task.result()
                    step = todo[running.pop(task).step]
                    step.ended(well=last is None)
                    failed += [] if last is None else [last]
                    if step.step.name in attempts.hopeless:
                        step.units.clear()  # they would all fail alike
        finally:
            for task in running:
                task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*running, return_exceptions=True)

    async def _unit(self, attempts: StepExecutor, step: Step, unit: WorkUnit) -> Attempt | None:
        """Attempts at a step or chunk until one is done; the last one when none was."""
        # A step that says how often is tried so often, and no more with the job.
        most = 1 + (self._tried if step.retries is None else step.retries)
        while True:
            failed, lost = attempts.failures(unit)
            if failed and (failed[-1].fault == INPUT or len(failed) >= most):
                return failed[-1]
            if len(lost) > _MAX_LOST_ATTEMPTS:
                return lost[-1]
            ended = await attempts.make(step, unit)
            if ended.status == DONE:
                return None
            if ended.status != LOST:
                await asyncio.sleep(self._pause(len(failed) + 1) if len(failed) + 1 < most else 0)


class _StepQueue:
    """What is left to do of a step."""

    def __init__(self, step: Step, units: Iterable[WorkUnit], at_once: int) -> None:
        self.step, self.units, self.at_once = step, deque(units), at_once
        self.running, self.failed = 0, 0

    @property
    def done(self) -> bool:
        return not (self.units or self.running or self.failed)

    def ended(self, *, well: bool) -> None:
        self.running -= 1
        self.failed += not well


def _pop_startable(todo: dict[str, _StepQueue]) -> Iterable[WorkUnit]:
    for one in todo.values():
        if one.units and all(todo[name].done for name in one.step.depends_on):
            while one.units and one.running < one.at_once:
                one.running += 1
                yield one.units.popleft()


def _format_reason(failed: list[Attempt]) -> str:
    named = [f"{_format_unit(one)} {one.status}: {one.reason}" for one in failed[:_MAX_REASONS]]
    more = [f"and {len(failed) - _MAX_REASONS} more"] * (len(failed) > _MAX_REASONS)
    return "; ".join(named + more)


def _format_unit(attempt: Attempt) -> str:
    chunk = f" [{attempt.chunk}]" if attempt.chunk >= 0 else ""
    return f"step {attempt.step!r}{chunk}"
