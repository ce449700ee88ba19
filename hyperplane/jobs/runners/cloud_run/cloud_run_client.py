"""Requests to Cloud Run by all attempts of a supervisor: create, find, read, cancel, delete."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar

from hyperplane.jobs.runners.cloud_run.cloud_run_job_id import CloudRunJobId
from hyperplane.jobs.runners.cloud_run.requests import SYSTEM
from hyperplane.jobs.runners.gcp.bucket_task import JOB_LABEL
from hyperplane.jobs.runners.gcp.gcp_client import GcpClient, gcp_errors
from hyperplane.jobs.runners.retry_time import ServiceErrors
from hyperplane.platforms.gcp.cloud_run import CloudRunApi, execution_name
from hyperplane.platforms.gcp.object_staging import GcsStaging
from hyperplane.platforms.gcp.session import GcpSession
from hyperplane.platforms.gcp.task_log import CLOUD_RUN_LOGS


class CloudRunClient(GcpClient[CloudRunJobId]):
    """Requests of all attempts; ``session`` is used in threads."""

    errors: ClassVar[ServiceErrors] = gcp_errors(SYSTEM)

    def __init__(self, session: GcpSession, staging: GcsStaging) -> None:
        super().__init__(session, staging, CLOUD_RUN_LOGS)
        self.api = CloudRunApi(session)

    async def create(self, request: Mapping[str, Any]) -> str:
        """Send a creation once and return the name of the execution; raise GcpError if it fails."""
        return await self.run(self.api.create, request["jobId"], request["job"])

    async def _read(self, ids: Sequence[CloudRunJobId]) -> list[Mapping[str, Any] | None]:
        return [await self.run(self.api.read, job_id.id) for job_id in ids]

    async def _search(self, job_id: CloudRunJobId) -> list[str]:
        job = await self.run(self.api.find_job, job_id.name)
        # A job of another user that has the name is left alone.
        if job is None or job.get("labels", {}).get(JOB_LABEL) != job_id.owner:
            return []
        return [execution_name(str(job["name"]))]

    async def _stop(self, task_id: str, reason: str) -> None:
        del reason  # an execution has none
        await self.run(self.api.cancel, task_id)

    def _read_group(self, job_id: CloudRunJobId) -> Hashable:
        # Cloud Run lists executions of all users only, without a filter.
        return job_id.name

    def _search_group(self, job_id: CloudRunJobId) -> Hashable:
        return job_id.name
