"""One job, from where it stands to its end."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress

from dask.utils import parse_timedelta

from hyperplane import config
from hyperplane.jobs import notices
from hyperplane.jobs.attempts import Attempts
from hyperplane.jobs.capacity import Capacity, chunks_at_once
from hyperplane.jobs.definition.models import Step
from hyperplane.jobs.faults import INPUT
from hyperplane.jobs.programs import Handed
from hyperplane.jobs.states import (
    CANCELLED,
    DONE,
    FAILED,
    IN_PROGRESS,
    OPEN,
    TIMED_OUT,
    Attempt,
    Job,
    Unit,
)  # fmt: skip
from hyperplane.jobs.store import JobStore

#: Failed attempts that the reason of a job names.
_NAMED = 3


class Conductor:
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

    def __init__(self, store: JobStore, job: Job, capacity: Capacity, handed: Handed) -> None:
        self.store, self.job = store, job
        self._settings = config.jobs()
        self._capacity, self._handed = capacity, handed
        self._attempts: Attempts | None = None
        self._work: asyncio.Task[tuple[str, str]] | None = None
        self._cancelled = False
        #: Address of the dashboard of the Dask cluster that a step has.
        self.dashboard = job.dashboard

    def cancel(self) -> None:
        """End what runs; the job is cancelled then."""
        if not self._cancelled:  # once: a second time would not wait for the processes to end
            self._cancelled = True
            if self._work is not None:
                self._work.cancel()

    async def run(self) -> None:
        """Work until the job has ended, and say so in the store."""
        job = self.job
        started = job.started or time.time()
        self.store.update(job.id, among=OPEN, status=IN_PROGRESS, started=started)
        self._work = asyncio.ensure_future(self._tries())
        if self._cancelled:
            self._work.cancel()
        await asyncio.wait({self._work}, timeout=self._left(started))
        late = not self._work.done() and not self._cancelled
        if late:
            self._cancelled = True
            if self._attempts is not None:
                self._attempts.ended_as = TIMED_OUT
            self._work.cancel()
        await asyncio.wait({self._work})
        if self._work.cancelled():
            timed_out = "it took longer than it may", TIMED_OUT
            reason, status = timed_out if late else ("somebody cancelled it", CANCELLED)
        else:
            status, reason = _outcome(self._work)
        ended = {"status": status, "reason": reason, "ended": time.time(), "dashboard": ""}
        self.store.update(job.id, among=OPEN, **ended)
        if status in (FAILED, TIMED_OUT) and self._settings.notify:
            log = "" if self._attempts is None else self._attempts.last_words()
            now, environment = self.store.get(job.id), self._handed.environment
            await asyncio.to_thread(notices.notify, now, log, environment)

    def _left(self, started: float) -> float | None:
        limits = ((self.job.submitted, self.job.timeout), (started, self.job.active_timeout))
        left = [begin + limit - time.time() for begin, limit in limits if limit >= 0]
        return max(0.0, min(left)) if left else None

    async def _tries(self) -> tuple[str, str]:
        # Here, where a fault of the definition ends this job and no other.
        self._attempts = attempts = Attempts(self.store, self.job, self._capacity, self._handed)
        tries = self.job.tries
        await attempts.prepare()
        while True:
            failed = await self._steps(attempts)
            if not failed:
                return DONE, ""
            tries += 1
            self.store.update(self.job.id, tries=tries)
            if tries > self.job.max_retries or all(one.fault == INPUT for one in failed):
                return FAILED, _reason(failed)
            await asyncio.sleep(self._pause(tries))

    def _pause(self, times: int) -> float:
        """Seconds before another attempt; jobs that failed together shall part."""
        first = float(parse_timedelta(self._settings.retry_wait))
        most = float(parse_timedelta(self._settings.retry_wait_most))
        return min(most, first * 2.0 ** (times - 1)) * random.uniform(0.5, 1.0)  # noqa: S311

    async def _steps(self, attempts: Attempts) -> list[Attempt]:
        """Run all that is not done, as far as that can be; the attempts that failed at last."""
        todo = {step.name: _Todo(step, attempts.open_units(step)) for step in attempts.steps}
        running: dict[asyncio.Task[Attempt | None], Unit] = {}
        failed: list[Attempt] = []
        try:
            while True:
                for unit in _startable(todo):
                    task = asyncio.ensure_future(self._unit(attempts, todo[unit.step].step, unit))
                    running[task] = unit
                if not running:
                    return failed
                ended, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in ended:
                    last = task.result()
                    todo[running.pop(task).step].ended(well=last is None)
                    failed += [] if last is None else [last]
        finally:
            for task in running:
                task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*running, return_exceptions=True)

    async def _unit(self, attempts: Attempts, step: Step, unit: Unit) -> Attempt | None:
        """Attempts at a step or chunk until one is done; the last one when none was."""
        again = 0
        while True:
            ended = await attempts.make(step, unit)
            if ended.status == DONE:
                return None
            again += 1
            if again > (step.retries or 0) or ended.fault == INPUT:
                return ended
            await asyncio.sleep(self._pause(again))


class _Todo:
    """What is left to do of a step."""

    def __init__(self, step: Step, units: Iterable[Unit]) -> None:
        self.step, self.units = step, deque(units)
        self.running, self.failed = 0, 0
        self.at_once = chunks_at_once(step)

    @property
    def done(self) -> bool:
        return not (self.units or self.running or self.failed)

    def ended(self, *, well: bool) -> None:
        self.running -= 1
        self.failed += not well


def _startable(todo: dict[str, _Todo]) -> Iterable[Unit]:
    for one in todo.values():
        if one.units and all(todo[name].done for name in one.step.depends_on):
            while one.units and one.running < one.at_once:
                one.running += 1
                yield one.units.popleft()


def _reason(failed: list[Attempt]) -> str:
    named = [f"{_where(one)} {one.status}: {one.reason}" for one in failed[:_NAMED]]
    more = [f"and {len(failed) - _NAMED} more"] * (len(failed) > _NAMED)
    return "; ".join(named + more)


def _where(attempt: Attempt) -> str:
    chunk = f" [{attempt.chunk}]" if attempt.chunk >= 0 else ""
    return f"step {attempt.step!r}{chunk}"


def _outcome(work: asyncio.Task[tuple[str, str]]) -> tuple[str, str]:
    error = work.exception()
    if error is None:
        return work.result()
    # A fault of ours or of the machine ends this job, and not the supervisor of all jobs.
    return FAILED, f"{type(error).__name__}: {error}"
