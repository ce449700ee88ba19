"""Slurm as the place where the steps of a job run: each attempt is a batch job, or a task of one.

The same small program is around a step as on this machine, and leaves the same traces in the job's
folder, which the nodes must share. The supervisor submits an attempt when those before it are done,
sees how it ended, and submits the next one; Slurm decides when and on which node. Attempts at
chunks of a step that begin together are one job array. When the supervisor is killed the batch jobs
go on, and whoever carries the job on finds them by their names.
"""

from __future__ import annotations

import asyncio
import errno
import re
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ClassVar

from hyperplane.jobs.definition.models import Step
from hyperplane.jobs.faults import read_tail
from hyperplane.jobs.processes import Command, LocalProcess
from hyperplane.jobs.runners.base import RemoteQueueMixin, SharedFilesystemMixin
from hyperplane.jobs.runners.request_batcher import RequestBatcher
from hyperplane.jobs.runners.slurm_array import (
    ARRAY_REFUSED,
    array_command,
    array_key,
    submit_array,
)
from hyperplane.jobs.runners.slurm_job_id import SlurmJobId, prepare_id_file
from hyperplane.jobs.runners.slurm_queue import CACHE_SECONDS, REMOVED_STATE, SlurmQueue, is_active
from hyperplane.jobs.runners.slurm_submit import command_environment, submit_attempt

#: Seconds between looks.
POLL_SECONDS = 1.0
#: Seconds after the end of a batch job in which its traces come over a network file system.
FILE_DELAY_SECONDS = 15.0
SLURM_COMMANDS = ("sbatch", "squeue", "scancel")
#: Ends of a batch job that are no fault of the step: it is submitted again.
_INFRASTRUCTURE_STATES = {"NODE_FAIL", "PREEMPTED", "BOOT_FAIL"}
#: What a program ends with that was asked to end, or killed.
_SIGNAL_CODES = (-signal.SIGTERM, -signal.SIGKILL)
#: Looks for what was submitted without an answer: Slurm may have been busy.
SUBMIT_CHECKS = 8
#: Seconds for which Slurm must say that it will never start a job.
NEVER_STARTS_SECONDS = 60.0
#: What a step ends with that can never run: a wrong configuration, by sysexits.h.
CONFIGURATION_ERROR = 78
#: Seconds between requests to end what has not ended.
CANCEL_SECONDS = 10.0
#: Looks until a batch job whose program is gone has a last state.
STATE_CHECKS = 10
#: Submits; apart from other threads, because a Slurm that is away keeps them waiting.
_SUBMIT_THREADS = ThreadPoolExecutor(8, "hyperplane-sbatch")
#: What Slurm writes into a log where it looks at the memory of jobs itself.
_MEMORY = re.compile("Exceeded (job|step) memory limit|oom.kill", re.I)


#: An attempt, its step, and how many times the memory that it asks for.
_AttemptRequest = tuple[Command, Step, float]


class SlurmProcess:
    """One attempt as a batch job.

    Parameters
    ----------
    command : Command
        What it runs.
    queue : Queue
        Slurm's, as this supervisor sees it.
    """

    def __init__(self, command: Command, queue: SlurmQueue) -> None:
        self.command, self._queue, self._job_id = command, queue, SlurmJobId(command)
        self._end_requested = False
        self._waits, self._since = "", 0.0
        # The traces of an attempt and the waiting for a process are those of this machine.
        self._local_process = LocalProcess(command)

    def exit_code(self) -> int | None:
        """What the program around the step has written down."""
        return self._local_process.exit_code()

    def end_time(self) -> float:
        """When its last trace was written, if it has ended."""
        if self.exit_code() is None:
            return 0.0
        return self.command.file(".exit").stat().st_mtime

    async def wait_until_running(self) -> None:
        """Return when a node runs it, or when Slurm has no more of it."""
        while not self.command.file(".pid").exists() and self.exit_code() is None:
            if not await self._in_queue() and not self._job_id.may_appear():
                return
            await self._report_pending()
            await asyncio.sleep(POLL_SECONDS)

    async def _report_pending(self) -> None:
        """Say in the log why it waits; end it when it waits for what will not come."""
        number = self._job_id.read()
        waits = self._queue.pending_status(number)
        if waits is None or self.command.file(".pid").exists():
            return
        if str(waits) != self._waits:
            self._waits, self._since = str(waits), time.monotonic()
            self._append_log(f"waiting for Slurm: job {number} is {waits}")
        elif (
            waits.blocked_advice
            and not waits.reason.startswith("JobHeld")
            and time.monotonic() - self._since > NEVER_STARTS_SECONDS
        ):
            self._append_log(f"Slurm will not start job {number}, {waits}: {waits.blocked_advice}")
            self._end_requested = True
            self.command.file(".exit").write_text(str(CONFIGURATION_ERROR))
            await self._queue.cancel(number)

    def _append_log(self, words: str) -> None:
        with self.command.file(".log").open("a") as log:
            log.write(f"{words}\n")

    async def wait(self) -> int | None:
        """Its exit code, once Slurm has no more of it."""
        state = ""
        while self.exit_code() is None:
            if not await self._in_queue():
                if not self._job_id.read():
                    if self._job_id.may_appear():
                        await asyncio.sleep(POLL_SECONDS)
                        continue
                    break  # nobody has submitted it
                state = await self._state()
                if not is_active(state):
                    break
            await asyncio.sleep(POLL_SECONDS)
        # Without a word of Slurm's, too: it forgets a job some minutes after its end.
        deadline = time.monotonic() + (
            FILE_DELAY_SECONDS if state in ("", "COMPLETED", "FAILED") else POLL_SECONDS
        )
        while self.exit_code() is None and self._job_id.read() and time.monotonic() < deadline:
            await asyncio.sleep(POLL_SECONDS / 5)
        return await self._resolve_exit_code()

    async def _resolve_exit_code(self) -> int | None:
        """The exit code, with Slurm's word in the log where Slurm has ended it."""
        code, number = self.exit_code(), self._job_id.read()
        if not number or self._end_requested or code not in (None, *_SIGNAL_CODES):
            return code
        state = await self._state()
        for _ in range(STATE_CHECKS):  # a step that a signal has ended is gone before its batch job
            if not is_active(state):
                break
            await asyncio.sleep(POLL_SECONDS)
            state = await self._state()
        if state in _INFRASTRUCTURE_STATES:
            return None
        nothing_to_say = state in ("", "COMPLETED") or is_active(state)
        if nothing_to_say or (code is not None and state == "FAILED"):
            return code
        log = self.command.file(".log")
        of_memory = state == "OUT_OF_MEMORY" or _MEMORY.search(read_tail(log))
        self._append_log(
            f"\nSlurm ended job {number}{' for its memory' * bool(of_memory)}: {state}"
        )
        # Not as a signal, which would hide the line above from the reason of the attempt.
        return -signal.SIGKILL if of_memory else 1

    async def end(self, grace: float) -> int | None:
        """End the batch job: politely, and after a while surely."""
        self._end_requested = True
        while not await self._in_queue() and self._job_id.may_appear():
            await asyncio.sleep(POLL_SECONDS)
        number = self._job_id.read()
        if not number:
            return self.exit_code()
        heard = await self._queue.terminate(number)
        ending = asyncio.ensure_future(self.wait())
        await asyncio.wait({ending}, timeout=grace if heard else 0)
        while not ending.done():
            await self._queue.cancel(number)
            await asyncio.wait({ending}, timeout=CANCEL_SECONDS)
        return await ending

    async def _state(self) -> str:
        state = await self._queue.get_state(self._job_id.read())
        if state != REMOVED_STATE:
            return state
        return "" if self.command.file(".pid").exists() else "CANCELLED"

    async def _in_queue(self) -> bool:
        if not self._job_id.read():  # whoever submitted it was killed before he wrote it down
            found = await self._queue.find_job_id(self._job_id.name())
            if found is None:
                return True  # Slurm does not say
            if not found:
                return False
            self._job_id.write(found)
        return await self._queue.contains(self._job_id.read())


class SlurmRunner(RemoteQueueMixin, SharedFilesystemMixin):
    """Steps as batch jobs of Slurm.

    Parameters
    ----------
    environment : mapping of str to str
        What the submission runs in.
    """

    name: ClassVar[str] = "slurm"
    at_once: ClassVar[int] = 1000

    def __init__(self, environment: Mapping[str, str], options: Mapping[str, Any]) -> None:
        super().__init__(environment, options)
        self._slurm_environment = command_environment(environment)
        self._queue = SlurmQueue(self._slurm_environment)
        self._use_arrays = True
        self._submissions = RequestBatcher(self._submit, uncancellable=True)

    def unavailable_reason(self) -> str:
        """Slurm's commands."""
        path = self._slurm_environment.get("PATH")
        absent = [name for name in SLURM_COMMANDS if shutil.which(name, path=path) is None]
        if not absent:
            return ""
        return (
            f"no {', '.join(absent)} on the PATH; submit from a machine where Slurm's commands are"
        )

    async def start(self, command: Command, step: Step, memory_factor: float) -> SlurmProcess:
        """Submit an attempt."""
        command.attempt_prefix.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for suffix in (".exit", ".pid", ".slurm"):
            command.file(suffix).unlink(missing_ok=True)
        # One that is always alone is the only one of its kind.
        kind = array_key(command, step, memory_factor) or command.attempt_prefix
        wrong = await self._submissions.request((command, step, memory_factor), kind)
        if wrong is not None:
            raise wrong
        return SlurmProcess(command, self._queue)

    async def _submit(self, asked: list[_AttemptRequest]) -> list[BaseException | None]:
        """Submit attempts of one kind; what is wrong with each."""
        commands = [command for command, _, _ in asked]
        _, step, memory_factor = asked[0]
        if len(asked) > 1 and self._use_arrays:
            whole = array_command(commands)
            try:
                await self._submit_and_record(
                    whole,
                    partial(
                        submit_array, whole, commands, step, memory_factor, self._slurm_environment
                    ),
                )
            except OSError as error:
                if ARRAY_REFUSED not in str(error):
                    raise
                self._use_arrays = False
            else:
                return [None for _ in asked]
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

    async def _submit_and_record(self, command: Command, submission: Callable[[], str]) -> None:
        """Submit one batch job or array, and write its number down."""
        job_id = SlurmJobId(command)
        try:
            told = await asyncio.get_running_loop().run_in_executor(_SUBMIT_THREADS, submission)
        except OSError as error:
            if error.errno != errno.EAGAIN:
                raise
            told = await self._find_submitted(job_id.name())  # Slurm may have it all the same
            if not told:
                raise
        job_id.write(told)

    async def _find_submitted(self, name: str) -> str:
        """The number of a job or array that was submitted without an answer; empty without one."""
        number = None
        for _ in range(SUBMIT_CHECKS):
            await asyncio.sleep(CACHE_SECONDS)
            if number := await self._queue.find_job_id(name):
                return number
        while number is None:  # no answer is no word on whether it is there
            await asyncio.sleep(CANCEL_SECONDS)
            number = await self._queue.find_job_id(name)
        return number

    def reattach(self, command: Command) -> SlurmProcess:
        """The batch job that somebody else has submitted."""
        return SlurmProcess(command, self._queue)
