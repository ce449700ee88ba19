"""What Slurm says of the jobs of a cluster, and what follows from it."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

#: Seconds that squeue may take; Slurm's own programs try for up to a minute to reach it.
ANSWER_WITHIN = 90
#: States from which a job does not come back; of all others Slurm may start it, or start it again.
_ENDED = (
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY"),
    *("PREEMPTED", "REVOKED", "TIMEOUT"),
)
#: Reasons to wait that do not pass by themselves, and what to do.
_BLOCKED = {
    r"PartitionTimeLimit": "the walltime is longer than the partition allows: set a shorter one",
    r"(PartitionConfig|PartitionNodeLimit)": "no node of the partition has what a job asks: ask "
    "for fewer cores or less memory per node, or name another partition",
    r"BadConstraints": "no node has what constraint or extra_directives ask for",
    r"(InvalidAccount|AccountNotAllowed)": "set account to one that may use the partition",
    r"(InvalidQOS|QOSNotAllowed)": "set qos to one that may use the partition",
    r"Job(Held\w*|HoldMaxRequeue)": "it is held: release it with scontrol release, or ask why",
    r"(Assoc|QOS)(Max|Min)\w*(PerJob|PerNode|NotSatisfied)\w*": "a job is larger or longer than "
    "your account or QOS allows: ask for less per node, or a shorter walltime",
    r"MaxMemPerLimit": "a job has more memory than the limit of the partition: ask for less",
    r"(Assoc|QOS)\w*Minutes\w*": "the budget of your account or QOS is used up",
    r"DependencyNeverSatisfied": "a dependency among extra_directives has failed",
}


def is_ended(state: str) -> bool:
    """Whether a job in this state has ended and will not come back."""
    return state in _ENDED


@dataclass(frozen=True)
class SlurmJobStatus:
    """What Slurm says of one job.

    Parameters
    ----------
    state : str
        As Slurm calls it, such as ``"PENDING"``.
    reason : str
        Why it is in this state; ``"None"`` when there is nothing to say.
    limit : str
        Its time limit as Slurm writes it.
    """

    state: str
    reason: str
    limit: str

    @property
    def is_ended(self) -> bool:
        """Whether it has ended and will not come back."""
        return is_ended(self.state)

    @property
    def is_leaving_queue(self) -> bool:
        """Whether it has ended or is just ending."""
        return self.is_ended or self.state == "COMPLETING"

    @property
    def blocked_advice(self) -> str:
        """Why it will never start, and what to do; empty when it may."""
        if self.state != "PENDING":
            return ""
        for pattern, advice in _BLOCKED.items():
            if re.match(pattern, self.reason):
                return advice
        return ""

    def __str__(self) -> str:
        return self.state if self.reason in {"", "None"} else f"{self.state} ({self.reason})"


def query_jobs(jobs: Iterable[str]) -> dict[str, SlurmJobStatus] | None:
    """What Slurm says of some jobs, by their numbers.

    Parameters
    ----------
    jobs : iterable of str
        Their numbers.

    Returns
    -------
    dict or None
        A job that is not in it is gone: Slurm forgets one some minutes after its end. None when
        Slurm does not answer.
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
    """As :func:`ask`, without a thread: at the end of a program there can be none.

    Parameters
    ----------
    jobs : iterable of str
        Their numbers.
    environment : mapping of str to str, optional
        In which squeue is found and runs, instead of this process' own.
    """
    numbers = list(jobs)
    if not numbers:
        return {}
    code, out, err = await run_command(_squeue(numbers), environment)
    return _parse_squeue(code, out, err)


async def run_command(
    words: Sequence[str], environment: Mapping[str, str] | None = None
) -> tuple[int, str, str]:
    """The exit code of one of Slurm's commands, what it prints, and what it complains of."""
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


def summary(statuses: Mapping[str, SlurmJobStatus], numbers: int) -> str:
    """The states of jobs in a few words.

    Examples
    --------
    >>> waits = Told("PENDING", "Resources", "30:00")
    >>> summary({"1": waits, "2": waits, "3": Told("RUNNING", "None", "30:00")}, asked=4)
    '2 jobs PENDING (Resources), 1 job RUNNING, 1 job gone'
    """
    counts = Counter(map(str, statuses.values()))
    if numbers > len(statuses):
        counts["gone"] = numbers - len(statuses)
    return ", ".join(
        f"{count} {'job' if count == 1 else 'jobs'} {state}" for state, count in counts.items()
    )
