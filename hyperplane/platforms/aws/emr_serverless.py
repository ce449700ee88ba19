"""Requests to EMR Serverless: start, find, read and cancel job runs.

A run is named as ``APPLICATION/RUN``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar

from hyperplane.platforms.aws.api import AwsApi
from hyperplane.platforms.aws.errors import AwsRequestError
from hyperplane.platforms.aws.run_status import seconds_of

#: Error code of applications and runs that the service does not have.
NOT_FOUND = "ResourceNotFoundException"

Object = dict[str, Any]


class EmrServerlessApi(AwsApi):
    """Requests to EMR Serverless; each is sent once, and raises AwsError if it fails."""

    service: ClassVar[str] = "emr-serverless"

    def start(self, request: Mapping[str, Any]) -> str:
        """Start a run and return its name; a request with the same token starts no second one."""
        run_id = self.read("jobRunId", "start_job_run", **request)
        return f"{request['applicationId']}/{run_id}"

    def find_runs(self, application: str, name: str, since: float) -> list[str]:
        """Return the runs of an application with a name since a time, the oldest first."""
        after = datetime.fromtimestamp(since, UTC)
        request = {"applicationId": application, "createdAtAfter": after}
        try:
            pages = list(self.pages("jobRuns", "nextToken", "list_job_runs", **request))
        except AwsRequestError as error:
            if error.code != NOT_FOUND:
                raise
            return []
        found = [run for page in pages for run in page if run.get("name") == name]
        found.sort(key=lambda run: seconds_of(run.get("createdAt")))
        return [f"{application}/{run['id']}" for run in found]

    def read_run(self, run: str) -> Object | None:
        """Return a run; None if the service does not have it."""
        application, _, run_id = run.partition("/")
        return self._find("jobRun", "get_job_run", applicationId=application, jobRunId=run_id)

    def read_application(self, application: str) -> Object | None:
        """Return an application; None if there is none."""
        return self._find("application", "get_application", applicationId=application)

    def stop(self, run: str) -> None:
        """Request the end of a run."""
        application, _, run_id = run.partition("/")
        self.send("cancel_job_run", applicationId=application, jobRunId=run_id)

    def _find(self, key: str, operation: str, **request: str) -> Object | None:
        try:
            found: Object = self.read(key, operation, **request)
        except AwsRequestError as error:
            if error.code != NOT_FOUND:
                raise
            return None
        return found
