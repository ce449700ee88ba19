"""States of the steps of EMR clusters, and how they ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hyperplane.platforms.aws.errors import AwsConnectionError
from hyperplane.platforms.aws.run_status import RunStatus, one_line, seconds_of

#: States of a cluster that has ended.
CLUSTER_ENDED = ("TERMINATED", "TERMINATED_WITH_ERRORS")
#: Reasons for which EMR itself ends a cluster, and with which another one may succeed.
_LOST_CODES = {"INTERNAL_ERROR", "INSTANCE_FAILURE"}
_CAPACITY_CODE = "INSTANCE_FLEET_TIMEOUT"


@dataclass(frozen=True)
class EmrStepStatus(RunStatus):
    """State of a step and its cluster.

    Parameters
    ----------
    cluster_code : str
        Why the cluster is in its state, such as ``"BOOTSTRAP_FAILURE"``; empty for a step of a
        cluster of the user.
    cluster_state : str
        State of the cluster, such as ``"TERMINATING"``.
    """

    cluster_code: str = ""
    cluster_state: str = ""

    succeeded: ClassVar[str] = "COMPLETED"
    terminated: ClassVar[tuple[str, ...]] = ("CANCELLED", "INTERRUPTED")
    lost_messages: ClassVar[tuple[str, ...]] = ("internal error", "instance failure")
    capacity_messages: ClassVar[tuple[str, ...]] = (
        "insufficient capacity",
        "insufficientinstancecapacity",
        "do not have sufficient",
        "instancelimitexceeded",
        "vcpulimitexceeded",
        "exceeds the ec2",
    )

    @property
    def is_lost(self) -> bool:
        """Whether EMR or a machine failed, so that the step can be repeated."""
        if self.has_succeeded or self.exit_code is not None:
            return False
        return self.cluster_code in _LOST_CODES or super().is_lost

    @property
    def has_no_capacity(self) -> bool:
        """Whether the cluster never started, because the region or the account had no capacity."""
        if self.started or not self.has_ended or self.has_succeeded:
            return False
        return self.cluster_code == _CAPACITY_CODE or self.says(self.capacity_messages)


def parse_step(run: Mapping[str, Any]) -> EmrStepStatus:
    """Return the status of a step and its cluster, as ``EmrApi.read_runs`` returns them.

    Raises AwsConnectionError if the answer has no state.

    Examples
    --------
    >>> step = {"Id": "s-1", "Status": {"State": "PENDING"}}
    >>> cluster = {"Id": "j-1", "Status": {"State": "BOOTSTRAPPING"}}
    >>> parse_step({"Step": step, "Cluster": cluster}).describe()
    'PENDING (cluster j-1 is BOOTSTRAPPING)'
    """
    step, cluster = run.get("Step", {}), run.get("Cluster", {})
    status, state_of_cluster = step.get("Status", {}), cluster.get("Status", {})
    state, cluster_state = status.get("State"), str(state_of_cluster.get("State"))
    if not state:
        raise AwsConnectionError("the answer of Amazon has no State (emr list_steps)")
    times, failure = status.get("Timeline", {}), status.get("FailureDetails", {})
    reasons = [
        failure.get("Reason"),
        failure.get("Message"),
        status.get("StateChangeReason", {}).get("Message"),
    ]
    if state not in EmrStepStatus.ended_states() and cluster_state in CLUSTER_ENDED:
        state = "CANCELLED"  # EMR may have no further state of a step whose cluster is gone
    stopped = seconds_of(times.get("EndDateTime")) or seconds_of(
        state_of_cluster.get("Timeline", {}).get("EndDateTime")
    )
    change = state_of_cluster.get("StateChangeReason", {})
    code = "" if run.get("Shared") else str(change.get("Code") or "")
    if state != EmrStepStatus.succeeded and cluster_state not in ("RUNNING", "WAITING"):
        why = one_line(change.get("Message"))
        reasons.append(f"cluster {cluster.get('Id')} is {cluster_state}{f': {why}' if why else ''}")
    return EmrStepStatus(
        str(state),
        "; ".join(dict.fromkeys(filter(None, map(one_line, reasons)))),
        None,
        seconds_of(times.get("StartDateTime")) if state != "PENDING" else 0.0,
        stopped if state in EmrStepStatus.ended_states() else 0.0,
        _log_url(cluster, step),
        code,
        cluster_state,
    )


def _log_url(cluster: Mapping[str, Any], step: Mapping[str, Any]) -> str:
    """Return the folder with the logs of a step, with the scheme ``s3``."""
    url = str(cluster.get("LogUri") or "").rstrip("/")
    scheme, _, rest = url.partition("://")
    if scheme not in ("s3", "s3n", "s3a"):
        return ""
    return f"s3://{rest}/{cluster.get('Id')}/steps/{step.get('Id')}"
