"""States of Slurm jobs: which are final, why a job waits, and why one has ended."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

PENDING, RUNNING, COMPLETED, CANCELLED = "PENDING", "RUNNING", "COMPLETED", "CANCELLED"
FAILED, OUT_OF_MEMORY, TIMEOUT = "FAILED", "OUT_OF_MEMORY", "TIMEOUT"
#: State of a task without a record whose array has one: Slurm keeps no record of a task that was
#: cancelled while pending.
REMOVED = "REMOVED"
#: State of a job of which Slurm has no record: it forgets jobs some minutes after their end.
UNKNOWN = ""
#: States after a failure of the machines or the scheduler, for which the job is not responsible.
_INFRASTRUCTURE_FAILURES = frozenset({"BOOT_FAIL", "NODE_FAIL", "PREEMPTED"})
#: Final states; in all other states Slurm may still start the job, or start it again.
_FINAL = _INFRASTRUCTURE_FAILURES | {
    *(CANCELLED, COMPLETED, "DEADLINE", FAILED, OUT_OF_MEMORY, "REVOKED", TIMEOUT),
}
#: Final states -> the predicate of a sentence about the job.
_END_REASONS = {
    OUT_OF_MEMORY: "used more memory than it requested",
    "PREEMPTED": "was preempted by a job of higher priority",
    "NODE_FAIL": "was on a node that failed",
    "BOOT_FAIL": "was on a node that failed",
    CANCELLED: "was cancelled",
}
#: Messages of Slurm in the output of a job that exceeded its memory.
_MEMORY_MESSAGE = re.compile("Exceeded (job|step) memory limit|oom.kill", re.IGNORECASE)
#: Patterns of reasons for which a pending job will never start -> advice.
_BLOCKED = {
    r"PartitionTimeLimit": "the time limit of the job is longer than the partition allows: set a "
    "shorter walltime",
    r"(PartitionConfig|PartitionNodeLimit)": "no node of the partition has the resources that a "
    "job requests: request fewer cores or less memory per node, or set another partition",
    r"BadConstraints": "no node satisfies the constraint or other options of the job",
    r"(InvalidAccount|AccountNotAllowed)": "set an account that may use the partition",
    r"(InvalidQOS|QOSNotAllowed)": "set a QOS that may use the partition",
    r"Job(Held|HoldMaxRequeue)": "the job is held: release it with scontrol release, or ask the "
    "administrators",
    r"(Assoc|QOS)(Max|Min)\w*(PerJob|PerNode|NotSatisfied)\w*": "a job is larger or longer than "
    "your account or QOS allows: request less per node, or a shorter walltime",
    r"MaxMemPerLimit": "a job requests more memory than the partition allows: request less",
    r"(Assoc|QOS)\w*Minutes\w*": "the budget of your account or QOS is used up",
    r"DependencyNeverSatisfied": "a job on which it depends has failed",
}


def is_ended(state: str) -> bool:
    """Return whether a state is final."""
    return state in _FINAL


def is_active(state: str) -> bool:
    """Return whether a job in this state has not ended, such as a pending or a running one."""
    return state not in (UNKNOWN, REMOVED) and not is_ended(state)


def is_infrastructure_failure(state: str) -> bool:
    """Return whether a state means that a machine or the scheduler ended the job."""
    return state in _INFRASTRUCTURE_FAILURES


def is_out_of_memory(state: str, log_tail: str) -> bool:
    """Return whether a job was ended for its memory, by its state and the end of its output.

    Without control groups the state is FAILED, and only the output names the reason.
    """
    return state == OUT_OF_MEMORY or _MEMORY_MESSAGE.search(log_tail) is not None


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
    name : str, optional
        Name of the job.
    """

    state: str
    reason: str
    limit: str
    name: str = ""

    @property
    def is_ended(self) -> bool:
        """Whether the job is in a final state."""
        return is_ended(self.state)

    @property
    def is_leaving_queue(self) -> bool:
        """Whether the job has ended or is completing."""
        return self.is_ended or self.state == "COMPLETING"

    @property
    def is_held(self) -> bool:
        """Whether a user or an administrator has held the job, and may release it."""
        return self.state == PENDING and self.reason.startswith("JobHeld")

    @property
    def blocked_advice(self) -> str:
        """Advice if the job will never start; empty if it may start."""
        if self.state != PENDING:
            return ""
        for pattern, advice in _BLOCKED.items():
            if re.match(pattern, self.reason):
                return advice
        return ""

    @property
    def end_reason(self) -> str:
        """The end of the job, as the predicate of a sentence."""
        if self.state == TIMEOUT:
            return f"was ended by Slurm at its time limit of {self.limit}"
        return _END_REASONS.get(self.state, f"ended: {self}")

    def __str__(self) -> str:
        return self.state if self.reason in {"", "None"} else f"{self.state} ({self.reason})"


def describe_blocked(job_id: str, status: SlurmJobStatus) -> str:
    """Return why Slurm will never start a pending job, with advice; empty if it may start.

    Examples
    --------
    >>> describe_blocked("7", SlurmJobStatus("PENDING", "InvalidQOS", "30:00"))
    'Slurm will not start job 7, PENDING (InvalidQOS): set a QOS that may use the partition'
    """
    advice = status.blocked_advice
    return advice and f"Slurm will not start job {job_id}, {status}: {advice}"


def count_states(statuses: Mapping[str, SlurmJobStatus], total: int) -> str:
    """Return a line that counts jobs by state and reason.

    Examples
    --------
    >>> pending = SlurmJobStatus("PENDING", "Resources", "30:00")
    >>> running = SlurmJobStatus("RUNNING", "None", "30:00")
    >>> count_states({"1": pending, "2": pending, "3": running}, total=4)
    '2 jobs PENDING (Resources), 1 job RUNNING, 1 job gone'
    """
    counts = Counter(map(str, statuses.values()))
    if total > len(statuses):
        counts["gone"] = total - len(statuses)
    return ", ".join(
        f"{count} {'job' if count == 1 else 'jobs'} {state}" for state, count in counts.items()
    )
