"""Run attempts at the steps of a job, store them, and reattach to them after a kill."""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from hyperplane.clusters import gang_plan
from hyperplane.core.units import parse_seconds
from hyperplane.history.store import RECORDS_FOLDER
from hyperplane.jobs import step_wrapper
from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution import redaction, requirements, saved_shards, step_graphql
from hyperplane.jobs.execution.attempt_facts import write_facts
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.execution.attempt_results import AttemptResults, make_result_variables
from hyperplane.jobs.execution.failure_kinds import (
    INPUT,
    MEMORY,
    TRANSIENT,
    classify_failure,
    describe_failure,
)  # fmt: skip
from hyperplane.jobs.execution.resource_allocator import ResourceAllocator
from hyperplane.jobs.execution.retries import count_retries
from hyperplane.jobs.execution.run_recording import records_folder
from hyperplane.jobs.execution.step_command import (
    attempt_prefix,
    build_arguments,
    list_units,
    notebook_output_path,
    working_folder,
)
from hyperplane.jobs.execution.step_environment import (
    PROGRESS,
    find_secrets,
    gang_variables,
    secret_variables,
    step_variables,
    without_other_secrets,
)
from hyperplane.jobs.execution.step_forecaster import StepForecaster, read_forecast
from hyperplane.jobs.execution.step_log import begin_log, read_tail
from hyperplane.jobs.execution.step_sizes import StepSizes
from hyperplane.jobs.runners.base import SharedFilesystemMixin, StepProcess
from hyperplane.jobs.runners.registry import create_runner
from hyperplane.jobs.store.backoff import Backoff, is_disk_full
from hyperplane.jobs.store.job_records import (
    DONE,
    FAILED,
    IN_PROGRESS,
    LOST,
    TIMED_OUT,
    Attempt,
    Job,
    WorkUnit,
)  # fmt: skip
from hyperplane.jobs.store.job_store import JobStore
from hyperplane.jobs.submission.submission_environment import SubmissionEnvironment
from hyperplane.jobs.submission.submission_snapshot import SubmissionSnapshot

_log = logging.getLogger(__name__)
#: Missing folder or permission, or too many arguments; other errors may be transient.
_INPUT_ERRNOS = {errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.E2BIG}


class StepExecutor:
    """Run and record attempts at the steps of one job.

    Parameters
    ----------
    store : JobStore
        Store of the attempts.
    job : Job
        The job.
    capacity : ResourceAllocator
        Resources of this machine.
    submission : SubmissionEnvironment
        Environment that the job was submitted with.
    snapshot : SubmissionSnapshot
        Settings that the job was submitted with.
    """

    def __init__(
        self,
        store: JobStore,
        job: Job,
        capacity: ResourceAllocator,
        submission: SubmissionEnvironment,
        snapshot: SubmissionSnapshot,
    ) -> None:
        self.store, self.job, self.capacity, self.submission = store, job, capacity, submission
        self.sizes = StepSizes(store, job, snapshot, submission.environment)
        self.steps = tuple(
            self.sizes.add(step, read_forecast(job, step))
            for step in requirements.add_install_step(job.pipeline, job.python)
        )
        #: Steps whose remaining chunks are not run, because all would fail for the same reason.
        self.skipped_steps: set[str] = set()
        #: Status of attempts that are ended together with the job; empty while the job runs.
        self.ending = ""
        self.runner = create_runner(job.runner, submission.environment, snapshot.runner)
        #: The job with paths that are valid where its steps run, such as in a pod.
        self._runtime_job = self.runner.with_runtime_paths(job)
        self._settings, self._notes = snapshot.settings, snapshot.notes
        self._forecaster = StepForecaster(
            job, self.runner, capacity, submission.environment, snapshot, self.sizes
        )
        self._results = AttemptResults(
            store, job, self.runner, submission.environment, snapshot.settings.secrets
        )
        self._shards_lock = asyncio.Lock()
        self._saved_shards: dict[str, saved_shards.SavedShards] = {}
        self._attempts: dict[WorkUnit, list[Attempt]] = defaultdict(list)

    async def load_attempts(self) -> None:
        """Load finished and running attempts from the store, and end earlier forecasts."""
        await self._forecaster.end_earlier()
        # Sorted by number, not by time: clocks may be set back.
        for attempt in sorted(self.store.attempts(self.job.id), key=lambda attempt: attempt.number):
            self._attempts[WorkUnit(attempt.step, attempt.chunk)].append(attempt)

    def pending_units(self, step: Step) -> list[WorkUnit]:
        """Return the units of a step that are not done."""
        return [unit for unit in list_units(step) if not self.is_done(unit)]

    def is_done(self, unit: WorkUnit) -> bool:
        """Whether an attempt at a unit succeeded."""
        return any(attempt.status == DONE for attempt in self._attempts[unit])

    def recent_failures(self, unit: WorkUnit) -> tuple[list[Attempt], list[Attempt]]:
        """Return failed and lost attempts since the submission or the last resume."""
        recent = [
            attempt for attempt in self._attempts[unit] if attempt.started >= self.job.requested
        ]
        failed = [attempt for attempt in recent if attempt.status in (FAILED, TIMED_OUT)]
        return failed, [attempt for attempt in recent if attempt.status == LOST]

    async def end_running(self) -> None:
        """End all running attempts, also those that an earlier supervisor started."""
        running = [
            unit
            for unit, attempts in self._attempts.items()
            if attempts[-1:] and attempts[-1].status == IN_PROGRESS
        ]
        results = await asyncio.gather(*map(self._end_attempt, running), return_exceptions=True)
        # Raised at the end: an error while storing one attempt must not leave another running.
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _end_attempt(self, unit: WorkUnit) -> None:
        chunks = {step.name: len(list_units(step)) for step in self.steps}
        count = 0 if unit.chunk < 0 else chunks[unit.step]
        unit_with_count = WorkUnit(unit.step, unit.chunk, count)
        last = self._attempts[unit][-1]
        process = self.runner.reattach(
            AttemptCommand((), {}, "", attempt_prefix(self.job, unit_with_count, last.number))
        )
        attempt = _with_end_time(last, process)
        code = await self._end(process)
        for step in self.steps:
            if step.name == unit.step:
                await self._results.finish(step, attempt, process.command, code)
        self._store(replace(attempt, status=self._final_status(code), exit_code=code))

    def read_failed_log(self) -> str:
        """Return the end of the log of the attempt that failed last."""
        ended = [
            attempt
            for attempts in self._attempts.values()
            for attempt in attempts
            if attempt.ended and attempt.log
        ]
        failed = [attempt for attempt in ended if attempt.status != DONE]
        return (
            read_tail(self.job.folder_path / max(failed, key=lambda attempt: attempt.ended).log)
            if failed
            else ""
        )

    async def run_attempt(self, step: Step, unit: WorkUnit) -> Attempt:
        """Run an attempt, or reattach to the one that an earlier supervisor started."""
        before = self._attempts[unit]
        is_new = not (before and before[-1].status == IN_PROGRESS)
        if step.output is not None and is_new:
            saved = await self._find_saved(step)
            if saved.conflict:
                self.skipped_steps.add(step.name)
                return self._store(
                    replace(self._new_attempt(unit, FAILED, saved.conflict), fault=INPUT)
                )
            # Only before the first attempt: a chunk that has failed is run again.
            if not before and unit.chunk in saved.chunks:
                return await self._record_saved(step, unit)
        if is_new:
            await self._forecaster.forecast(step, unit)
        step = self.sizes.resize(step)
        memory_faults = sum(attempt.fault == MEMORY for attempt in before)
        memory_factor = self.sizes.memory_factor(step, memory_faults)
        async with self.capacity.reserve(self.runner.demand(self.capacity, step, memory_factor)):
            if not is_new:
                running = before[-1]
                command = AttemptCommand((), {}, "", attempt_prefix(self.job, unit, running.number))
                ended = await self._wait_and_record(step, running, self.runner.reattach(command))
                if ended.status != LOST:
                    return ended
            return await self._start_attempt(step, unit, memory_faults, memory_factor)

    async def _record_saved(self, step: Step, unit: WorkUnit) -> Attempt:
        """Store an attempt at a chunk whose shard was saved before, and that shard."""
        attempt = self._new_attempt(unit, DONE, reason="its shard was already saved")
        command = AttemptCommand((), {}, "", attempt_prefix(self.job, unit, attempt.number))
        await self._results.finish(step, attempt, command, 0)
        return self._store(attempt)

    async def _find_saved(self, step: Step) -> saved_shards.SavedShards:
        """Return the shards that were saved before the first chunk of a step started."""
        async with self._shards_lock:
            if step.name not in self._saved_shards:
                saved = await asyncio.to_thread(
                    saved_shards.find_saved_shards, step, self.job, self.store
                )
                self._saved_shards[step.name] = saved
            return self._saved_shards[step.name]

    async def _start_attempt(
        self, step: Step, unit: WorkUnit, memory_faults: int, memory_factor: float
    ) -> Attempt:
        attempt = self._new_attempt(unit, IN_PROGRESS)
        values, missing = find_secrets(
            step.secrets, self.submission.environment, self._settings.secrets
        )
        if missing:
            reason = (
                f"secret {', '.join(missing)} not found: set the environment variable, or write "
                f"the file {self._settings.secrets}/<name>, and resume the job"
            )
            return self._store(replace(attempt, status=FAILED, reason=reason, fault=INPUT))
        command = self._command(step, unit, attempt.number, memory_faults, values)
        begin_log(command.file(".log"), self._preface(attempt))
        write_facts(self.runner, step, command, memory_factor)
        self._store(
            replace(attempt, log=str(command.file(".log").relative_to(self.job.folder_path)))
        )
        try:
            process = await self._start_process(command, step, memory_factor)
        except OSError as error:
            reason = f"the process cannot be started: {error.strerror} ({error.filename})"
            fault = INPUT if error.errno in _INPUT_ERRNOS else TRANSIENT
            return self._store(replace(attempt, status=FAILED, reason=reason, fault=fault))
        return await self._wait_and_record(step, self._attempts[unit][-1], process)

    def _preface(self, attempt: Attempt) -> str:
        """Return the first lines of a log: warnings, the chosen pool and output of a forecast."""
        first = self.job.pipeline.steps[0].name == attempt.step and attempt.chunk <= 0
        notes = self._notes if first and attempt.number == 1 else ()
        printed = self._forecaster.take_output(WorkUnit(attempt.step, attempt.chunk))
        lines = *(f"warning: {note}" for note in notes), *self.sizes.reasons(attempt.step)
        return "".join(f"{line}\n" for line in (*lines, *(f"forecast: {each}" for each in printed)))

    async def _start_process(
        self, command: AttemptCommand, step: Step, memory_factor: float
    ) -> StepProcess:
        """Start an attempt; on a full disk wait until there is room."""
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
    ) -> AttemptCommand:
        runtime_job = self._runtime_job
        python = requirements.select_interpreter(self.job.pipeline, runtime_job.python)
        files = attempt_prefix(self.job, unit, number)
        named = (each for each in runtime_job.pipeline.steps if each.name == step.name)
        runtime_step = next(named, step)
        is_shared = isinstance(self.runner, SharedFilesystemMixin)
        variables = {
            **step_variables(runtime_job, step, unit, (step.split or 1) ** memory_faults),
            **self.sizes.cluster_variable(step, memory_faults),
            **gang_variables(step, files, number, is_shared),
        }
        secret_values = secret_variables(values)
        notebook = notebook_output_path(self.job, step, unit) if step.kind == "notebook" else None
        environment = {
            **without_other_secrets(step, self.steps, self.submission.environment),
            **step_graphql.server_variables(self.runner, self.submission.environment),
            **variables,
            **secret_values,
            PROGRESS: str(files.with_name(f"{files.name}.progress")),
            RECORDS_FOLDER: records_folder(files),
            **(make_result_variables(files) if is_shared else {}),
            **({step_wrapper.NOTEBOOK_VARIABLE: str(notebook)} if is_shared and notebook else {}),
            step_wrapper.LOG_LIMIT_VARIABLE: str(self._settings.log_bytes),
        }
        return AttemptCommand(
            build_arguments(runtime_job, runtime_step, unit, python),
            environment,
            working_folder(runtime_job.pipeline, runtime_step),
            files,
            variables,
            secret_values,
            Path(self.job.pipeline.root, step.path) if step.path else None,
            self.sizes.pool_of(step),
            notebook,
            python,
        )

    async def _wait_and_record(self, step: Step, attempt: Attempt, process: StepProcess) -> Attempt:
        """Wait for the end of an attempt, store it, and record what it took."""
        ended = await self._wait_and_store(step, attempt, process)
        return self.sizes.record(step, ended, process.command)

    async def _wait_and_store(self, step: Step, attempt: Attempt, process: StepProcess) -> Attempt:
        timed_out = False
        attempt = _with_end_time(attempt, process)
        try:
            start = await self._start_time(attempt, process)
            left = None if step.timeout is None else step.timeout + start - time.time()
            code = process.exit_code()  # it may have ended while no supervisor was running
            if code is None or left is None or left > 0:
                code = await asyncio.wait_for(process.wait(), left and max(0.0, left))
        except TimeoutError:
            timed_out, code = process.exit_code() is None, await self._end(process)
        except asyncio.CancelledError:
            if not self.ending:
                raise  # the supervisor ends; the step keeps running
            code = await self._end(process)
            await self._results.finish(step, attempt, process.command, code)
            self._store(replace(attempt, status=self._final_status(code), exit_code=code))
            raise
        values = await self._results.finish(step, attempt, process.command, code)
        if code == 0:
            return self._store(replace(attempt, status=DONE, exit_code=0))
        text = read_tail(process.command.file(".log"), after_preface=True)
        if values:
            text = redaction.redact_text(text, values)
        name = ""
        if step.gang_size:
            name, text = gang_plan.read_failure(text)  # of the first; others fail after it
        if timed_out:
            status, fault = TIMED_OUT, TRANSIENT
            reason = f"exceeded the step's timeout of {step.timeout:g} s"
        else:
            status, fault = LOST if code is None else FAILED, classify_failure(code, text)
            reason = describe_failure(code, text, count_retries(step, self.job.max_retries))
            reason = f"{name}: {reason}" if name else reason
        return self._store(
            replace(attempt, status=status, exit_code=code, reason=reason, fault=fault)
        )

    async def _start_time(self, attempt: Attempt, process: StepProcess) -> float:
        """Return when the attempt began to run: a step's timeout excludes time in a queue."""
        await process.wait_until_running()
        try:
            return max(attempt.started, process.command.file(".pid").stat().st_mtime)
        except OSError:  # it has not started
            return attempt.started

    def _final_status(self, code: int | None) -> str:
        return DONE if code == 0 else self.ending

    async def _end(self, process: StepProcess) -> int | None:
        # Shielded: the process must be ended even if this task is cancelled.
        grace = float(parse_seconds(self._settings.grace))
        return await asyncio.shield(process.end(grace))

    def _new_attempt(self, unit: WorkUnit, status: str, reason: str = "") -> Attempt:
        number, now = len(self._attempts[unit]) + 1, time.time()
        return Attempt(
            self.job.id, unit.step, unit.chunk, number, status, started=now, reason=reason
        )

    def _store(self, attempt: Attempt) -> Attempt:
        if attempt.status != IN_PROGRESS:
            attempt = replace(attempt, ended=attempt.ended or time.time())
        attempts = self._attempts[WorkUnit(attempt.step, attempt.chunk)]
        attempts[attempt.number - 1 :] = [attempt]
        self.store.save_attempt(attempt)
        return attempt


def _with_end_time(attempt: Attempt, process: StepProcess) -> Attempt:
    """Return an attempt with its end time if it ended before it was reattached."""
    end = process.end_time()
    return replace(attempt, ended=max(attempt.started, end)) if end else attempt
