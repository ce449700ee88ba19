"""What Slurm says of the jobs of a cluster, and what follows from it."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

#: Seconds that squeue may take; Slurm's own programs try for up to a minute to reach it.
ANSWER_WITHIN = 90
#: States from which a job does not come back; of all others Slurm may start it, or start it again.
_ENDED = (
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY"),
    *("PREEMPTED", "REVOKED", "TIMEOUT"),
)
#: Reasons to wait that do not pass by themselves, and what to do.
_NEVER = {
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


@dataclass(frozen=True)
class Told:
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
    def ended(self) -> bool:
        """Whether it has ended and will not come back."""
        return self.state in _ENDED

    @property
    def leaves_the_queue(self) -> bool:
        """Whether it has ended or is just ending."""
        return self.ended or self.state == "COMPLETING"

    @property
    def never(self) -> str:
        """Why it will never start, and what to do; empty when it may."""
        if self.state != "PENDING":
            return ""
        for pattern, advice in _NEVER.items():
            if re.match(pattern, self.reason):
                return advice
        return ""

    def __str__(self) -> str:
        return self.state if self.reason in {"", "None"} else f"{self.state} ({self.reason})"


def ask(jobs: Iterable[str]) -> dict[str, Told] | None:
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
    asked = list(jobs)
    if not asked:
        return {}
    try:
        done = subprocess.run(  # noqa: S603 - numbers that sbatch gave
            _squeue(asked), capture_output=True, text=True, timeout=ANSWER_WITHIN, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return _understood(done.returncode, done.stdout, done.stderr)


async def ask_meanwhile(jobs: Iterable[str]) -> dict[str, Told] | None:
    """As :func:`ask`, without a thread: at the end of a program there can be none."""
    asked = list(jobs)
    if not asked:
        return {}
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(*_squeue(asked), stdout=pipe, stderr=pipe)
    except OSError:
        return None
    try:
        out, err = await asyncio.wait_for(process.communicate(), ANSWER_WITHIN)
    except asyncio.TimeoutError:
        process.kill()
        return None
    return _understood(process.returncode, out.decode(), err.decode())


def _squeue(jobs: list[str]) -> list[str]:
    format_ = "--format=%i|%T|%l|%r"
    return ["squeue", "--noheader", "--states=all", f"--jobs={','.join(jobs)}", format_]


def _understood(code: int | None, out: str, err: str) -> dict[str, Told] | None:
    if code and "Invalid job id" not in err:
        return None
    return dict(_read(line) for line in out.splitlines() if line.count("|") >= 3)


def _read(line: str) -> tuple[str, Told]:
    job, state, limit, reason = line.strip().split("|", 3)
    return job, Told(state, reason, limit)


def summary(told: Mapping[str, Told], asked: int) -> str:
    """The states of jobs in a few words.

    Examples
    --------
    >>> waits = Told("PENDING", "Resources", "30:00")
    >>> summary({"1": waits, "2": waits, "3": Told("RUNNING", "None", "30:00")}, asked=4)
    '2 jobs PENDING (Resources), 1 job RUNNING, 1 job gone'
    """
    counts = Counter(map(str, told.values()))
    if asked > len(told):
        counts["gone"] = asked - len(told)
    return ", ".join(
        f"{count} {'job' if count == 1 else 'jobs'} {state}" for state, count in counts.items()
    )
