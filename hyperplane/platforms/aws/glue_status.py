"""States of the runs of AWS Glue jobs, and how they ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hyperplane.platforms.aws.errors import AwsConnectionError
from hyperplane.platforms.aws.run_status import RunStatus, one_line, seconds_of

#: States before the workers run.
WAITING = ("STARTING", "WAITING")


@dataclass(frozen=True)
class GlueRunStatus(RunStatus):
    """State of a run.

    Parameters
    ----------
    log_group : str
        Beginning of the names of its log groups.
    """

    log_group: str = ""

    succeeded: ClassVar[str] = "SUCCEEDED"
    terminated: ClassVar[tuple[str, ...]] = ("STOPPED", "TIMEOUT", "ERROR", "EXPIRED")
    lost_messages: ClassVar[tuple[str, ...]] = ("internal service error", "internal error")
    # In Amazon's page on the states of runs.
    capacity_messages: ClassVar[tuple[str, ...]] = (
        "resource unavailable",
        "max concurrent job runs per account exceeded",
        "max concurrent compute",
    )

    @property
    def has_no_capacity(self) -> bool:
        """Whether the run never started, because Glue or the account had no capacity."""
        return self.state == "EXPIRED" or super().has_no_capacity


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
        one_line(run.get("ErrorMessage") or run.get("StateDetail")),
        None,
        started,
        seconds_of(run.get("CompletedOn")) if state in GlueRunStatus.ended_states() else 0.0,
        log_group=str(run.get("LogGroupName") or ""),
    )
