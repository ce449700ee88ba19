"""States of custom jobs of Vertex AI, and how their containers ended."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from hyperplane.platforms.gcp.errors import unreadable_answer
from hyperplane.platforms.gcp.tuning_trials import TuningTrial, find_best, parse_trials

SUCCEEDED, FAILED, CANCELLED = "JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED"
RUNNING = "JOB_STATE_RUNNING"
#: States of a job that has ended.
ENDED = (SUCCEEDED, FAILED, CANCELLED, "JOB_STATE_EXPIRED", "JOB_STATE_PARTIALLY_SUCCEEDED")
#: A job has no field with the exit code, but a message that Google documents, such as "The replica
#: workerpool0-0 exited with a non-zero status of 1. Termination reason: Error."
_EXIT_CODE = re.compile(r"exited with a non-zero status of (\d+)")
#: The first text is documented; the others were observed.
_OUT_OF_MEMORY = re.compile(r"ran out[ -]of[ -]memory|[Rr]eplicas low on memory")
#: Google has no machine of the type now; documented.
_NO_CAPACITY = re.compile(r"Resources are insufficient in region")
#: The service failed, or took a machine of the strategy SPOT; the first text is documented.
_LOST = re.compile(r"Internal error occurred|preempted")
_SIGNALS = {128 + signal.SIGKILL: -signal.SIGKILL, 128 + signal.SIGTERM: -signal.SIGTERM}


class VertexJobStatus(NamedTuple):
    """State of a custom job.

    Parameters
    ----------
    state : str
        Its state, such as ``"JOB_STATE_PENDING"``.
    reason : str
        Message of its error; may be empty.
    started, stopped : float
        Times in seconds since 1970; 0 before.
    trials : tuple of TuningTrial
        Trials of a tuning job; empty for a custom job.
    best : TuningTrial or None
        The best of them so far.
    """

    state: str
    reason: str = ""
    started: float = 0.0
    stopped: float = 0.0
    trials: tuple[TuningTrial, ...] = ()
    best: TuningTrial | None = None

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended."""
        return self.state in ENDED

    @property
    def has_succeeded(self) -> bool:
        """Whether the job has ended without an error."""
        return self.state == SUCCEEDED

    @property
    def container_reason(self) -> str:
        """Why the container ended: a custom job has one message for both."""
        return self.reason

    @property
    def is_out_of_memory(self) -> bool:
        """Whether the container was ended because the machine had no memory left."""
        return self.state == FAILED and bool(_OUT_OF_MEMORY.search(self.reason))

    @property
    def has_no_capacity(self) -> bool:
        """Whether Google had no machine for the job."""
        return self.state == FAILED and bool(_NO_CAPACITY.search(self.reason))

    @property
    def is_lost(self) -> bool:
        """Whether the service or its machine failed, so that the job can be repeated."""
        return self.state == FAILED and self.exit_code is None and bool(_LOST.search(self.reason))

    @property
    def was_terminated(self) -> bool:
        """Whether Vertex AI or a user ended it, not its program."""
        return self.has_ended and not self.has_succeeded and self.exit_code is None

    @property
    def exit_code(self) -> int | None:
        """Exit code of the container, negative for a signal; None if there is none."""
        match = _EXIT_CODE.search(self.reason)
        if self.state != FAILED or match is None:
            return None
        return signal_code(int(match[1]))

    def describe(self) -> str:
        """Return the state with its reason, in one line."""
        state = self.state.removeprefix("JOB_STATE_")
        reason = " ".join(self.reason.split())
        return f"{state} ({reason})" if reason else state


def signal_code(code: int) -> int:
    """Return an exit code, negative if it is that of a shell for SIGKILL or SIGTERM.

    Examples
    --------
    >>> signal_code(137), signal_code(3)
    (-9, 3)
    """
    return int(_SIGNALS.get(code, code))


def parse_job(job: Mapping[str, Any]) -> VertexJobStatus:
    """Return the status of a custom job.

    Raises
    ------
    GcpConnectionError
        If a time in it cannot be read.

    Examples
    --------
    >>> message = "The replica workerpool0-0 exited with a non-zero status of 137."
    >>> parse_job({"state": "JOB_STATE_FAILED", "error": {"message": message}}).exit_code
    -9
    """
    started, stopped = (
        parse_time(job.get(name), "aiplatform customJobs.get") for name in ("startTime", "endTime")
    )
    return VertexJobStatus(
        str(job.get("state", "JOB_STATE_UNSPECIFIED")),
        str((job.get("error") or {}).get("message", "")),
        started,
        stopped,
        parse_trials(job),
        find_best(job),
    )


def parse_time(text: Any, action: str) -> float:
    """Return a time such as ``"2026-05-18T00:00:00.123456789Z"`` in seconds since 1970.

    ``action`` is the name of the request in errors.

    Raises
    ------
    GcpConnectionError
        If it is not such a time.

    Examples
    --------
    >>> parse_time("1970-01-01T00:01:00.5Z", "storage objects.get")
    60.5
    >>> parse_time(None, "storage objects.get")
    0.0
    """
    try:
        # Python reads at most nine digits of a second, and drops those beyond microseconds.
        return datetime.fromisoformat(text).timestamp() if text else 0.0
    except (TypeError, ValueError, OverflowError) as error:
        raise unreadable_answer(action, f"{ascii(text)[:80]} is not a time") from error
