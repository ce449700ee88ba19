"""States of the runs of AWS Glue jobs, and how they ended."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from hyperplane.platforms.aws.errors import AwsConnectionError

SUCCEEDED = "SUCCEEDED"
#: States of a run that Glue, a user or a workflow has ended, not its program.
_TERMINATED = ("STOPPED", "TIMEOUT", "ERROR", "EXPIRED")
#: States of a run that has ended.
ENDED = (SUCCEEDED, "FAILED", *_TERMINATED)
#: States before the workers run.
WAITING = ("STARTING", "WAITING")
#: Parts of messages, in lower case, of a run without enough memory, and of one that failed because
#: of an error of Glue. Amazon has no list of them.
_OUT_OF_MEMORY = ("out of memory", "outofmemory", "exceeding memory limits")
_INTERNAL = ("internal service error", "internal error")
#: Parts of messages, in lower case, of a run for which Glue or the account has no capacity: in
#: Amazon's page on the states of runs.
_NO_CAPACITY = (
    "resource unavailable",
    "max concurrent job runs per account exceeded",
    "max concurrent compute",
)


class GlueRunStatus(NamedTuple):
    """State of a run.

    Parameters
    ----------
    state : str
        Its state, such as ``"RUNNING"``.
    reason : str
        Why it is in the state; may be empty.
    exit_code : int or None
        Exit code of the program, negative for a signal. None in the answers of Glue, which have
        none.
    log_group : str
        Beginning of the names of its log groups.
    started, stopped : float
        Times in seconds since 1970; 0 before.
    """

    state: str
    reason: str = ""
    exit_code: int | None = None
    log_group: str = ""
    started: float = 0.0
    stopped: float = 0.0

    @property
    def container_reason(self) -> str:
        """Why its program ended, which is the reason of the run."""
        return self.reason

    @property
    def has_ended(self) -> bool:
        """Whether the run has ended."""
        return self.state in ENDED

    @property
    def has_succeeded(self) -> bool:
        """Whether the run has ended without an error."""
        return self.state == SUCCEEDED

    @property
    def is_out_of_memory(self) -> bool:
        """Whether the run was ended for its memory."""
        return self.state == "FAILED" and self._says(_OUT_OF_MEMORY)

    @property
    def is_lost(self) -> bool:
        """Whether Glue failed, so that the run can be repeated."""
        return self.state == "FAILED" and self.exit_code is None and self._says(_INTERNAL)

    @property
    def has_no_capacity(self) -> bool:
        """Whether the run never started, because Glue or the account had no capacity."""
        return self.state == "EXPIRED" or (self.state == "FAILED" and self._says(_NO_CAPACITY))

    @property
    def was_terminated(self) -> bool:
        """Whether Glue or a user ended it, not its program."""
        return self.state in _TERMINATED

    def describe(self) -> str:
        """Return the state with its reason, in one line."""
        return f"{self.state} ({self.reason})" if self.reason else self.state

    def _says(self, parts: tuple[str, ...]) -> bool:
        return any(part in self.reason.lower() for part in parts)


def parse_run(run: Mapping[str, Any]) -> GlueRunStatus:
    """Return the status of a run that ``get_job_run`` returned.

    Raises AwsConnectionError if the answer has no state.

    Examples
    --------
    >>> status = parse_run({"JobRunState": "FAILED", "ErrorMessage": "Out of Memory"})
    >>> status.is_out_of_memory, status.describe()
    (True, 'FAILED (Out of Memory)')
    """
    state = run.get("JobRunState")
    if not state:
        raise AwsConnectionError("the answer of Amazon has no JobRunState (glue get_job_run)")
    # The time of a start is that of the request; a run that waits has one, too.
    started = seconds_of(run.get("StartedOn")) if state not in WAITING else 0.0
    return GlueRunStatus(
        str(state),
        " ".join(str(run.get("ErrorMessage") or run.get("StateDetail") or "").split()),
        None,
        str(run.get("LogGroupName") or ""),
        started,
        seconds_of(run.get("CompletedOn")) if state in ENDED else 0.0,
    )


def seconds_of(time: Any) -> float:
    """Return a time of boto3 in seconds since 1970; 0 if there is none."""
    return time.timestamp() if isinstance(time, datetime) else 0.0
