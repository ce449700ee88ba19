"""States of the runs of EMR Serverless, and how they ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hyperplane.platforms.aws.errors import AwsConnectionError
from hyperplane.platforms.aws.run_status import RunStatus, one_line, seconds_of

#: States in which the driver runs.
_RUNNING = ("RUNNING", "CANCELLING")


@dataclass(frozen=True)
class ServerlessRunStatus(RunStatus):
    """State of a run."""

    succeeded: ClassVar[str] = "SUCCESS"
    terminated: ClassVar[tuple[str, ...]] = ("CANCELLED",)
    lost_messages: ClassVar[tuple[str, ...]] = ("internal service error", "internal error")
    capacity_messages: ClassVar[tuple[str, ...]] = (
        "applicationmaxcapacityexceeded",
        "application maximum capacity",
        "insufficient capacity",
        "exceeded service quota",
    )


def parse_serverless_run(run: Mapping[str, Any]) -> ServerlessRunStatus:
    """Return the status of a run that ``get_job_run`` returned.

    Raises AwsConnectionError if the answer has no state.

    Examples
    --------
    >>> parse_serverless_run({"state": "FAILED", "stateDetails": "Job failed"}).describe()
    'FAILED (Job failed)'
    """
    state = run.get("state")
    if not state:
        raise AwsConnectionError("the answer of Amazon has no state (emr-serverless get_job_run)")
    has_ended = state in ServerlessRunStatus.ended_states()
    started = seconds_of(run.get("startedAt"))
    if not started and (state in _RUNNING or has_ended):
        started = seconds_of(run.get("createdAt"))  # answers of some releases have no startedAt
    stopped = seconds_of(run.get("endedAt")) or seconds_of(run.get("updatedAt"))
    return ServerlessRunStatus(
        str(state),
        one_line(run.get("stateDetails")),
        None,
        started if state in _RUNNING or has_ended else 0.0,
        stopped if has_ended else 0.0,
        _log_url(run),
    )


def _log_url(run: Mapping[str, Any]) -> str:
    """Return the folder with the logs of the driver; empty if the run keeps none."""
    monitoring = run.get("configurationOverrides", {}).get("monitoringConfiguration", {})
    url = str(monitoring.get("s3MonitoringConfiguration", {}).get("logUri") or "").rstrip("/")
    if not url:
        return ""
    place = f"applications/{run.get('applicationId')}/jobs/{run.get('jobRunId')}"
    return f"{url}/{place}/SPARK_DRIVER"
