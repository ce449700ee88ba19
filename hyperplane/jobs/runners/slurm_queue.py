"""Slurm's queue, asked for all attempts of a supervisor together."""

from __future__ import annotations

import asyncio
import re
import shutil
import time
from collections.abc import Mapping

#: Seconds for which an answer holds.
FRESH = 1.5
#: Seconds that one of Slurm's commands may take.
PATIENCE = 60
#: How many of them run at the same time for one job.
AT_ONCE = 8
#: States of a job that has not ended.
GOING_ON = {
    "PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STAGE_OUT", "SIGNALING",
    "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT", "RESIZING",
}  # fmt: skip
#: What is taken for the state of a job while Slurm does not answer.
SILENT = "RUNNING"


class Queue:
    """What Slurm knows of this user's jobs.

    Parameters
    ----------
    environment : mapping of str to str
        For Slurm's commands.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._asking = asyncio.Lock()
        self._asked, self._answered = float("-inf"), False
        self._names: dict[str, str] = {}

    async def has(self, number: str) -> bool:
        """Whether a job waits or runs."""
        await self._ask()
        # One that is not listed may have been submitted since.
        return number in self._names or await self.state_of(number) in GOING_ON

    async def number_of(self, name: str) -> str | None:
        """The number of the job of that name; empty when there is none, None without an answer."""
        if not await self._ask():
            return None
        return next((number for number, found in self._names.items() if found == name), "")

    async def state_of(self, number: str) -> str:
        """The state of a job; empty when Slurm knows no more of it."""
        code, said = await self._said("scontrol", "--oneliner", "show", "job", number)
        if code:
            return "" if "Invalid job id" in said else SILENT
        found = re.search(r"\bJobState=(\w+)", said)
        return found[1] if found is not None else ""

    async def end_politely(self, number: str) -> bool:
        """Ask all processes of a job to end; one that waits is taken out of the queue.

        Whether Slurm has heard it.
        """
        pending, _ = await self._said("scancel", "--state=PENDING", number)
        running, _ = await self._said("scancel", "--full", "--signal=TERM", number)
        return not (pending and running)

    async def cancel(self, number: str) -> None:
        """End a job."""
        await self._said("scancel", number)

    async def _ask(self) -> bool:
        """Look, if the last look is old; whether Slurm has answered."""
        async with self._asking:
            if time.monotonic() - self._asked < FRESH:
                return self._answered
            code, said = await self._said("squeue", "--me", "--noheader", "--format=%i %T %j")
            self._asked = time.monotonic()
            self._answered = code == 0
            if code:  # what was there is taken to be there
                return False
            lines = [line.split(" ", 2) for line in said.splitlines()]
            self._names = {line[0]: line[2] for line in lines if len(line) == 3}
            return True

    async def _said(self, *words: str) -> tuple[int, str]:
        """The exit code of one of Slurm's commands, and what it prints."""
        async with self._at_once:
            try:
                process = await asyncio.create_subprocess_exec(
                    shutil.which(words[0], path=self._environment.get("PATH")) or words[0],
                    *words[1:],
                    env=self._environment,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.STDOUT,
                )
            except OSError as error:
                return 1, str(error)
            try:
                told, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
            except asyncio.TimeoutError:
                process.kill()
                await process.wait()
                return 1, "no answer"
            return process.returncode or 0, told.decode(errors="replace")
