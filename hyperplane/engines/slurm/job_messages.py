"""What is told of the jobs of a cluster: while they start, and when they end."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from hyperplane.engines.slurm import queue as slurm_queue
from hyperplane.engines.slurm.queue import SlurmJobStatus
from hyperplane.engines.slurm.script import lifetime
from hyperplane.errors import StartFailed
from hyperplane.folder_entries import find_in
from hyperplane.spec.settings import SlurmSettings
from hyperplane.spec.settings.slurm import seconds_of
from hyperplane.units import plural

LOG_LINES = 20
#: Seconds between two questions to squeue while a start waits, at first and at most.
FIRST_INTERVAL, LONGEST_INTERVAL = 2.0, 20.0
_END_REASONS = {
    "OUT_OF_MEMORY": "used more memory than it asked for. Give ram_gb_per_proc more, or "
    "hyperplane.engines.slurm.memory_margin_gb when it was not the workers",
    "PREEMPTED": "had to make room for a job of higher priority",
    "NODE_FAIL": "was on a node that failed",
    "BOOT_FAIL": "was on a node that failed",
    "CANCELLED": "was cancelled",
}
_REPLACE = "cluster.scale() or cluster.adapt() puts a new job in its place"


class StartupMonitor:
    """Looks at the jobs of a cluster that starts.

    Parameters
    ----------
    jobs : callable
        Gives the numbers of the jobs by the names of their workers.
    logs : Path
        The folder of what the jobs print.
    incomplete : callable
        Gives the numbers of the jobs whose workers are not all there.
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
        """Say what keeps the workers away; of long waits, what was so some seconds ago.

        Raises
        ------
        StartFailed
            When a job has ended or will never start.
        """
        if time.monotonic() >= self._next_check:
            self._message = self._check_jobs(list(self._jobs().values()))
            self._interval = min(self._interval * 1.5, LONGEST_INTERVAL)
            self._next_check = time.monotonic() + self._interval
        return self._message

    def _check_jobs(self, numbers: list[str]) -> str:
        statuses = slurm_queue.query_jobs(numbers)
        if statuses is None:
            return "squeue does not answer"
        for number in numbers:
            found = statuses.get(number, SlurmJobStatus("gone from the queue", "", ""))
            if number not in statuses or found.is_leaving_queue:
                raise StartFailed(
                    "slurm",
                    f"job {number} ended before its workers came: {found}; all jobs were cancelled",
                    read_log_tail(self._logs, number),
                )
            if found.blocked_advice:
                raise StartFailed(
                    "slurm",
                    f"Slurm will not start job {number}, {found}: {found.blocked_advice}. "
                    "All jobs were cancelled",
                )
        message = f"squeue says: {slurm_queue.summary(statuses, len(numbers))}"
        waited_for = self._incomplete()
        if running := [n for n in numbers if statuses[n].state == "RUNNING" and n in waited_for]:
            tail = read_log_tail(self._logs, running[0])
            message += (
                ". Where a job runs and its workers do not come, the nodes do not reach this "
                "machine (hyperplane.engines.slurm.interface) or start slowly"
                + (f"; the end of what job {running[0]} printed:\n{tail}" if tail else "")
            )
        else:
            message += ". Raise timeout to wait longer, or ask for less"
        return message


def read_log_tail(logs: Path, number: str, lines: int = LOG_LINES) -> str:
    """The last lines that a job has printed; empty when there are none or they cannot be read."""
    for file in find_in(logs, f"*-{number}.log"):
        with suppress(OSError):
            text = file.read_text(encoding="utf-8", errors="replace")
            return "\n".join(text.splitlines()[-lines:])
    return ""


def explain_end(
    settings: SlurmSettings, logs: Path, number: str, name: str, statuses: SlurmJobStatus | None
) -> str:
    """Why a job of a running cluster has ended, and what to do.

    Parameters
    ----------
    settings : SlurmSettings
        The settings of the engine.
    logs : Path
        The folder of what the jobs print.
    number : str
        Of the job.
    name : str
        Of its worker.
    told : Told or None
        What Slurm says; None when it has forgotten the job.
    """
    job = f"job {number} (worker {name})"
    if statuses is None:
        return f"{job} has ended, and squeue no longer knows why; {_REPLACE}"
    if statuses.state == "TIMEOUT":
        limit = f"its time limit of {statuses.limit}"
        return (
            f"{job} was ended by Slurm at {limit}; what only it held is computed again. Set a "
            f"longer walltime ({_walltime(settings)}); {_REPLACE}"
        )
    if statuses.state == "COMPLETED" and (early := lifetime(settings)) is not None:
        return (
            f"{job} left {_time(early)} after it began, before its time limit of {statuses.limit} "
            f"({_walltime(settings)}); its results were handed over to workers with "
            f"more time, if there were any. Set a longer walltime; {_REPLACE}"
        )
    tail = read_log_tail(logs, number, lines=4) if statuses.state == "FAILED" else ""
    # Without control groups Slurm calls it a failure, and says more in the job's own output.
    state = "OUT_OF_MEMORY" if "xceeded job memory limit" in tail else statuses.state
    why = _END_REASONS.get(state, f"ended: {statuses}")
    return f"{job} {why}; {_REPLACE}" + (f". Its last lines:\n{tail}" if tail else "")


def _walltime(settings: SlurmSettings) -> str:
    if settings.walltime is None:
        return "hyperplane.engines.slurm.walltime is not set, so this is the partition's own"
    return f"hyperplane.engines.slurm.walltime is {_time(seconds_of(settings.walltime))}"


def _time(seconds: float) -> str:
    whole = timedelta(seconds=round(seconds))
    return plural(round(seconds), "second") if seconds < 120 else str(whole)
