"""Slurm's queue, asked for all attempts of a supervisor together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from hyperplane.engines.slurm.queue import ask_meanwhile, ended, run

#: Seconds for which an answer holds.
FRESH = 1.5
#: How many of them run at the same time for one job.
AT_ONCE = 8
#: What is taken for the state of a job while Slurm does not answer.
SILENT = "RUNNING"


def going_on(state: str) -> bool:
    """Whether a job in this state, as :meth:`Queue.state_of` says it, waits or runs."""
    return bool(state) and not ended(state)


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
        return number in self._names or going_on(await self.state_of(number))

    async def number_of(self, name: str) -> str | None:
        """The number of the job of that name; empty when there is none, None without an answer."""
        if not await self._ask():
            return None
        return next((number for number, found in self._names.items() if found == name), "")

    async def state_of(self, number: str) -> str:
        """The state of a job; empty when Slurm knows no more of it."""
        async with self._at_once:
            told = await ask_meanwhile([number], self._environment)
        if told is None:
            return SILENT
        return told[number].state if number in told else ""

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
            code, out, _ = await run(words, self._environment)
            return code, out
