"""Requests to Cloud Run: create and run, find, read, cancel and delete jobs of one execution."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from hyperplane.platforms.gcp.errors import NOT_FOUND, GcpError, GcpRequestError
from hyperplane.platforms.gcp.service_check import CheckedService
from hyperplane.platforms.gcp.session import GcpSession

_JOBS = "projects.locations.jobs"
_EXECUTIONS = f"{_JOBS}.executions"
#: The service with the permissions that the requests below need.
SERVICE = CheckedService(
    "run",
    "Cloud Run",
    _JOBS,
    (
        "logging.logEntries.list",
        "run.executions.cancel",
        "run.executions.get",
        "run.jobs.create",
        "run.jobs.delete",
        "run.jobs.get",
        "run.jobs.list",
        "run.jobs.run",
        "run.tasks.list",
    ),
)
#: Ending of the name of an execution after that of its job. It is short because the characters of
#: both must be fewer than 63.
_TOKEN = "x"  # noqa: S105 - a part of a name
#: Status of a refusal that an operation reports, and not the answer.
_INVALID = 400

Object = dict[str, Any]


def execution_name(job: str) -> str:
    """Return the name of the execution of a job, both with project and region.

    Examples
    --------
    >>> execution_name("projects/p/locations/r/jobs/one")
    'projects/p/locations/r/jobs/one/executions/one-x'
    """
    return f"{job}/executions/{job.rpartition('/')[2]}-{_TOKEN}"


def job_name(execution: str) -> str:
    """Return the name of the job of an execution.

    Examples
    --------
    >>> job_name("projects/p/locations/r/jobs/one/executions/one-x")
    'projects/p/locations/r/jobs/one'
    """
    return execution.partition("/executions/")[0]


def creation_body(job: Mapping[str, Any]) -> Object:
    """Return the body of the request that creates a job and starts its execution."""
    return {**job, "startExecutionToken": _TOKEN}


class CloudRunApi:
    """Requests to Cloud Run; each is sent once, and raises GcpError if it fails."""

    def __init__(self, session: GcpSession) -> None:
        self._session = session

    def create(self, name: str, job: Mapping[str, Any]) -> str:
        """Create a job that runs once, and return the name of its execution.

        Cloud Run has at most one job of a name, and starts its execution with the creation: a
        second request is refused as a conflict, and starts nothing.
        """
        operation = self._create(name, creation_body(job))
        if "error" in operation:
            with suppress(GcpError):  # what there is of it has not started
                self.delete(self._full_name(name))
            message = operation["error"].get("message", "no message")
            raise GcpRequestError(f"Google refused a job (run jobs.create): {message}", _INVALID)
        return execution_name(self._full_name(name))

    def validate(self, name: str, job: Mapping[str, Any]) -> None:
        """Let Cloud Run check the request for a job, without creating it."""
        self._create(name, job, validateOnly=True)

    def find_job(self, name: str) -> Object | None:
        """Return the job of a name without project and region; None if there is none."""
        return self._get(f"{_JOBS}.get", self._full_name(name))

    def read(self, execution: str) -> Object | None:
        """Return the fields ``job``, ``execution`` and ``task`` of an execution, as far as it has.

        The job is only read if there is no execution; without both, or if the job had started one,
        the result is None. The task is read as soon as the execution has ended.
        """
        found = self._get(f"{_EXECUTIONS}.get", execution)
        if found is None:
            job = self._get(f"{_JOBS}.get", job_name(execution)) or {}
            state = job.get("terminalCondition", {}).get("state")
            return {"job": job} if job and state != "CONDITION_SUCCEEDED" else None
        if "completionTime" not in found:
            return {"execution": found}
        answer = self._session.call("run", f"{_EXECUTIONS}.tasks.list", parent=execution)
        return {"execution": found, "task": next(iter(answer.get("tasks", [])), {})}

    def cancel(self, execution: str) -> None:
        """Request the end of an execution."""
        self._session.call("run", f"{_EXECUTIONS}.cancel", name=execution, body={})

    def delete(self, job: str) -> None:
        """Delete a job with its executions, unless Cloud Run does not have it."""
        try:
            self._session.call("run", f"{_JOBS}.delete", name=job)
        except GcpRequestError as error:
            if error.status != NOT_FOUND:
                raise

    def _create(self, name: str, body: Mapping[str, Any], **request: Any) -> Object:
        operation: Object = self._session.call(
            "run",
            f"{_JOBS}.create",
            parent=self._session.location(),
            jobId=name,
            body=body,
            **request,
        )
        return operation

    def _full_name(self, name: str) -> str:
        return f"{self._session.location()}/jobs/{name}"

    def _get(self, operation: str, name: str) -> Object | None:
        try:
            answer: Object = self._session.call("run", operation, name=name)
        except GcpRequestError as error:
            if error.status != NOT_FOUND:
                raise
            return None
        return answer
