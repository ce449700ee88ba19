"""Requests to AWS Glue: create and delete jobs; start, find, read and stop their runs.

A run is named as ``JOB/RUN``, with the name of its job and its id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from hyperplane.platforms.aws.api import AwsApi
from hyperplane.platforms.aws.errors import AwsRequestError
from hyperplane.platforms.aws.run_status import seconds_of

#: Error code of jobs and runs that Glue does not have.
NOT_FOUND = "EntityNotFoundException"
#: Error codes of the creation of a job whose name is taken.
_NAME_TAKEN = {"AlreadyExistsException", "IdempotentParameterMismatchException"}

Object = dict[str, Any]


class GlueApi(AwsApi):
    """Requests to AWS Glue; each is sent once, and raises AwsError if it fails."""

    service: ClassVar[str] = "glue"

    def create_job(self, request: Mapping[str, Any]) -> None:
        """Create a job, unless there is one of that name.

        The name must mean the same content, so that the request can be repeated.
        """
        try:
            self.send("create_job", **request)
        except AwsRequestError as error:
            if error.code not in _NAME_TAKEN:
                raise

    def delete_job(self, name: str) -> None:
        """Delete a job; it is no error if there is none."""
        self.send("delete_job", JobName=name)

    def start_run(self, name: str) -> str:
        """Start a job and return the name of its run.

        Glue has no tokens against a second start. A job that allows one run at a time refuses it
        while the first one runs.
        """
        return f"{name}/{self.read('JobRunId', 'start_job_run', JobName=name)}"

    def find_runs(self, name: str) -> list[str]:
        """Return the names of all runs of a job, the oldest first; none if there is no such job."""
        try:
            pages = list(self.pages("JobRuns", "NextToken", "get_job_runs", JobName=name))
        except AwsRequestError as error:
            if error.code != NOT_FOUND:
                raise
            return []
        runs = [run for page in pages for run in page]
        runs.sort(key=lambda run: seconds_of(run.get("StartedOn")))
        return [f"{name}/{run['Id']}" for run in runs]

    def read_run(self, run: str) -> Object | None:
        """Return a run; None if Glue does not have it."""
        name, _, run_id = run.rpartition("/")
        try:
            found: Object = self.read("JobRun", "get_job_run", JobName=name, RunId=run_id)
        except AwsRequestError as error:
            if error.code != NOT_FOUND:
                raise
            return None
        return found

    def stop_run(self, run: str) -> None:
        """Request the end of a run."""
        name, _, run_id = run.rpartition("/")
        answer = self.send("batch_stop_job_run", JobName=name, JobRunIds=[run_id])
        for each in answer.get("Errors", []):  # the status of the answer is 200
            detail = each.get("ErrorDetail", {})
            code, message = str(detail.get("ErrorCode", "")), str(detail.get("ErrorMessage", ""))
            text = f"Amazon answered {code} (glue batch_stop_job_run): {message}"
            raise AwsRequestError(text, code, 400)

    def check_access(self) -> None:
        """Send a request that changes nothing; raise AwsError if it is refused."""
        self.send("get_jobs", MaxResults=1)
