"""Slurm as the place where the steps of a job run: each attempt is a batch job.

The same small program is around a step as on this machine, and leaves the same traces in the job's
folder, which the nodes must share. The supervisor submits an attempt when those before it are done,
sees how it ended, and submits the next one; Slurm decides when and on which node. When the
supervisor is killed the batch jobs go on, and whoever carries the job on finds them by their names.
"""

from __future__ import annotations

import asyncio
import errno
import re
import shutil
import signal
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import ClassVar

from hyperplane.jobs.capacity import Capacity, Demand
from hyperplane.jobs.definition.models import Step
from hyperplane.jobs.faults import tail
from hyperplane.jobs.processes import Command, Process
from hyperplane.jobs.runners.slurm_queue import FRESH, Queue, going_on
from hyperplane.jobs.runners.slurm_submit import name_of, outside_of, submit

#: Chunks of a step that are in the queue at once, unless the step says.
AT_ONCE = 1000
#: Seconds between looks.
LOOK = 1.0
#: Seconds after the end of a batch job in which its traces come over a network file system.
LATE = 15.0
PROGRAMS = ("sbatch", "squeue", "scancel")
#: Ends of a batch job that are no fault of the step: it is submitted again.
_NOBODYS_FAULT = {"NODE_FAIL", "PREEMPTED", "BOOT_FAIL"}
#: What a program ends with that was asked to end, or killed.
_OF_SIGNALS = (-signal.SIGTERM, -signal.SIGKILL)
#: Seconds in which a submission whose end nobody has seen may come to the queue.
UNSURE = 30.0
#: Seconds between requests to end what has not ended.
AGAIN = 10.0
#: Looks until a batch job whose program is gone has a last state.
SETTLED = 10
#: Submits; apart from other threads, because a Slurm that is away keeps them waiting.
_SUBMITTING = ThreadPoolExecutor(8, "hyperplane-sbatch")
#: What Slurm writes into a log where it looks at the memory of jobs itself.
_MEMORY = re.compile("Exceeded (job|step) memory limit|oom.kill", re.I)


class SlurmProcess:
    """One attempt as a batch job.

    Parameters
    ----------
    command : Command
        What it runs.
    queue : Queue
        Slurm's, as this supervisor sees it.
    """

    def __init__(self, command: Command, queue: Queue) -> None:
        self.command, self._queue = command, queue
        self._asked_to_end = False
        # The traces of an attempt and the waiting for a process are those of this machine.
        self._traces = Process(command)

    def exit_code(self) -> int | None:
        """What the program around the step has written down."""
        return self._traces.exit_code()

    def gone_at(self) -> float:
        """When its last trace was written, if it has ended."""
        if self.exit_code() is None:
            return 0.0
        return self.command.file(".exit").stat().st_mtime

    async def begun(self) -> None:
        """Return when a node runs it, or when Slurm has no more of it."""
        while not self.command.file(".pid").exists() and self.exit_code() is None:
            if not await self._in_queue() and not self._may_come():
                return
            await asyncio.sleep(LOOK)

    async def wait(self) -> int | None:
        """Its exit code, once Slurm has no more of it."""
        state = ""
        while self.exit_code() is None:
            if not await self._in_queue():
                if not self._number():
                    if self._may_come():
                        await asyncio.sleep(LOOK)
                        continue
                    break  # nobody has submitted it
                state = await self._queue.state_of(self._number())
                if not going_on(state):
                    break
            await asyncio.sleep(LOOK)
        # Without a word of Slurm's, too: it forgets a job some minutes after its end.
        deadline = time.monotonic() + (LATE if state in ("", "COMPLETED", "FAILED") else LOOK)
        while self.exit_code() is None and self._number() and time.monotonic() < deadline:
            await asyncio.sleep(LOOK / 5)
        return await self._explained()

    async def _explained(self) -> int | None:
        """The exit code, with Slurm's word in the log where Slurm has ended it."""
        code, number = self.exit_code(), self._number()
        if not number or self._asked_to_end or code not in (None, *_OF_SIGNALS):
            return code
        state = await self._queue.state_of(number)
        for _ in range(SETTLED):  # a step that a signal has ended is gone before its batch job
            if not going_on(state):
                break
            await asyncio.sleep(LOOK)
            state = await self._queue.state_of(number)
        if state in _NOBODYS_FAULT:
            return None
        nothing_to_say = state in ("", "COMPLETED") or going_on(state)
        if nothing_to_say or (code is not None and state == "FAILED"):
            return code
        log = self.command.file(".log")
        of_memory = state == "OUT_OF_MEMORY" or _MEMORY.search(tail(log))
        with log.open("a") as opened:
            opened.write(f"\nSlurm ended job {number}: {state}\n")
        # Not as a signal, which would hide the line above from the reason of the attempt.
        return -signal.SIGKILL if of_memory else 1

    async def end(self, grace: float) -> int | None:
        """End the batch job: politely, and after a while surely."""
        self._asked_to_end = True
        while not await self._in_queue() and self._may_come():
            await asyncio.sleep(LOOK)
        number = self._number()
        if not number:
            return self.exit_code()
        heard = await self._queue.end_politely(number)
        ending = asyncio.ensure_future(self.wait())
        await asyncio.wait({ending}, timeout=grace if heard else 0)
        while not ending.done():
            await self._queue.cancel(number)
            await asyncio.wait({ending}, timeout=AGAIN)
        return await ending

    def _may_come(self) -> bool:
        """Whether somebody may be submitting it just now, or was killed while he did."""
        try:
            file = self.command.file(".slurm").stat()
        except OSError:
            return False
        return file.st_size == 0 and time.time() - file.st_mtime < UNSURE

    def _number(self) -> str:
        try:
            return self.command.file(".slurm").read_text()
        except OSError:
            return ""

    async def _in_queue(self) -> bool:
        number: str | None = self._number()
        if not number:  # whoever submitted it was killed before it wrote the number down
            number = await self._queue.number_of(name_of(self.command))
            if number is None:
                return True  # Slurm does not say
            if number:
                self.command.file(".slurm").write_text(number)
        return bool(number) and await self._queue.has(number)


class SlurmRunner:
    """Steps as batch jobs of Slurm.

    Parameters
    ----------
    environment : mapping of str to str
        What the submission runs in.
    """

    name: ClassVar[str] = "slurm"

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._outside = outside_of(environment)
        self._queue = Queue(self._outside)

    def missing(self) -> str:
        """Slurm's commands."""
        path = self._outside.get("PATH")
        absent = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
        if not absent:
            return ""
        return (
            f"no {', '.join(absent)} on the PATH; submit from a machine where Slurm's commands are"
        )

    def demand(self, capacity: Capacity, step: Step, times_more: float) -> Demand:
        """Nothing of this machine."""
        del capacity, step, times_more
        return Demand()

    def chunks_at_once(self, capacity: Capacity, step: Step, usual: int) -> int:
        """What the step says, or more than most sites run at once."""
        del capacity, usual
        return step.max_parallel or AT_ONCE

    async def start(self, command: Command, step: Step, times_more: float) -> SlurmProcess:
        """Submit an attempt."""
        command.traces.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for suffix in (".exit", ".pid", ".slurm", ".log"):
            command.file(suffix).unlink(missing_ok=True)
        command.file(".slurm").touch()  # its number comes into it
        loop = asyncio.get_running_loop()
        submitting = loop.run_in_executor(
            _SUBMITTING, submit, command, step, times_more, self._outside
        )
        try:
            number = await asyncio.shield(submitting)
        except asyncio.CancelledError:  # it is on its way: whoever ends it must know its number
            with suppress(OSError):
                command.file(".slurm").write_text(await submitting)
            raise
        except OSError as error:
            if error.errno != errno.EAGAIN:
                raise
            await asyncio.sleep(FRESH)  # Slurm may have it all the same
            number = await self._queue.number_of(name_of(command)) or ""
            if not number:
                raise
        command.file(".slurm").write_text(number)
        return SlurmProcess(command, self._queue)

    def found(self, command: Command) -> SlurmProcess:
        """The batch job that somebody else has submitted."""
        return SlurmProcess(command, self._queue)
