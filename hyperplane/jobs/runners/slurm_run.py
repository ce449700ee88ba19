"""Slurm as the place where the steps of a job run: each attempt is a batch job.

The same small program is around a step as on this machine, and leaves the same traces in the job's
folder, which the nodes must share. The supervisor submits an attempt when those before it are done,
sees how it ended, and submits the next one; Slurm decides when and on which node. When the
supervisor is killed the batch jobs go on, and whoever carries the job on finds them by their names.
"""

from __future__ import annotations

import asyncio
import errno
import math
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from hyperplane.jobs import around
from hyperplane.jobs.capacity import Capacity, Demand
from hyperplane.jobs.definition.models import Step
from hyperplane.jobs.faults import tail
from hyperplane.jobs.processes import Command, Process
from hyperplane.jobs.runners.slurm_queue import Queue

#: Chunks of a step that are in the queue at once, unless the step says.
AT_ONCE = 1000
#: Seconds between looks.
LOOK = 1.0
#: Seconds after the end of a batch job in which its traces come over a network file system.
LATE = 15.0
PROGRAMS = ("sbatch", "squeue", "scancel", "scontrol")
#: Ends of a batch job that are no fault of the step: it is submitted again.
_NOBODYS_FAULT = {"NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "REQUEUED"}
#: Variables of a batch job, which the commands would take for options.
_OF_A_BATCH_JOB = ("SLURM_", "SBATCH_EXPORT", "SBATCH_JOB_NAME", "SBATCH_ARRAY")
#: What Slurm writes into a log where it looks at the memory of jobs itself.
_MEMORY = re.compile("Exceeded (job|step) memory limit|oom.kill", re.I)
#: What sbatch says when it would say something else later.
_PASSING = re.compile(r"contact slurm controller|temporarily|timed out|Socket|try again", re.I)


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
            if not await self._in_queue():
                return
            await asyncio.sleep(LOOK)

    async def wait(self) -> int | None:
        """Its exit code, once Slurm has no more of it."""
        while self.exit_code() is None and await self._in_queue():
            await asyncio.sleep(LOOK)
        if self.exit_code() is not None or not self._number():
            return self.exit_code()
        state = await self._queue.state_of(self._number())
        # Without a word of Slurm's, too: it forgets a job some minutes after its end.
        deadline = time.monotonic() + (LATE if state in ("", "COMPLETED", "FAILED") else LOOK)
        while self.exit_code() is None and time.monotonic() < deadline:
            await asyncio.sleep(LOOK / 5)
        if self.exit_code() is not None or not state or state in _NOBODYS_FAULT:
            return self.exit_code()
        log = self.command.file(".log")
        of_memory = state == "OUT_OF_MEMORY" or _MEMORY.search(tail(log))
        with log.open("a") as opened:
            opened.write(f"Slurm ended job {self._number()}: {state}\n")
        if of_memory:
            return -signal.SIGKILL
        return -signal.SIGTERM if state == "CANCELLED" else 1

    async def end(self, grace: float) -> int | None:
        """End the batch job: politely, and after a while surely."""
        number = self._number() or await self._queue.number_of(_name(self.command))
        if number:
            await self._queue.end_politely(number)
            ending = asyncio.ensure_future(self.wait())
            await asyncio.wait({ending}, timeout=grace)
            if not ending.done():
                await self._queue.cancel(number)
            return await ending
        return self.exit_code()

    def _number(self) -> str:
        try:
            return self.command.file(".slurm").read_text()
        except OSError:
            return ""

    async def _in_queue(self) -> bool:
        number = self._number()
        if not number:  # whoever submitted it was killed before it wrote the number down
            number = await self._queue.number_of(_name(self.command))
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
        self._outside = _outside(environment)
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
        number = await asyncio.to_thread(self._submit, command, step, times_more)
        command.file(".slurm").write_text(number)
        return SlurmProcess(command, self._queue)

    def found(self, command: Command) -> SlurmProcess:
        """The batch job that somebody else has submitted."""
        return SlurmProcess(command, self._queue)

    def _submit(self, command: Command, step: Step, times_more: float) -> str:
        """Give an attempt to sbatch; the number of its job."""
        if not Path(command.folder).is_dir():
            raise FileNotFoundError(errno.ENOENT, "no such folder", command.folder)
        inner = [sys.executable, "-I", "-S", around.__file__, str(command.traces), *command.argv]
        enter = f"cd -- {shlex.quote(command.folder)} || exit 126"
        script = f"#!/bin/sh\n{enter}\nexec {shlex.join(inner)}\n"
        options = [
            f"--job-name={_name(command)}",
            "--parsable",
            "--no-requeue",
            # All of the step's environment, and by this way only: it has its secrets.
            "--export=ALL",
            f"--output={_literal(command.file('.log'))}",
            *_resources(step, times_more),
        ]
        # Where Slurm is, even when the step shall not see it.
        conf = {name: text for name, text in self._outside.items() if name == "SLURM_CONF"}
        try:
            done = subprocess.run(  # noqa: S603 - a list of arguments; the script goes to its input
                [shutil.which("sbatch", path=self._outside.get("PATH")) or "sbatch", *options],
                input=script,
                env={**_outside(command.environment), **conf},
                capture_output=True,
                text=True,
                check=False,
                timeout=120,
            )
        except subprocess.TimeoutExpired as error:
            raise OSError(errno.EAGAIN, "sbatch does not answer", "sbatch") from error
        if done.returncode:
            said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
            number = errno.EAGAIN if _PASSING.search(said) else errno.EPERM
            raise OSError(number, said, "sbatch")
        return done.stdout.strip().partition(";")[0]


def _resources(step: Step, times_more: float) -> list[str]:
    """What the step asks for, in Slurm's words; its pool has been put into numbers before."""
    asked = step.resources
    options = []
    if asked.cores is not None:
        options.append(f"--cpus-per-task={math.ceil(asked.cores)}")
    if asked.ram_gb is not None:
        options.append(f"--mem={math.ceil(asked.ram_gb * 1e9 * times_more / 2**20)}M")
    if asked.gpus:
        options.append(f"--gres=gpu:{asked.gpus}")
    return options


def _name(command: Command) -> str:
    """The name of the batch job: of this attempt only, and to be found by it."""
    above, _, attempt = str(command.traces).rpartition("/steps/")
    return re.sub("[^A-Za-z0-9.-]+", "-", f"hyperplane-{Path(above).name}-{attempt}")


def _literal(path: Path) -> str:
    """A path without the signs that Slurm replaces."""
    return str(path).replace("\\", "\\\\").replace("%", "%%")


def _outside(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment for Slurm's commands, without what a batch job around us has for them."""
    return {
        name: text
        for name, text in environment.items()
        if name == "SLURM_CONF" or not name.startswith(_OF_A_BATCH_JOB)
    }
