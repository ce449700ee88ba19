"""Slurm's queue, asked for all attempts of a supervisor together."""

from __future__ import annotations

import asyncio
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping

from hyperplane.engines.slurm.queue import SlurmJobStatus, is_ended, query_jobs_async, run_command
from hyperplane.jobs.runners.request_batcher import RequestBatcher

#: Seconds for which an answer holds.
CACHE_SECONDS = 1.5
#: How many of them run at the same time for one job.
MAX_CONCURRENT_COMMANDS = 8
#: What is taken for the state of a job while Slurm does not answer.
NO_ANSWER_STATE = "RUNNING"
#: The state of a task of which Slurm knows no more, while it knows its array: one that is cancelled
#: while it waits leaves no trace.
REMOVED_STATE = "TAKEN OUT"
#: Whom scancel has not reached.
_UNREACHED_JOB = re.compile(r"job id (\S+): ")


def is_active(state: str) -> bool:
    """Whether a job in this state, as :meth:`Queue.get_state` says it, waits or runs."""
    return state not in ("", REMOVED_STATE) and not is_ended(state)


class SlurmQueue:
    """What Slurm knows of this user's jobs, a task of an array among them, as ``42_7``.

    Parameters
    ----------
    environment : mapping of str to str
        For Slurm's commands.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._command_slots = asyncio.Semaphore(MAX_CONCURRENT_COMMANDS)
        self._refresh_lock = asyncio.Lock()
        self._refreshed_at, self._answered = float("-inf"), False
        self._names: dict[str, str] = {}
        self._pending: dict[str, SlurmJobStatus] = {}
        self._state_batcher = RequestBatcher(self._query_states)
        self._terminate_batcher, self._cancel_batcher = (
            RequestBatcher(self._terminate),
            RequestBatcher(self._cancel),
        )

    async def contains(self, number: str) -> bool:
        """Whether a job waits or runs."""
        await self._refresh()
        # One that is not listed may have been submitted since.
        return number in self._names or is_active(await self.get_state(number))

    async def find_job_id(self, name: str) -> str | None:
        """The number of the job or array of a name; empty without one, None without an answer."""
        if not await self._refresh():
            return None
        numbers = (number for number, found in self._names.items() if found == name)
        return _array_id(next(numbers, ""))

    def pending_status(self, number: str) -> SlurmJobStatus | None:
        """Why a job waits, when it was seen last; None for one that did not."""
        return self._pending.get(number)

    async def get_state(self, number: str) -> str:
        """The state of a job; empty when Slurm knows no more of it."""
        return await self._state_batcher.request(number)

    async def terminate(self, number: str) -> bool:
        """Ask all processes of a job to end; one that waits is taken out of the queue.

        Whether Slurm has heard it.
        """
        return await self._terminate_batcher.request(number)

    async def cancel(self, number: str) -> None:
        """End a job."""
        await self._cancel_batcher.request(number)

    async def _query_jobs(self, numbers: Iterable[str]) -> dict[str, SlurmJobStatus] | None:
        async with self._command_slots:
            return await query_jobs_async(sorted(set(map(_array_id, numbers))), self._environment)

    async def _query_states(self, numbers: list[str]) -> list[str]:
        told = await self._query_jobs(numbers)
        if told is None:
            return [NO_ANSWER_STATE for _ in numbers]
        arrays = set(map(_array_id, told))
        unknown = {one: REMOVED_STATE for one in numbers if "_" in one and _array_id(one) in arrays}
        return [told[one].state if one in told else unknown.get(one, "") for one in numbers]

    async def _terminate(self, numbers: list[str]) -> list[bool]:
        tasks = [one for one in numbers if "_" in one]
        single = [one for one in numbers if "_" not in one]
        missed = await self._terminate_jobs(single) | await self._terminate_tasks(tasks)
        return [one not in missed for one in numbers]

    async def _terminate_jobs(self, numbers: list[str]) -> set[str]:
        pending = await self._unreached("--state=PENDING", numbers=numbers)
        return pending & await self._unreached("--full", "--signal=TERM", numbers=numbers)

    async def _terminate_tasks(self, numbers: list[str]) -> set[str]:
        """As for jobs; but this looks first what waits, and what begins just then is cancelled.

        Whenever scancel is asked for a state, or to send a signal, it takes the whole array for a
        task that waits.
        """
        told = await self._query_jobs(numbers) if numbers else {}
        if told is None:
            return set(numbers)
        states = {one: told[one].state for one in numbers if one in told}
        waiting = [one for one, state in states.items() if state == "PENDING"]
        if waiting:
            await self._cancel(waiting)
        running = [one for one, state in states.items() if state != "PENDING" and is_active(state)]
        return await self._unreached("--full", "--signal=TERM", numbers=running)

    async def _cancel(self, numbers: list[str]) -> list[None]:
        await self._run_command("scancel", *_group_tasks(numbers))
        return [None for _ in numbers]

    async def _unreached(self, *options: str, numbers: list[str]) -> set[str]:
        """Whom one scancel does not reach."""
        if not numbers:
            return set()
        code, _, complaint = await self._run_command("scancel", *options, *numbers)
        if not code:
            return set()
        return set(_UNREACHED_JOB.findall(complaint)) & set(numbers) or set(numbers)

    async def _refresh(self) -> bool:
        """Look, if the last look is old; whether Slurm has answered."""
        async with self._refresh_lock:
            if time.monotonic() - self._refreshed_at < CACHE_SECONDS:
                return self._answered
            code, said, _ = await self._run_command(
                *("squeue", "--me", "--array", "--noheader", "--format=%i %T %r|%j")
            )
            self._refreshed_at = time.monotonic()
            self._answered = code == 0
            if code:  # what was there is taken to be there
                return False
            self._names, self._pending = {}, {}
            for line in said.splitlines():
                number, state, rest = line.split(" ", 2)
                reason, _, self._names[number] = rest.partition("|")
                if state == "PENDING":
                    self._pending[number] = SlurmJobStatus(state, reason, "")
            return True

    async def _run_command(self, *words: str) -> tuple[int, str, str]:
        """The exit code of one of Slurm's commands, what it prints, and what it complains of."""
        async with self._command_slots:
            return await run_command(words, self._environment)


def _array_id(number: str) -> str:
    """The number of the array, for one of a task."""
    return number.partition("_")[0]


def _group_tasks(numbers: Iterable[str]) -> list[str]:
    """Numbers as scancel takes them fastest: an array once, with those of its tasks.

    Examples
    --------
    >>> _together(["7", "8_0", "8_12", "9_3"])
    ['7', '8_[0,12]', '9_[3]']
    """
    tasks: dict[str, list[str]] = defaultdict(list)
    for number in numbers:
        whole, _, task = number.partition("_")
        tasks[whole] += [task] if task else []
    return [f"{whole}_[{','.join(ones)}]" if ones else whole for whole, ones in tasks.items()]
