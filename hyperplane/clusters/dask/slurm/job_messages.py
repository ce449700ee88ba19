"""Messages about the jobs of a cluster: why they do not start, and why they ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from hyperplane.clusters.dask.slurm.script import lifetime
from hyperplane.core.errors import StartFailed
from hyperplane.core.units import plural
from hyperplane.platforms.slurm.job_state import (
    COMPLETED,
    FAILED,
    OUT_OF_MEMORY,
    RUNNING,
    TIMEOUT,
    SlurmJobStatus,
    count_states,
    describe_blocked,
    is_out_of_memory,
)
from hyperplane.platforms.slurm.logs import read_log_tail
from hyperplane.platforms.slurm.queue import query_jobs
from hyperplane.spec.settings import SlurmSettings
from hyperplane.spec.settings.slurm import parse_walltime

#: Last lines of a log that are shown.
LOG_LINES = 20
#: Seconds between two queries of squeue while a start waits: the first and the longest interval.
FIRST_INTERVAL, LONGEST_INTERVAL = 2.0, 20.0
#: What to do about a final state, unless a new job is enough.
_END_ADVICE = {
    OUT_OF_MEMORY: "Raise ram_gb_per_proc, or hyperplane.engines.slurm.memory_margin_gb if other "
    "processes than the workers used it"
}
_REPLACE = "cluster.scale() or cluster.adapt() starts a new job in its place"


class StartupMonitor:
    """Explains why the workers of a starting cluster have not connected.

    Parameters
    ----------
    jobs : callable
        Returns the ids of the jobs by the names of their workers.
    logs : Path
        Folder with the output of the jobs.
    incomplete : callable
        Returns the ids of the jobs with missing workers.
    """

    def __init__(
        self,
        jobs: Callable[[], Mapping[str, str]],
        logs: Path,
        incomplete: Callable[[], Collection[str]],
    ) -> None:
        self._jobs = jobs
        self._logs = logs
        self._incomplete = incomplete
        self._message = ""
        self._next_check = 0.0
        self._interval = FIRST_INTERVAL

    def __call__(self) -> str:
        """Return why workers are missing; the answer is up to ``LONGEST_INTERVAL`` seconds old.

        Raises
        ------
        StartFailed
            If a job has ended or will never start.
        """
        if time.monotonic() >= self._next_check:
            self._message = self._check_jobs(list(self._jobs().values()))
            self._next_check = time.monotonic() + self._interval
            self._interval = min(self._interval * 1.5, LONGEST_INTERVAL)
        return self._message

    def _check_jobs(self, job_ids: list[str]) -> str:
        statuses = query_jobs(job_ids)
        if statuses is None:
            return "squeue does not answer; run it in a terminal to see the reason"
        for job_id in job_ids:
            status = statuses.get(job_id, SlurmJobStatus("gone from the queue", "", ""))
            if job_id not in statuses or status.is_leaving_queue:
                raise StartFailed(
                    "slurm",
                    f"job {job_id} ended before its workers connected: {status}; all jobs were "
                    "cancelled",
                    read_log_tail(self._logs, job_id, LOG_LINES),
                )
            if blocked := describe_blocked(job_id, status):
                raise StartFailed("slurm", f"{blocked}. All jobs were cancelled")
        message = f"squeue reports: {count_states(statuses, len(job_ids))}"
        incomplete = self._incomplete()
        if running := [
            job_id
            for job_id in job_ids
            if statuses[job_id].state == RUNNING and job_id in incomplete
        ]:
            tail = read_log_tail(self._logs, running[0], LOG_LINES)
            message += (
                ". If a job runs and its workers do not connect, the nodes cannot reach this "
                "machine (hyperplane.engines.slurm.interface) or start slowly"
                + (f"; last lines of the output of job {running[0]}:\n{tail}" if tail else "")
            )
        else:
            message += ". Raise timeout to wait longer, or request less"
        return message


def explain_end(
    settings: SlurmSettings, logs: Path, job_id: str, name: str, status: SlurmJobStatus | None
) -> str:
    """Return why a job of a running cluster has ended, with advice.

    ``logs`` is the folder with the output of the jobs, and ``name`` the name of the job's worker.
    ``status`` is None if Slurm has no record of the job.
    """
    job = f"job {job_id} (worker {name})"
    if status is None:
        return f"{job} has ended, and squeue has no record of the reason; {_REPLACE}"
    if status.state == TIMEOUT:
        return (
            f"{job} {status.end_reason}; results that only it held are computed again. "
            f"Set a longer walltime ({_walltime(settings)}); {_REPLACE}"
        )
    if status.state == COMPLETED and (seconds := lifetime(settings)) is not None:
        return (
            f"{job} retired {_format_duration(seconds)} after its start, before its time limit of "
            f"{status.limit} ({_walltime(settings)}); its results were moved to workers with more "
            f"time, if there were any. Set a longer walltime; {_REPLACE}"
        )
    tail = read_log_tail(logs, job_id, 4) if status.state == FAILED else ""
    if is_out_of_memory(status.state, tail):
        status = replace(status, state=OUT_OF_MEMORY)
    advice = _END_ADVICE.get(status.state)
    reason = f"{status.end_reason}. {advice}" if advice else status.end_reason
    return f"{job} {reason}; {_REPLACE}" + (f". Its last lines:\n{tail}" if tail else "")


def _walltime(settings: SlurmSettings) -> str:
    if settings.walltime is None:
        return "hyperplane.engines.slurm.walltime is not set, so this is the partition's limit"
    limit = _format_duration(parse_walltime(settings.walltime))
    return f"hyperplane.engines.slurm.walltime is {limit}"


def _format_duration(seconds: float) -> str:
    rounded = round(seconds)
    return plural(rounded, "second") if seconds < 120 else str(timedelta(seconds=rounded))
