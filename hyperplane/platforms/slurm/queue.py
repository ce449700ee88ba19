"""Query the status of jobs with squeue, and interpret it."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

#: Seconds that squeue may take; Slurm's commands try for up to a minute to reach the controller.
ANSWER_WITHIN = 90
#: Final states; in all other states Slurm may still start the job, or start it again.
_ENDED = (
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY"),
    *("PREEMPTED", "REVOKED", "TIMEOUT"),
)
#: Reasons of pending jobs that do not resolve by themselves -> what to do.
_BLOCKED = {
    r"PartitionTimeLimit": "the walltime is longer than the partition allows: set a shorter one",
    r"(PartitionConfig|PartitionNodeLimit)": "no node of the partition has the resources that a "
    "job requests: request fewer cores or less memory per node, or set another partition",
    r"BadConstraints": "no node satisfies constraint or extra_directives",
    r"(InvalidAccount|AccountNotAllowed)": "set account to one that may use the partition",
    r"(InvalidQOS|QOSNotAllowed)": "set qos to one that may use the partition",
    r"Job(Held\w*|HoldMaxRequeue)": "the job is held: release it with scontrol release, or ask the "
    "administrators",
    r"(Assoc|QOS)(Max|Min)\w*(PerJob|PerNode|NotSatisfied)\w*": "a job is larger or longer than "
    "your account or QOS allows: request less per node, or a shorter walltime",
    r"MaxMemPerLimit": "a job requests more memory than the partition allows: request less",
    r"(Assoc|QOS)\w*Minutes\w*": "the budget of your account or QOS is used up",
    r"DependencyNeverSatisfied": "a dependency in extra_directives has failed",
}


def is_ended(state: str) -> bool:
    """Return whether a state is final."""
    return state in _ENDED


@dataclass(frozen=True)
class SlurmJobStatus:
    """Status of a Slurm job.

    Parameters
    ----------
    state : str
        Slurm's name of the state, such as ``"PENDING"``.
    reason : str
        Slurm's reason for the state; ``"None"`` without one.
    limit : str
        Time limit in Slurm's notation.
    """

    state: str
    reason: str
    limit: str

    @property
    def is_ended(self) -> bool:
        """Whether the job is in a final state."""
        return is_ended(self.state)

    @property
    def is_leaving_queue(self) -> bool:
        """Whether the job has ended or is completing."""
        return self.is_ended or self.state == "COMPLETING"

    @property
    def blocked_advice(self) -> str:
        """Why the job will not start, and what to do; empty if it may start."""
        if self.state != "PENDING":
            return ""
        for pattern, advice in _BLOCKED.items():
            if re.match(pattern, self.reason):
                return advice
        return ""

    def __str__(self) -> str:
        return self.state if self.reason in {"", "None"} else f"{self.state} ({self.reason})"


def query_jobs(jobs: Iterable[str]) -> dict[str, SlurmJobStatus] | None:
    """Return the status of jobs by their numbers, or None if Slurm does not answer.

    A job that is not in the result is gone: Slurm forgets jobs some minutes after their end.
    """
    numbers = list(jobs)
    if not numbers:
        return {}
    try:
        finished = subprocess.run(  # noqa: S603 - numbers that sbatch gave
            _squeue(numbers), capture_output=True, text=True, timeout=ANSWER_WITHIN, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return _parse_squeue(finished.returncode, finished.stdout, finished.stderr)


async def query_jobs_async(
    jobs: Iterable[str], environment: Mapping[str, str] | None = None
) -> dict[str, SlurmJobStatus] | None:
    """Return the same as :func:`query_jobs`, without a thread: at exit none can be started.

    Parameters
    ----------
    jobs : iterable of str
        Numbers of jobs.
    environment : mapping of str to str, optional
        Environment in which squeue is found and runs; by default that of this process.
    """
    numbers = list(jobs)
    if not numbers:
        return {}
    code, out, err = await run_command(_squeue(numbers), environment)
    return _parse_squeue(code, out, err)


async def run_command(
    words: Sequence[str], environment: Mapping[str, str] | None = None
) -> tuple[int, str, str]:
    """Run a Slurm command and return its exit code, standard output and standard error."""
    pipe = asyncio.subprocess.PIPE
    program = shutil.which(words[0], path=(environment or os.environ).get("PATH")) or words[0]
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            *words[1:],
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
        )
    except OSError as error:
        return 1, "", str(error)
    try:
        out, err = await asyncio.wait_for(process.communicate(), ANSWER_WITHIN)
    except TimeoutError:
        process.kill()
        await process.wait()
        return 1, "", "no answer"
    return process.returncode or 0, out.decode(errors="replace"), err.decode(errors="replace")


def _squeue(jobs: list[str]) -> list[str]:
    format_ = "--format=%i|%T|%l|%r"
    return ["squeue", "--noheader", "--array", "--states=all", f"--jobs={','.join(jobs)}", format_]


def _parse_squeue(code: int | None, out: str, err: str) -> dict[str, SlurmJobStatus] | None:
    if code and "Invalid job id" not in err:
        return None
    return dict(_parse_line(line) for line in out.splitlines() if line.count("|") >= 3)


def _parse_line(line: str) -> tuple[str, SlurmJobStatus]:
    job, state, limit, reason = line.strip().split("|", 3)
    return job, SlurmJobStatus(state, reason, limit)


def summary(statuses: Mapping[str, SlurmJobStatus], total: int) -> str:
    """Return a line that counts jobs by state.

    Examples
    --------
    >>> waits = SlurmJobStatus("PENDING", "Resources", "30:00")
    >>> runs = SlurmJobStatus("RUNNING", "None", "30:00")
    >>> summary({"1": waits, "2": waits, "3": runs}, total=4)
    '2 jobs PENDING (Resources), 1 job RUNNING, 1 job gone'
    """
    counts = Counter(map(str, statuses.values()))
    if total > len(statuses):
        counts["gone"] = total - len(statuses)
    return ", ".join(
        f"{count} {'job' if count == 1 else 'jobs'} {state}" for state, count in counts.items()
    )
