"""States of AWS Batch jobs, and how their containers ended."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any, NamedTuple

SUCCEEDED, FAILED = "SUCCEEDED", "FAILED"
RUNNING = "RUNNING"
#: States before the container runs.
WAITING = ("SUBMITTED", "PENDING", "RUNNABLE", "STARTING")
#: Beginning of the reason of a waiting job that can never start.
NEVER_STARTS = "MISCONFIGURATION:"
#: Beginnings of reasons why a container was ended that do not concern the job. The last two are
#: those of Fargate.
_INFRASTRUCTURE = (
    "Host EC2",
    "Spot interruption",
    "Timeout waiting for EC2",
    "Your Spot Task was interrupted",
    "Timeout waiting for network interface provisioning",
)
#: Beginnings of reasons why a machine could not start a container, though others can. Errors that
#: an image or a role may cause, such as CannotPullContainerError, are not among them.
_HOST_FAILURES = ("DockerTimeoutError", "ContainerRuntimeTimeoutError", "InternalError")
#: Beginning of the reason of a job whose container ended by itself.
_CONTAINER_ENDED = "Essential container in task exited"
_SIGNALS = {128 + signal.SIGKILL: -signal.SIGKILL, 128 + signal.SIGTERM: -signal.SIGTERM}


class BatchJobStatus(NamedTuple):
    """State of a job and its last container.

    Parameters
    ----------
    state : str
        State of the job, such as ``"RUNNABLE"``.
    reason : str
        Why it is in the state; may be empty.
    exit_code : int or None
        Exit code of the container, negative for a signal; None if there is none.
    container_reason : str
        Why the container ended; may be empty.
    log_stream : str
        Name of its log stream; empty before the start.
    started, stopped : float
        Times in seconds since 1970; 0 before.
    """

    state: str
    reason: str = ""
    exit_code: int | None = None
    container_reason: str = ""
    log_stream: str = ""
    started: float = 0.0
    stopped: float = 0.0

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended."""
        return self.state in (SUCCEEDED, FAILED)

    @property
    def has_succeeded(self) -> bool:
        """Whether the job has ended without an error."""
        return self.state == SUCCEEDED

    @property
    def is_out_of_memory(self) -> bool:
        """Whether the container was ended because it exceeded its memory."""
        return "OutOfMemory" in self.container_reason

    @property
    def is_lost(self) -> bool:
        """Whether the machine was lost or reclaimed, so that the job can be repeated."""
        if self.state != FAILED:
            return False
        reasons = (self.reason, self.container_reason)
        if any(reason.startswith(_INFRASTRUCTURE) for reason in reasons):
            return True
        return self.exit_code is None and self.container_reason.startswith(_HOST_FAILURES)

    @property
    def was_terminated(self) -> bool:
        """Whether Batch or a user ended it, not its program."""
        return bool(
            self.state == FAILED and self.reason and not self.reason.startswith(_CONTAINER_ENDED)
        )

    def describe(self) -> str:
        """Return the state with its reasons, in one line."""
        reasons = "; ".join(filter(None, (self.reason, self.container_reason)))
        return f"{self.state} ({reasons})" if reasons else self.state


def parse_job(job: Mapping[str, Any]) -> BatchJobStatus:
    """Return the status of a job that ``describe_jobs`` returned.

    Examples
    --------
    >>> parse_job({"status": "FAILED", "container": {"exitCode": 137}}).exit_code
    -9
    """
    container = job.get("container") or {}
    code = container.get("exitCode")
    return BatchJobStatus(
        str(job["status"]),
        str(job.get("statusReason") or ""),
        None if code is None else _SIGNALS.get(int(code), int(code)),
        str(container.get("reason") or ""),
        str(container.get("logStreamName") or ""),
        float(job.get("startedAt") or 0) / 1000,
        float(job.get("stoppedAt") or 0) / 1000,
    )
