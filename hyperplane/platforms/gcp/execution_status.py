"""States of executions of Cloud Run jobs with one task, and how its container ended."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from hyperplane.platforms.gcp.errors import unreadable_answer
from hyperplane.platforms.gcp.job_status import parse_time, signal_code

PENDING, RUNNING = "PENDING", "RUNNING"
SUCCEEDED, FAILED, CANCELLED = "SUCCEEDED", "FAILED", "CANCELLED"
_ENDED = (SUCCEEDED, FAILED, CANCELLED)
#: Messages of tasks that users have reported; the exit code of the first is then 0.
_OUT_OF_MEMORY = re.compile(r"memory limit was reached|[Mm]emory limit of .* exceeded")
_TIMED_OUT = re.compile(r"maximum timeout")
#: Reasons of a condition, from the discovery document: the service failed, or the job is wrong.
_LOST = "INTERNAL"
_MISCONFIGURED = {
    "CONTAINER_MISSING",
    "CONTAINER_PERMISSION_DENIED",
    "CONTAINER_IMAGE_UNAUTHORIZED",
    "CONTAINER_IMAGE_AUTHORIZATION_CHECK_FAILED",
    "SECRETS_ACCESS_CHECK_FAILED",
}
_ACTION = "run executions.get"


class ExecutionStatus(NamedTuple):
    """State of an execution.

    Parameters
    ----------
    state : str
        ``"PENDING"``, ``"RUNNING"``, ``"SUCCEEDED"``, ``"FAILED"`` or ``"CANCELLED"``.
    reason : str
        Message of its condition, or of that of its job; may be empty.
    condition_reason : str
        Reason of the condition as a word, such as ``"CONTAINER_MISSING"``; may be empty.
    container_reason : str
        Message of the task; may be empty.
    code : int or None
        Exit code of the task, negative for a signal; None if it has none.
    started, stopped : float
        Times in seconds since 1970; 0 before.
    """

    state: str
    reason: str = ""
    condition_reason: str = ""
    container_reason: str = ""
    code: int | None = None
    started: float = 0.0
    stopped: float = 0.0

    @property
    def has_ended(self) -> bool:
        """Whether the execution has ended, or will never start."""
        return self.state in _ENDED

    @property
    def has_succeeded(self) -> bool:
        """Whether the execution has ended without an error."""
        return self.state == SUCCEEDED

    @property
    def is_out_of_memory(self) -> bool:
        """Whether the container was ended because it exceeded its memory."""
        texts = f"{self.container_reason} {self.reason}"
        return self.state == FAILED and bool(_OUT_OF_MEMORY.search(texts))

    @property
    def is_misconfigured(self) -> bool:
        """Whether the container could not start for its image or its secrets."""
        return self.state == FAILED and self.condition_reason in _MISCONFIGURED

    @property
    def is_lost(self) -> bool:
        """Whether the service failed, so that the job can be repeated."""
        is_internal = self.condition_reason == _LOST
        return self.state == FAILED and self.exit_code is None and is_internal

    @property
    def was_terminated(self) -> bool:
        """Whether Cloud Run or a user ended it, not its program."""
        return self.has_ended and not self.has_succeeded and self.exit_code is None

    @property
    def exit_code(self) -> int | None:
        """Exit code of the container, negative for a signal; None if there is none."""
        if self.state != FAILED or _TIMED_OUT.search(self.container_reason):
            return None
        return self.code or None  # a task that failed with 0 was ended from outside

    def describe(self) -> str:
        """Return the state with its reasons, in one line."""
        words = " ".join(dict.fromkeys((self.reason, self.container_reason))).split()
        reason = " ".join(words) or self.condition_reason
        return f"{self.state} ({reason})" if reason else self.state


def parse_execution(description: Mapping[str, Any]) -> ExecutionStatus:
    """Return the status of what :meth:`CloudRunApi.read` returns.

    Raises
    ------
    GcpConnectionError
        If it is not in the form of the service.

    Examples
    --------
    >>> condition = {"type": "Completed", "state": "CONDITION_FAILED"}
    >>> execution = {"completionTime": "1970-01-01T00:01:00Z", "conditions": [condition]}
    >>> task = {"lastAttemptResult": {"termSignal": 9}}
    >>> parse_execution({"execution": execution, "task": task}).exit_code
    -9
    """
    try:
        if "execution" not in description:
            return _parse_job(description["job"])
        return _parse_execution(description["execution"], description.get("task", {}))
    except (AttributeError, TypeError, KeyError, ValueError) as error:
        raise unreadable_answer(_ACTION, ascii(error)) from error


def _parse_job(job: Mapping[str, Any]) -> ExecutionStatus:
    """Return the status of a job without an execution, which it will have unless it failed."""
    condition = job.get("terminalCondition", {})
    has_failed = condition.get("state") == "CONDITION_FAILED"
    return ExecutionStatus(FAILED if has_failed else PENDING, *_read_reasons(condition))


def _parse_execution(execution: Mapping[str, Any], task: Mapping[str, Any]) -> ExecutionStatus:
    conditions = {each.get("type"): each for each in execution.get("conditions", [])}
    completed = conditions.get("Completed", {})
    stopped = parse_time(execution.get("completionTime"), _ACTION)
    has_run = stopped or any(
        execution.get(f"{name}Count") for name in ("running", "succeeded", "failed")
    )
    state = RUNNING if has_run else PENDING
    if stopped:
        state = SUCCEEDED if completed.get("state") == "CONDITION_SUCCEEDED" else FAILED
        if state == FAILED and completed.get("executionReason") in ("CANCELLED", "DELETED"):
            state = CANCELLED
    result = task.get("lastAttemptResult", {})
    code = result.get("exitCode")
    if result.get("termSignal"):
        code = -int(result["termSignal"])
    return ExecutionStatus(
        state,
        *_read_reasons(completed),
        str(result.get("status", {}).get("message", "")),
        None if code is None else signal_code(int(code)),
        parse_time(execution.get("startTime"), _ACTION) if has_run else 0.0,
        stopped,
    )


def _read_reasons(condition: Mapping[str, Any]) -> tuple[str, str]:
    """Return message and reason of a condition."""
    reason = condition.get("reason") or condition.get("executionReason") or ""
    return str(condition.get("message", "")), str(reason)
