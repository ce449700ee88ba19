"""Attempts at the steps of a job: each one made, written down, and found again after a kill."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from dataclasses import replace

from dask.utils import parse_timedelta

from hyperplane import config
from hyperplane.jobs import requirements, shards_done
from hyperplane.jobs.capacity import Capacity
from hyperplane.jobs.definition.models import Step
from hyperplane.jobs.environment import PROGRESS, grown, secret_variables, secrets, variables
from hyperplane.jobs.faults import INPUT, MEMORY, PASSING, kind_of, reason_of, tail
from hyperplane.jobs.processes import Command, Process
from hyperplane.jobs.programs import Handed, arguments, folder_of, traces
from hyperplane.jobs.redaction import redact
from hyperplane.jobs.states import (
    CANCELLED,
    DONE,
    FAILED,
    IN_PROGRESS,
    LOST,
    TIMED_OUT,
    Attempt,
    Job,
    Unit,
)  # fmt: skip
from hyperplane.jobs.store import JobStore


class Attempts:
    """The attempts of one job.

    Parameters
    ----------
    store : JobStore
        Where they are kept.
    job : Job
        The job.
    capacity : Capacity
        What steps may take.
    handed : Handed
        What the submission handed over.
    """

    def __init__(self, store: JobStore, job: Job, capacity: Capacity, handed: Handed) -> None:
        self.store, self.job, self.capacity, self.handed = store, job, capacity, handed
        self.steps = requirements.steps(job.pipeline, handed.python)
        #: What attempts are that are ended from outside.
        self.ended_as = CANCELLED
        self._settings = config.jobs()
        self._made: dict[Unit, list[Attempt]] = defaultdict(list)

    async def prepare(self) -> None:
        """Find out what has been done, by whomever."""
        for attempt in self.store.attempts(self.job.id):
            self._made[Unit(attempt.step, attempt.chunk)].append(attempt)
        for step in self.steps:
            if step.output is not None:
                there = await asyncio.to_thread(shards_done.of, step, self.job)
                for unit in _units(step):
                    if unit.chunk in there and not self.is_done(unit):
                        self._keep(self._new(unit, DONE, reason="its shard is there already"))

    def open_units(self, step: Step) -> list[Unit]:
        """What is not done of a step."""
        return [unit for unit in _units(step) if not self.is_done(unit)]

    def is_done(self, unit: Unit) -> bool:
        """Whether an attempt at it was done."""
        return any(attempt.status == DONE for attempt in self._made[unit])

    def last_words(self) -> str:
        """The end of the log of the attempt that failed last."""
        ended = [one for made in self._made.values() for one in made if one.ended and one.log]
        failed = [one for one in ended if one.status != DONE]
        return tail(self.job.place / max(failed, key=lambda one: one.ended).log) if failed else ""

    async def make(self, step: Step, unit: Unit) -> Attempt:
        """One more attempt; or the one that runs, when somebody who was killed began it."""
        before = self._made[unit]
        if before and before[-1].status == IN_PROGRESS:
            found = before[-1]
            command = Command((), {}, "", traces(self.job, unit, found.number))
            ended = await self._watch(step, found, Process(command))
            if ended.status != LOST:
                return ended
        memory_faults = sum(attempt.fault == MEMORY for attempt in before)
        more = (step.more_memory or 1.0) ** memory_faults
        async with self.capacity.taken(self.capacity.demand(step, more)):
            return await self._begin(step, unit, memory_faults)

    async def _begin(self, step: Step, unit: Unit, memory_faults: int) -> Attempt:
        attempt = self._new(unit, IN_PROGRESS)
        values, missing = secrets(step.secrets, self.handed.environment, self._settings.secrets)
        if missing:
            wrong = f"no secret {', '.join(missing)}: set the variable, or resume with it"
            return self._keep(replace(attempt, status=FAILED, reason=wrong, fault=INPUT))
        command = self._command(step, unit, attempt.number, memory_faults, values)
        self._keep(replace(attempt, log=str(command.file(".log").relative_to(self.job.place))))
        try:
            process = Process.start(command)
        except OSError as error:
            wrong = f"it cannot be started: {error.strerror} ({error.filename})"
            return self._keep(replace(attempt, status=FAILED, reason=wrong, fault=INPUT))
        ended = await self._watch(step, self._made[unit][-1], process)
        await asyncio.to_thread(redact, command.file(".log"), tuple(values.values()))
        return ended

    def _command(
        self, step: Step, unit: Unit, number: int, memory_faults: int, values: dict[str, str]
    ) -> Command:
        pieces = (step.split or 1) ** memory_faults
        python = requirements.interpreter(self.job.pipeline, self.handed.python)
        of_others = {name for other in self.steps for name in other.secrets}
        inherited = {
            name: value for name, value in self.handed.environment.items() if name not in of_others
        }
        files = traces(self.job, unit, number)
        environment = {
            **inherited,
            **variables(self.job, step, unit, pieces),
            **grown(step, memory_faults),
            **secret_variables(values),
            PROGRESS: str(files.with_name(f"{files.name}.progress")),
        }
        folder = folder_of(self.job.pipeline, step)
        return Command(arguments(self.job, step, unit, python), environment, folder, files)

    async def _watch(self, step: Step, attempt: Attempt, process: Process) -> Attempt:
        """Wait for the end of an attempt, and write it down."""
        status = ""
        left = None if step.timeout is None else step.timeout + attempt.started - time.time()
        try:
            code = await asyncio.wait_for(process.wait(), left if left is None else max(0.0, left))
        except asyncio.TimeoutError:
            status, code = TIMED_OUT, await self._end(process)
        except asyncio.CancelledError:
            code = await self._end(process)
            self._keep(replace(attempt, status=self.ended_as, exit_code=code))
            raise
        if code == 0 and not status:
            return self._keep(replace(attempt, status=DONE, exit_code=0))
        text = tail(process.command.file(".log"))
        if status:
            wrong, fault = f"it took longer than {step.timeout:g} s", PASSING
        else:
            status = LOST if code is None else FAILED
            wrong, fault = reason_of(code, text), kind_of(code, text)
        return self._keep(
            replace(attempt, status=status, exit_code=code, reason=wrong, fault=fault)
        )

    async def _end(self, process: Process) -> int | None:
        # To the end, even if somebody loses patience meanwhile.
        await asyncio.shield(process.end(float(parse_timedelta(self._settings.grace))))
        return process.exit_code()

    def _new(self, unit: Unit, status: str, reason: str = "") -> Attempt:
        number = len(self._made[unit]) + 1
        now = time.time()
        return Attempt(
            self.job.id, unit.step, unit.chunk, number, status, started=now, reason=reason
        )

    def _keep(self, attempt: Attempt) -> Attempt:
        if attempt.status != IN_PROGRESS:
            attempt = replace(attempt, ended=time.time())
        made = self._made[Unit(attempt.step, attempt.chunk)]
        made[attempt.number - 1 :] = [attempt]
        self.store.put(attempt)
        return attempt


def _units(step: Step) -> list[Unit]:
    chunks = step.chunks or len(step.foreach or ())
    if not chunks:
        return [Unit(step.name)]
    return [Unit(step.name, chunk, chunks) for chunk in range(chunks)]
