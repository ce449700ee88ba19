"""Requests to AWS Batch: register job definitions; submit, find, describe and terminate jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from hyperplane.platforms.aws.api import AwsApi
from hyperplane.platforms.aws.session import AwsSession

#: Maximum jobs of one request to describe them.
DESCRIBE_LIMIT = 100

Object = dict[str, Any]


class BatchApi(AwsApi):
    """Requests to AWS Batch; each is sent once, and raises AwsError if it fails."""

    service: ClassVar[str] = "batch"

    def __init__(self, session: AwsSession) -> None:
        super().__init__(session)
        self._definitions: dict[str, str] = {}

    def register_definition(self, request: Mapping[str, Any]) -> str:
        """Return the ARN of a job definition, registered unless one of its name is active.

        The name must change with the content, so that the same name means the same definition.
        """
        name = str(request["jobDefinitionName"])
        if name not in self._definitions:
            found = self.read(
                "jobDefinitions",
                "describe_job_definitions",
                jobDefinitionName=name,
                status="ACTIVE",
            )
            self._definitions[name] = str(
                found[0]["jobDefinitionArn"]
                if found
                else self.read("jobDefinitionArn", "register_job_definition", **request)
            )
        return self._definitions[name]

    def submit(self, request: Mapping[str, Any]) -> str:
        """Submit a job and return its id. Batch has no tokens against a second submission."""
        return str(self.read("jobId", "submit_job", **request))

    def find_jobs(self, queue: str, name: str) -> list[str]:
        """Return the ids of the jobs with a name, in all states, oldest first."""
        filters = [{"name": "JOB_NAME", "values": [name]}]
        jobs = self._list("jobSummaryList", "list_jobs", jobQueue=queue, filters=filters)
        # Children of an array have its name, and ids with a colon.
        found = [job for job in jobs if job["jobName"] == name and ":" not in job["jobId"]]
        return [job["jobId"] for job in sorted(found, key=lambda job: job.get("createdAt", 0))]

    def describe_jobs(self, ids: Iterable[str]) -> dict[str, Object]:
        """Return the descriptions of jobs by id, without those that Batch does not have."""
        wanted = list(ids)
        return {
            job["jobId"]: job
            for start in range(0, len(wanted), DESCRIBE_LIMIT)
            for job in self.read(
                "jobs", "describe_jobs", jobs=wanted[start : start + DESCRIBE_LIMIT]
            )
        }

    def terminate(self, job_id: str, reason: str) -> None:
        """End a job in any state; those that have ended stay unchanged."""
        self.send("terminate_job", jobId=job_id, reason=reason)

    def describe_queue(self, queue: str) -> Object | None:
        """Return a job queue; None if there is none of that name."""
        found: Sequence[Object] = self.read("jobQueues", "describe_job_queues", jobQueues=[queue])
        return found[0] if found else None

    def describe_environments(self, names: Sequence[str]) -> list[Object]:
        """Return compute environments."""
        return self._list(
            "computeEnvironments",
            "describe_compute_environments",
            computeEnvironments=list(names),
        )

    def _list(self, key: str, operation: str, **request: Any) -> list[Object]:
        pages = self.pages(key, "nextToken", operation, **request)
        return [entry for page in pages for entry in page]
