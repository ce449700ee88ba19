"""State of this user's Slurm jobs, with shared requests for all attempts."""

from __future__ import annotations

import asyncio
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping

from hyperplane.platforms.slurm.queue import SlurmJobStatus, is_ended, query_jobs_async, run_command
from hyperplane.platforms.slurm.request_batcher import RequestBatcher

#: Seconds for which a query result is reused.
CACHE_SECONDS = 1.5
#: Maximum concurrent Slurm commands of one job.
MAX_CONCURRENT_COMMANDS = 8
#: Assumed state of a job while Slurm does not respond.
NO_ANSWER_STATE = "RUNNING"
#: State of a task that Slurm does not know although it knows the array: a task cancelled while
#: pending leaves no record.
REMOVED_STATE = "TAKEN OUT"
#: Jobs that scancel reports as not reached.
_UNREACHED_JOB = re.compile(r"job id (\S+): ")


def is_active(state: str) -> bool:
    """Whether a state of :meth:`SlurmQueue.get_state` means pending or running."""
    return state not in ("", REMOVED_STATE) and not is_ended(state)


class SlurmQueue:
    """State of this user's Slurm jobs and array tasks, by ids such as ``42_7``.

    ``environment`` is that of Slurm's commands.
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

    async def contains(self, job_id: str) -> bool:
        """Whether a job is pending or running."""
        await self._refresh()
        # It may have been submitted after the listing.
        return job_id in self._names or is_active(await self.get_state(job_id))

    async def find_job_id(self, name: str) -> str | None:
        """Return the id of a job or array by name; empty if there is none, None if unknown."""
        if not await self._refresh():
            return None
        job_ids = (job_id for job_id, found in self._names.items() if found == name)
        return _array_id(next(job_ids, ""))

    def pending_status(self, job_id: str) -> SlurmJobStatus | None:
        """Return why a job was pending when last seen; None if it was not."""
        return self._pending.get(job_id)

    async def get_state(self, job_id: str) -> str:
        """Return the state of a job; empty if Slurm no longer knows it."""
        return await self._state_batcher.request(job_id)

    async def terminate(self, job_id: str) -> bool:
        """Send SIGTERM to a job, or cancel it if pending; return whether Slurm confirmed."""
        return await self._terminate_batcher.request(job_id)

    async def cancel(self, job_id: str) -> None:
        """Cancel a job."""
        await self._cancel_batcher.request(job_id)

    async def _query_jobs(self, job_ids: Iterable[str]) -> dict[str, SlurmJobStatus] | None:
        async with self._command_slots:
            return await query_jobs_async(sorted(set(map(_array_id, job_ids))), self._environment)

    async def _query_states(self, job_ids: list[str]) -> list[str]:
        jobs = await self._query_jobs(job_ids)
        if jobs is None:
            return [NO_ANSWER_STATE for _ in job_ids]
        arrays = set(map(_array_id, jobs))
        unknown = {one: REMOVED_STATE for one in job_ids if "_" in one and _array_id(one) in arrays}
        return [jobs[one].state if one in jobs else unknown.get(one, "") for one in job_ids]

    async def _terminate(self, job_ids: list[str]) -> list[bool]:
        tasks = [one for one in job_ids if "_" in one]
        single = [one for one in job_ids if "_" not in one]
        unreached = await self._terminate_jobs(single) | await self._terminate_tasks(tasks)
        return [one not in unreached for one in job_ids]

    async def _terminate_jobs(self, job_ids: list[str]) -> set[str]:
        pending = await self._unreached("--state=PENDING", job_ids=job_ids)
        return pending & await self._unreached("--full", "--signal=TERM", job_ids=job_ids)

    async def _terminate_tasks(self, job_ids: list[str]) -> set[str]:
        """Terminate array tasks; return those not reached. Pending ones are cancelled.

        For a state filter or a signal, scancel treats the whole array as one pending task, so the
        states are queried first; tasks that start meanwhile are cancelled.
        """
        jobs = await self._query_jobs(job_ids) if job_ids else {}
        if jobs is None:
            return set(job_ids)
        states = {one: jobs[one].state for one in job_ids if one in jobs}
        waiting = [one for one, state in states.items() if state == "PENDING"]
        if waiting:
            await self._cancel(waiting)
        running = [one for one, state in states.items() if state != "PENDING" and is_active(state)]
        return await self._unreached("--full", "--signal=TERM", job_ids=running)

    async def _cancel(self, job_ids: list[str]) -> list[None]:
        await self._run_command("scancel", *_group_tasks(job_ids))
        return [None for _ in job_ids]

    async def _unreached(self, *options: str, job_ids: list[str]) -> set[str]:
        """Run scancel and return the jobs that it did not reach."""
        if not job_ids:
            return set()
        code, _, complaint = await self._run_command("scancel", *options, *job_ids)
        if not code:
            return set()
        return set(_UNREACHED_JOB.findall(complaint)) & set(job_ids) or set(job_ids)

    async def _refresh(self) -> bool:
        """Query the queue if the last result is old; return whether Slurm responded."""
        async with self._refresh_lock:
            if time.monotonic() - self._refreshed_at < CACHE_SECONDS:
                return self._answered
            code, output, _ = await self._run_command(
                *("squeue", "--me", "--array", "--noheader", "--format=%i %T %r|%j")
            )
            self._refreshed_at = time.monotonic()
            self._answered = code == 0
            if code:  # keep the previous result
                return False
            self._names, self._pending = {}, {}
            for line in output.splitlines():
                job_id, state, rest = line.split(" ", 2)
                reason, _, self._names[job_id] = rest.partition("|")
                if state == "PENDING":
                    self._pending[job_id] = SlurmJobStatus(state, reason, "")
            return True

    async def _run_command(self, *words: str) -> tuple[int, str, str]:
        """Run a Slurm command; return its exit code, output and error output."""
        async with self._command_slots:
            return await run_command(words, self._environment)


def _array_id(job_id: str) -> str:
    """Return the id of the array of a task."""
    return job_id.partition("_")[0]


def _group_tasks(job_ids: Iterable[str]) -> list[str]:
    """Group the tasks of each array, as scancel processes them fastest.

    Examples
    --------
    >>> _group_tasks(["7", "8_0", "8_12", "9_3"])
    ['7', '8_[0,12]', '9_[3]']
    """
    tasks: dict[str, list[str]] = defaultdict(list)
    for job_id in job_ids:
        whole, _, task = job_id.partition("_")
        tasks[whole] += [task] if task else []
    return [f"{whole}_[{','.join(ones)}]" if ones else whole for whole, ones in tasks.items()]
