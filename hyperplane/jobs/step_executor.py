"""Attempts at the steps of a job: each one made, written down, and found again after a kill."""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from hyperplane.jobs import redaction, requirements, runners, saved_shards, step_wrapper
from hyperplane.jobs.backoff import Backoff, is_disk_full
from hyperplane.jobs.capacity import Capacity
from hyperplane.jobs.definition.models import Step
from hyperplane.jobs.environment import (
    PROGRESS,
    cluster_variable,
    find_secrets,
    secret_variables,
    step_variables,
    without_other_secrets,
)  # fmt: skip
from hyperplane.jobs.faults import (
    INPUT,
    MEMORY,
    TRANSIENT,
    classify_failure,
    describe_failure,
    read_tail,
)
from hyperplane.jobs.processes import Command
from hyperplane.jobs.runners.base import StepProcess
from hyperplane.jobs.states import (
    DONE,
    FAILED,
    IN_PROGRESS,
    LOST,
    TIMED_OUT,
    Attempt,
    Job,
    WorkUnit,
)  # fmt: skip
from hyperplane.jobs.step_command import (
    SubmissionEnvironment,
    attempt_prefix,
    build_arguments,
    notebook_output_path,
    working_folder,
)
from hyperplane.jobs.store import JobStore
from hyperplane.jobs.submission_snapshot import SubmissionSnapshot
from hyperplane.units import parse_seconds

_log = logging.getLogger(__name__)
#: No such folder, no right to it, too many or too long arguments; anything else may pass.
_INPUT_ERRNOS = {errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.E2BIG}


class StepExecutor:
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
    kept : Kept
        What is kept of the submission.
    """

    def __init__(
        self,
        store: JobStore,
        job: Job,
        capacity: Capacity,
        handed: SubmissionEnvironment,
        kept: SubmissionSnapshot,
    ) -> None:
        self.store, self.job, self.capacity, self.handed = store, job, capacity, handed
        self.steps = tuple(
            map(kept.with_pool_resources, requirements.add_install_step(job.pipeline, job.python))
        )
        #: Steps whose chunks would all fail alike.
        self.hopeless: set[str] = set()
        #: What attempts become that are ended because the job is; empty while it goes on.
        self.ending = ""
        self.runner = runners.create_runner(job.runner, handed.environment, kept.runner)
        #: The job as its steps find it where they run.
        self._seen = self.runner.with_runtime_paths(job)
        self._pools = {one.name: one.resources.pool or "" for one in job.pipeline.steps}
        self._settings, self._notes = kept.settings, kept.notes
        self._looking = asyncio.Lock()
        self._there: dict[str, saved_shards.SavedShards] = {}
        self._made: dict[WorkUnit, list[Attempt]] = defaultdict(list)

    async def prepare(self) -> None:
        """Find out what has been done, by whomever."""
        # By their numbers: clocks may be put back.
        for attempt in sorted(self.store.attempts(self.job.id), key=lambda one: one.number):
            self._made[WorkUnit(attempt.step, attempt.chunk)].append(attempt)

    def open_units(self, step: Step) -> list[WorkUnit]:
        """What is not done of a step."""
        return [unit for unit in _work_units(step) if not self.is_done(unit)]

    def is_done(self, unit: WorkUnit) -> bool:
        """Whether an attempt at it was done."""
        return any(attempt.status == DONE for attempt in self._made[unit])

    def failures(self, unit: WorkUnit) -> tuple[list[Attempt], list[Attempt]]:
        """Attempts at it that failed, and that were lost, since the submission or last resume."""
        now = [one for one in self._made[unit] if one.started >= self.job.submitted]
        failed = [one for one in now if one.status in (FAILED, TIMED_OUT)]
        return failed, [one for one in now if one.status == LOST]

    async def end_running(self) -> None:
        """End what still runs, also what somebody began who was killed."""
        running = [unit for unit, made in self._made.items() if made[-1:] and _is_running(made[-1])]
        ended = await asyncio.gather(*map(self._end_attempt, running), return_exceptions=True)
        # Only now: what cannot be written down of one must not let another one run on.
        for one in ended:
            if isinstance(one, BaseException):
                raise one

    async def _end_attempt(self, unit: WorkUnit) -> None:
        chunks = {step.name: len(_work_units(step)) for step in self.steps}
        whole = WorkUnit(unit.step, unit.chunk, 0 if unit.chunk < 0 else chunks[unit.step])
        last = self._made[unit][-1]
        process = self.runner.reattach(
            Command((), {}, "", attempt_prefix(self.job, whole, last.number))
        )
        left = _with_end_time(last, process)
        code = await self._end(process)
        self._keep(replace(left, status=self._as_ended(code), exit_code=code))

    def last_words(self) -> str:
        """The end of the log of the attempt that failed last."""
        ended = [one for made in self._made.values() for one in made if one.ended and one.log]
        failed = [one for one in ended if one.status != DONE]
        return (
            read_tail(self.job.place / max(failed, key=lambda one: one.ended).log) if failed else ""
        )

    async def make(self, step: Step, unit: WorkUnit) -> Attempt:
        """One more attempt; or the one that runs, when somebody who was killed began it."""
        before = self._made[unit]
        if step.output is not None and not (before and before[-1].status == IN_PROGRESS):
            saved = await self._saved(step)
            if saved.wrong:
                self.hopeless.add(step.name)
                return self._keep(replace(self._new(unit, FAILED, saved.wrong), fault=INPUT))
            # Only before the first attempt: what failed once shall run.
            if not before and unit.chunk in saved.chunks:
                return self._keep(self._new(unit, DONE, reason="its shard is there already"))
        memory_faults = sum(attempt.fault == MEMORY for attempt in before)
        more = (step.more_memory or 1.0) ** memory_faults
        async with self.capacity.reserve(self.runner.demand(self.capacity, step, more)):
            if before and before[-1].status == IN_PROGRESS:
                found = before[-1]
                command = Command((), {}, "", attempt_prefix(self.job, unit, found.number))
                ended = await self._watch(step, found, self.runner.reattach(command))
                if ended.status != LOST:
                    return ended
            return await self._begin(step, unit, memory_faults, more)

    async def _saved(self, step: Step) -> saved_shards.SavedShards:
        """What a step had saved when the first one of its chunks could begin."""
        async with self._looking:
            if step.name not in self._there:
                found = await asyncio.to_thread(
                    saved_shards.find_saved_shards, step, self.job, self.store
                )
                self._there[step.name] = found
            return self._there[step.name]

    async def _begin(
        self, step: Step, unit: WorkUnit, memory_faults: int, memory_factor: float
    ) -> Attempt:
        attempt = self._new(unit, IN_PROGRESS)
        values, missing = find_secrets(
            step.secrets, self.handed.environment, self._settings.secrets
        )
        if missing:
            wrong = f"no secret {', '.join(missing)}: set the variable, or resume with it"
            return self._keep(replace(attempt, status=FAILED, reason=wrong, fault=INPUT))
        command = self._command(step, unit, attempt.number, memory_faults, values)
        # Whoever looks at it while it waits for its turn finds nothing, and no error.
        command.attempt_prefix.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        preface = self._preface(attempt)
        command.file(".log").write_text(preface, errors="replace")
        if preface:  # once more, since Slurm empties the log and Kubernetes has one without it
            command.file(step_wrapper.PREFACE_SUFFIX).write_text(preface, errors="replace")
        self._keep(replace(attempt, log=str(command.file(".log").relative_to(self.job.place))))
        try:
            process = await self._started(command, step, memory_factor)
        except OSError as error:
            wrong = f"it cannot be started: {error.strerror} ({error.filename})"
            fault = INPUT if error.errno in _INPUT_ERRNOS else TRANSIENT
            return self._keep(replace(attempt, status=FAILED, reason=wrong, fault=fault))
        return await self._watch(step, self._made[unit][-1], process)

    def _preface(self, attempt: Attempt) -> str:
        """What the log of the first attempt at the first step begins with."""
        first = self.job.pipeline.steps[0].name == attempt.step and attempt.chunk <= 0
        notes = self._notes if first and attempt.number == 1 else ()
        return "".join(f"warning: {one}\n" for one in notes)

    async def _started(self, command: Command, step: Step, memory_factor: float) -> StepProcess:
        """Begin an attempt; on a full disk wait until there is room."""
        backoff = Backoff(_log.warning)
        while True:
            try:
                process = await self.runner.start(command, step, memory_factor)
            except OSError as error:
                if not is_disk_full(error):
                    raise
                await asyncio.sleep(backoff.record_failure(error))
            else:
                backoff.record_success()
                return process

    def _command(
        self, step: Step, unit: WorkUnit, number: int, memory_faults: int, values: dict[str, str]
    ) -> Command:
        pieces = (step.split or 1) ** memory_faults
        python = requirements.select_interpreter(self.job.pipeline, self._seen.python)
        files = attempt_prefix(self.job, unit, number)
        there = self._seen
        seen = next((one for one in there.pipeline.steps if one.name == step.name), step)
        own = {**step_variables(there, step, unit, pieces), **cluster_variable(step, memory_faults)}
        hidden = secret_variables(values)
        environment = {
            **without_other_secrets(step, self.steps, self.handed.environment),
            **own,
            **hidden,
            PROGRESS: str(files.with_name(f"{files.name}.progress")),
            step_wrapper.LOG_LIMIT_VARIABLE: str(self._settings.log_bytes),
        }
        return Command(
            build_arguments(there, seen, unit, python),
            environment,
            working_folder(there.pipeline, seen),
            files,
            own,
            hidden,
            Path(self.job.pipeline.root, step.path) if step.path else None,
            self._pools.get(step.name, ""),
            notebook_output_path(self.job, step, unit) if step.kind == "notebook" else None,
        )

    async def _watch(self, step: Step, attempt: Attempt, process: StepProcess) -> Attempt:
        """Wait for the end of an attempt, and write it down."""
        late = False
        attempt = _with_end_time(attempt, process)
        try:
            began = await self._began(attempt, process)
            left = None if step.timeout is None else step.timeout + began - time.time()
            code = process.exit_code()  # it may have ended while nobody looked
            if code is None or left is None or left > 0:
                code = await asyncio.wait_for(process.wait(), left and max(0.0, left))
        except TimeoutError:
            late, code = True, await self._end(process)
        except asyncio.CancelledError:
            if not self.ending:
                raise  # the supervisor ends, and the step goes on
            code = await self._end(process)
            await self._cleared(step, attempt, process)
            self._keep(replace(attempt, status=self._as_ended(code), exit_code=code))
            raise
        values = await self._cleared(step, attempt, process)
        if code == 0:
            return self._keep(replace(attempt, status=DONE, exit_code=0))
        text = read_tail(process.command.file(".log"))
        if values:
            text = redaction.redact_text(text, values)
        if late:
            status, fault = TIMED_OUT, TRANSIENT
            wrong = f"the step's timeout of {step.timeout:g} s is over"
        else:
            status = LOST if code is None else FAILED
            wrong, fault = describe_failure(code, text), classify_failure(code, text)
        return self._keep(
            replace(attempt, status=status, exit_code=code, reason=wrong, fault=fault)
        )

    async def _began(self, attempt: Attempt, process: StepProcess) -> float:
        """When it began to run: a step's timeout does not count the time in somebody's queue."""
        await process.wait_until_running()
        try:
            return max(attempt.started, process.command.file(".pid").stat().st_mtime)
        except OSError:  # it has not come so far
            return attempt.started

    async def _cleared(self, step: Step, attempt: Attempt, process: StepProcess) -> tuple[str, ...]:
        """Take the step's secrets out of its log and its notebook; their values."""
        values, _ = find_secrets(step.secrets, self.handed.environment, self._settings.secrets)
        hidden = tuple(values.values())
        if hidden:
            await asyncio.to_thread(redaction.redact_file, process.command.file(".log"), hidden)
            if step.kind == "notebook":
                chunks = step.chunk_count
                unit = WorkUnit(step.name, attempt.chunk, chunks)
                notebook = notebook_output_path(self.job, step, unit)
                await asyncio.to_thread(redaction.redact_file, notebook, hidden)
        return hidden

    def _as_ended(self, code: int | None) -> str:
        return DONE if code == 0 else self.ending

    async def _end(self, process: StepProcess) -> int | None:
        # To the end, even if somebody loses patience meanwhile.
        grace = float(parse_seconds(self._settings.grace))
        return await asyncio.shield(process.end(grace))

    def _new(self, unit: WorkUnit, status: str, reason: str = "") -> Attempt:
        number = len(self._made[unit]) + 1
        now = time.time()
        return Attempt(
            self.job.id, unit.step, unit.chunk, number, status, started=now, reason=reason
        )

    def _keep(self, attempt: Attempt) -> Attempt:
        if attempt.status != IN_PROGRESS:
            attempt = replace(attempt, ended=attempt.ended or time.time())
        made = self._made[WorkUnit(attempt.step, attempt.chunk)]
        made[attempt.number - 1 :] = [attempt]
        self.store.save_attempt(attempt)
        return attempt


def _with_end_time(attempt: Attempt, process: StepProcess) -> Attempt:
    """An attempt with the time of its end, if that was before anybody looked."""
    gone = process.end_time()
    return replace(attempt, ended=max(attempt.started, gone)) if gone else attempt


def _is_running(attempt: Attempt) -> bool:
    return attempt.status == IN_PROGRESS


def _work_units(step: Step) -> list[WorkUnit]:
    chunks = step.chunk_count
    if not chunks:
        return [WorkUnit(step.name)]
    return [WorkUnit(step.name, chunk, chunks) for chunk in range(chunks)]
