"""Query and cancel jobs of Slurm; concurrent requests are batched."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterable, Mapping

from hyperplane.platforms.slurm.arrays import array_id, group_tasks, is_task
from hyperplane.platforms.slurm.commands import (
    CommandResult,
    run_command,
    run_command_async,
)
from hyperplane.platforms.slurm.job_state import (
    PENDING,
    REMOVED,
    RUNNING,
    UNKNOWN,
    SlurmJobStatus,
    is_active,
)
from hyperplane.platforms.slurm.request_batcher import RequestBatcher

#: Seconds for which a listing of the queue is reused.
CACHE_SECONDS = 1.5
#: Number of checks for a job whose submission had no response: a busy Slurm may accept it late.
SUBMIT_CHECKS = 8
#: Seconds between such checks while Slurm does not respond.
NO_ANSWER_SECONDS = 10.0
#: Maximum concurrent Slurm commands of one queue.
MAX_CONCURRENT_COMMANDS = 8
#: Assumed state of a job while Slurm does not respond.
NO_ANSWER_STATE = RUNNING
#: Fields of a line of squeue. The name is the last one, because it may have any character.
_LINE_FORMAT = "--format=%i|%T|%l|%r|%j"
#: Jobs that scancel reports as not reached.
_UNREACHED_JOB = re.compile(r"job id (\S+): ")


def query_jobs(job_ids: Iterable[str]) -> dict[str, SlurmJobStatus] | None:
    """Return the status of jobs by their ids, or None if Slurm does not answer.

    Ended jobs may be missing, because Slurm deletes their records after some minutes.
    """
    listed = list(job_ids)
    if not listed:
        return {}
    try:
        return _read_statuses(run_command(_query_command(listed)))
    except OSError:
        return None


async def query_jobs_async(
    job_ids: Iterable[str], environment: Mapping[str, str] | None = None
) -> dict[str, SlurmJobStatus] | None:
    """Do the same as :func:`query_jobs` without a thread, which cannot be started at exit."""
    listed = list(job_ids)
    if not listed:
        return {}
    try:
        return _read_statuses(await run_command_async(_query_command(listed), environment))
    except OSError:
        return None


def parse_squeue(output: str) -> dict[str, SlurmJobStatus]:
    """Return the status of each job in the output of squeue, by id.

    Examples
    --------
    >>> parse_squeue("42_7|RUNNING|30:00|None|a-job")["42_7"]
    SlurmJobStatus(state='RUNNING', reason='None', limit='30:00', name='a-job')
    """
    statuses = {}
    for line in output.splitlines():
        job_id, *fields = line.strip().split("|", 4)
        if len(fields) >= 3:
            state, limit, reason, *name = fields
            statuses[job_id] = SlurmJobStatus(state, reason, limit, *name)
    return statuses


def _query_command(job_ids: list[str]) -> list[str]:
    jobs = f"--jobs={','.join(job_ids)}"
    return ["squeue", "--noheader", "--array", "--states=all", jobs, _LINE_FORMAT]


def _read_statuses(result: CommandResult) -> dict[str, SlurmJobStatus] | None:
    # squeue fails with this message for a single job of which Slurm has no record.
    if result.exit_code and "Invalid job id" not in result.errors:
        return None
    return parse_squeue(result.output)


class SlurmQueue:
    """State of this user's Slurm jobs and array tasks, by ids such as ``42_7``.

    ``environment`` is that of Slurm's commands.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._command_slots = asyncio.Semaphore(MAX_CONCURRENT_COMMANDS)
        self._refresh_lock = asyncio.Lock()
        self._refreshed_at, self._answered = float("-inf"), False
        self._listed: dict[str, SlurmJobStatus] = {}
        self._state_batcher = RequestBatcher(self._query_states)
        self._terminate_batcher = RequestBatcher(self._terminate)
        self._cancel_batcher = RequestBatcher(self._cancel)

    async def contains(self, job_id: str) -> bool:
        """Return whether a job is pending or running."""
        await self._refresh()
        # The job may have been submitted after the listing.
        return job_id in self._listed or is_active(await self.get_state(job_id))

    async def find_job_id(self, name: str) -> str | None:
        """Return the id of a job or array by name; empty if there is none, None if unknown."""
        if not await self._refresh():
            return None
        job_ids = (job_id for job_id, status in self._listed.items() if status.name == name)
        return array_id(next(job_ids, ""))

    async def find_submitted(self, name: str) -> str:
        """Return the id of a job submitted without a response; empty if there is none."""
        job_id = None
        for _ in range(SUBMIT_CHECKS):
            await asyncio.sleep(CACHE_SECONDS)
            if job_id := await self.find_job_id(name):
                return job_id
        while job_id is None:  # Slurm does not respond, so it is unknown
            await asyncio.sleep(NO_ANSWER_SECONDS)
            job_id = await self.find_job_id(name)
        return job_id

    def pending_status(self, job_id: str) -> SlurmJobStatus | None:
        """Return the status of a job that was pending in the last listing; None for others."""
        status = self._listed.get(job_id)
        return status if status is not None and status.state == PENDING else None

    async def get_state(self, job_id: str) -> str:
        """Return the state of a job: RUNNING while Slurm does not respond, or that of its record.

        Without a record it is UNKNOWN, or REMOVED for a task whose array has one.
        """
        return await self._state_batcher.request(job_id)

    async def terminate(self, job_id: str) -> bool:
        """Send SIGTERM to a job, or cancel it if pending; return whether Slurm confirmed."""
        return await self._terminate_batcher.request(job_id)

    async def cancel(self, job_id: str) -> None:
        """Cancel a job."""
        await self._cancel_batcher.request(job_id)

    async def _query_jobs(self, job_ids: Iterable[str]) -> dict[str, SlurmJobStatus] | None:
        async with self._command_slots:
            return await query_jobs_async(sorted({*map(array_id, job_ids)}), self._environment)

    async def _query_states(self, job_ids: list[str]) -> list[str]:
        jobs = await self._query_jobs(job_ids)
        if jobs is None:
            return [NO_ANSWER_STATE for _ in job_ids]
        arrays = set(map(array_id, jobs))

        def state_of(job_id: str) -> str:
            if job_id in jobs:
                return jobs[job_id].state
            return REMOVED if is_task(job_id) and array_id(job_id) in arrays else UNKNOWN

        return [state_of(job_id) for job_id in job_ids]

    async def _terminate(self, job_ids: list[str]) -> list[bool]:
        tasks = [job_id for job_id in job_ids if is_task(job_id)]
        single = [job_id for job_id in job_ids if not is_task(job_id)]
        unreached = await self._terminate_jobs(single) | await self._terminate_tasks(tasks)
        return [job_id not in unreached for job_id in job_ids]

    async def _terminate_jobs(self, job_ids: list[str]) -> set[str]:
        """Terminate single jobs; return those not reached. Pending ones are cancelled."""
        not_cancelled = await self._run_scancel("--state=PENDING", job_ids=job_ids)
        return not_cancelled & await self._run_scancel("--full", "--signal=TERM", job_ids=job_ids)

    async def _terminate_tasks(self, job_ids: list[str]) -> set[str]:
        """Terminate array tasks; return those not reached. Pending ones are cancelled.

        With a state filter or a signal, scancel treats an array as one pending task. So the states
        are queried first, and a task that starts after the query is cancelled.
        """
        jobs = await self._query_jobs(job_ids) if job_ids else {}
        if jobs is None:
            return set(job_ids)
        states = {job_id: jobs[job_id].state for job_id in job_ids if job_id in jobs}
        pending = [job_id for job_id, state in states.items() if state == PENDING]
        if pending:
            await self._cancel(pending)
        running = [
            job_id for job_id, state in states.items() if state != PENDING and is_active(state)
        ]
        return await self._run_scancel("--full", "--signal=TERM", job_ids=running)

    async def _cancel(self, job_ids: list[str]) -> list[None]:
        await self._run_command("scancel", *group_tasks(job_ids))
        return [None for _ in job_ids]

    async def _run_scancel(self, *options: str, job_ids: list[str]) -> set[str]:
        """Run scancel and return the jobs that it did not reach."""
        if not job_ids:
            return set()
        result = await self._run_command("scancel", *options, *job_ids)
        if not result.exit_code:
            return set()
        return set(_UNREACHED_JOB.findall(result.errors)) & set(job_ids) or set(job_ids)

    async def _refresh(self) -> bool:
        """Query the queue if the last result is old; return whether Slurm responded."""
        async with self._refresh_lock:
            if time.monotonic() - self._refreshed_at < CACHE_SECONDS:
                return self._answered
            result = await self._run_command(
                "squeue", "--me", "--array", "--noheader", _LINE_FORMAT
            )
            self._refreshed_at = time.monotonic()
            self._answered = result.exit_code == 0
            if self._answered:  # otherwise the previous listing is kept
                self._listed = parse_squeue(result.output)
            return self._answered

    async def _run_command(self, *words: str) -> CommandResult:
        """Run a Slurm command; one that cannot run or does not end counts as failed."""
        async with self._command_slots:
            try:
                return await run_command_async(words, self._environment)
            except OSError as error:
                return CommandResult(1, "", str(error))
