"""Runner for Slurm: each attempt is a batch job, or a task of a job array.

Steps run in the same wrapper program as on this machine, which writes the same files to the job's
folder; the nodes must share it. The supervisor submits an attempt when the dependencies are done,
records how it ended, and submits the next one; Slurm decides when and on which node it runs.
Concurrent attempts at chunks of a step form one job array. If the supervisor is killed, the batch
jobs continue, and the next supervisor finds them by name.
"""

from __future__ import annotations

import asyncio
import errno
import signal
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ClassVar

from hyperplane.jobs.definition.step import Step
from hyperplane.jobs.execution.attempt_process import AttemptCommand, LocalProcess
from hyperplane.jobs.execution.step_log import read_tail
from hyperplane.jobs.runners.base import RemoteQueueMixin, SharedFilesystemMixin
from hyperplane.jobs.runners.cluster_command import add_cluster_program
from hyperplane.jobs.runners.gang_command import add_gang_program
from hyperplane.jobs.runners.slurm.array import array_command, array_key, submit_array
from hyperplane.jobs.runners.slurm.job_id import SlurmJobId, prepare_id_file
from hyperplane.jobs.runners.slurm.submit import submit_attempt
from hyperplane.platforms.slurm.commands import find_missing_commands
from hyperplane.platforms.slurm.job_state import (
    CANCELLED,
    COMPLETED,
    FAILED,
    REMOVED,
    UNKNOWN,
    describe_blocked,
    is_active,
    is_infrastructure_failure,
    is_out_of_memory,
)
from hyperplane.platforms.slurm.queue import SlurmQueue
from hyperplane.platforms.slurm.request_batcher import RequestBatcher
from hyperplane.platforms.slurm.submit import is_array_refusal

#: Seconds between polls.
POLL_SECONDS = 1.0
#: Seconds after the end of a batch job until its files appear on a network file system.
FILE_DELAY_SECONDS = 15.0
#: Exit codes of a terminated or killed program.
_SIGNAL_CODES = (-signal.SIGTERM, -signal.SIGKILL)
#: Seconds for which Slurm must report that a job will never start.
NEVER_STARTS_SECONDS = 60.0
#: Exit code of a step that can never run: a configuration error in sysexits.h.
CONFIGURATION_ERROR = 78
#: Seconds between requests to cancel a job.
CANCEL_SECONDS = 10.0
#: Maximum checks for the final state of a batch job whose program has ended.
STATE_CHECKS = 10
#: Threads for sbatch, separate because an unavailable Slurm blocks them.
_SUBMIT_THREADS = ThreadPoolExecutor(8, "hyperplane-sbatch")

#: An attempt, its step, and the factor of its memory.
_AttemptRequest = tuple[AttemptCommand, Step, float]


class SlurmProcess:
    """One attempt as a batch job; ``queue`` is shared by all attempts of a supervisor."""

    def __init__(self, command: AttemptCommand, queue: SlurmQueue) -> None:
        self.command, self._queue, self._job_id = command, queue, SlurmJobId(command)
        self._end_requested = False
        self._pending_text, self._pending_since = "", 0.0
        # The files of the attempt are those of a local process.
        self._local_process = LocalProcess(command)

    def exit_code(self) -> int | None:
        """Return the exit code that the wrapper has recorded."""
        return self._local_process.exit_code()

    def end_time(self) -> float:
        """Return the time when the exit code was recorded; 0 before."""
        if self.exit_code() is None:
            return 0.0
        return self.command.file(".exit").stat().st_mtime

    async def wait_until_running(self) -> None:
        """Wait until a node runs the batch job, or Slurm no longer has it."""
        while not self.command.file(".pid").exists() and self.exit_code() is None:
            if not await self._in_queue() and not self._job_id.may_appear():
                return
            await self._report_pending()
            await asyncio.sleep(POLL_SECONDS)

    async def _report_pending(self) -> None:
        """Log why the batch job is pending; cancel it if it can never start."""
        job_id = self._job_id.read()
        pending = self._queue.pending_status(job_id)
        if pending is None or self.command.file(".pid").exists():
            return
        if str(pending) != self._pending_text:
            self._pending_text, self._pending_since = str(pending), time.monotonic()
            self._append_log(f"waiting for Slurm: job {job_id} is {pending}")
        elif (
            (blocked := describe_blocked(job_id, pending))
            and not pending.is_held
            and time.monotonic() - self._pending_since > NEVER_STARTS_SECONDS
        ):
            self._append_log(blocked)
            self._end_requested = True
            self.command.file(".exit").write_text(str(CONFIGURATION_ERROR))
            await self._queue.cancel(job_id)

    def _append_log(self, message: str) -> None:
        with self.command.file(".log").open("a", encoding="utf-8", errors="replace") as log:
            log.write(f"{message}\n")

    async def wait(self) -> int | None:
        """Wait until the exit code is known or Slurm no longer has the job, and return the code."""
        state = ""
        while self.exit_code() is None:
            if not await self._in_queue():
                if not self._job_id.read():
                    if self._job_id.may_appear():
                        await asyncio.sleep(POLL_SECONDS)
                        continue
                    break  # it was not submitted
                state = await self._state()
                if not is_active(state):
                    break
            await asyncio.sleep(POLL_SECONDS)
        # Also if Slurm reports no state: it forgets a job some minutes after its end.
        deadline = time.monotonic() + (
            FILE_DELAY_SECONDS if state in (UNKNOWN, COMPLETED, FAILED) else POLL_SECONDS
        )
        while self.exit_code() is None and self._job_id.read() and time.monotonic() < deadline:
            await asyncio.sleep(POLL_SECONDS / 5)
        return await self._resolve_exit_code()

    async def _resolve_exit_code(self) -> int | None:
        """Return the exit code, and log the state if Slurm has ended the job."""
        code, job_id = self.exit_code(), self._job_id.read()
        if not job_id or self._end_requested or code not in (None, *_SIGNAL_CODES):
            return code
        state = await self._state()
        for _ in range(STATE_CHECKS):  # the batch job ends some time after its program
            if not is_active(state):
                break
            await asyncio.sleep(POLL_SECONDS)
            state = await self._state()
        if is_infrastructure_failure(state):
            return None  # the attempt is repeated without counting as a failure
        uninformative = state in (UNKNOWN, COMPLETED) or is_active(state)
        if uninformative or (code is not None and state == FAILED):
            return code
        log = self.command.file(".log")
        out_of_memory = is_out_of_memory(state, read_tail(log))
        self._append_log(f"\nSlurm ended job {job_id}{' for its memory' * out_of_memory}: {state}")
        # 1, not the code of a signal: the reason of the attempt would then lack the line above.
        return -signal.SIGKILL if out_of_memory else 1

    async def end(self, grace: float) -> int | None:
        """Terminate the batch job, and cancel it after ``grace`` seconds."""
        self._end_requested = True
        while not await self._in_queue() and self._job_id.may_appear():
            await asyncio.sleep(POLL_SECONDS)
        job_id = self._job_id.read()
        if not job_id:
            return self.exit_code()
        terminated = await self._queue.terminate(job_id)
        ending = asyncio.ensure_future(self.wait())
        await asyncio.wait({ending}, timeout=grace if terminated else 0)
        while not ending.done():
            await self._queue.cancel(job_id)
            await asyncio.wait({ending}, timeout=CANCEL_SECONDS)
        return await ending

    async def _state(self) -> str:
        state = await self._queue.get_state(self._job_id.read())
        if state != REMOVED:
            return state
        return UNKNOWN if self.command.file(".pid").exists() else CANCELLED

    async def _in_queue(self) -> bool:
        if not self._job_id.read():  # the supervisor was killed before it stored the id
            job_id = await self._queue.find_job_id(self._job_id.name())
            if job_id is None:
                return True  # unknown
            if not job_id:
                return False
            self._job_id.write(job_id)
        return await self._queue.contains(self._job_id.read())


class SlurmRunner(RemoteQueueMixin, SharedFilesystemMixin):
    """Runs steps as Slurm batch jobs; ``environment`` is that of the submission."""

    name: ClassVar[str] = "slurm"
    at_once: ClassVar[int] = 1000
    runs_gangs: ClassVar[bool] = True
    starts_clusters: ClassVar[bool] = True

    def __init__(self, environment: Mapping[str, str], options: Mapping[str, Any]) -> None:
        super().__init__(environment, options)
        self._slurm_environment = dict(environment)
        self._queue = SlurmQueue(self._slurm_environment)
        self._use_arrays = True
        self._submissions = RequestBatcher(self._submit, uncancellable=True)

    def unavailable_reason(self) -> str:
        """Return which of Slurm's commands are missing; empty if none is."""
        missing = find_missing_commands(self._slurm_environment)
        if not missing:
            return ""
        return f"no {', '.join(missing)} on the PATH; submit from a machine with Slurm's commands"

    async def start(
        self, command: AttemptCommand, step: Step, memory_factor: float
    ) -> SlurmProcess:
        """Submit an attempt."""
        command = add_cluster_program(add_gang_program(command, step, "slurm"), step)
        command.attempt_prefix.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for suffix in (".exit", ".pid", ".slurm"):
            command.file(suffix).unlink(missing_ok=True)
        # Attempts without an array key have a unique key.
        key = array_key(command, step, memory_factor) or command.attempt_prefix
        error_of_attempt = await self._submissions.request((command, step, memory_factor), key)
        if error_of_attempt is not None:
            raise error_of_attempt
        return SlurmProcess(command, self._queue)

    async def _submit(self, requests: list[_AttemptRequest]) -> list[BaseException | None]:
        """Submit attempts with the same key; return the error of each, if any."""
        commands = [command for command, _, _ in requests]
        _, step, memory_factor = requests[0]
        if len(requests) > 1 and self._use_arrays:
            array = array_command(commands)
            try:
                await self._submit_and_record(
                    array,
                    partial(
                        submit_array, array, commands, step, memory_factor, self._slurm_environment
                    ),
                )
            except OSError as error:
                if not is_array_refusal(error):
                    raise
                self._use_arrays = False
            else:
                return [None for _ in requests]
        for command in commands:
            prepare_id_file(command)
        return await asyncio.gather(
            *(
                self._submit_and_record(
                    command,
                    partial(submit_attempt, command, step, memory_factor, self._slurm_environment),
                )
                for command in commands
            ),
            return_exceptions=True,
        )

    async def _submit_and_record(
        self, command: AttemptCommand, submission: Callable[[], str]
    ) -> None:
        """Submit one batch job or array, and store its id."""
        job_id = SlurmJobId(command)
        try:
            submitted_id = await asyncio.get_running_loop().run_in_executor(
                _SUBMIT_THREADS, submission
            )
        except OSError as error:
            if error.errno != errno.EAGAIN:
                raise
            # Slurm may have accepted it.
            submitted_id = await self._queue.find_submitted(job_id.name())
            if not submitted_id:
                raise
        job_id.write(submitted_id)

    def reattach(self, command: AttemptCommand) -> SlurmProcess:
        """Return the process of a batch job that an earlier supervisor submitted."""
        return SlurmProcess(command, self._queue)
