"""One attempt on Cloud Run."""

from __future__ import annotations

from typing import ClassVar

from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.cloud_run.cloud_run_client import CloudRunClient
from hyperplane.jobs.runners.cloud_run.cloud_run_job_id import CloudRunJobId
from hyperplane.jobs.runners.gcp.gcp_process import GcpProcess
from hyperplane.jobs.runners.service_process import CONFIGURATION_ERROR
from hyperplane.platforms.gcp.cloud_run import job_name
from hyperplane.platforms.gcp.execution_status import ExecutionStatus, parse_execution


class CloudRunProcess(GcpProcess[CloudRunJobId, ExecutionStatus]):
    """One attempt as a job of Cloud Run, which is deleted after its end."""

    poll_seconds: ClassVar[float] = 5.0

    _client: CloudRunClient

    def __init__(self, command: AttemptCommand, client: CloudRunClient) -> None:
        super().__init__(command, client, CloudRunJobId, parse_execution)

    async def _clean_up(self) -> None:
        """Delete the job, also that of an attempt whose end another supervisor has recorded."""
        job_id = self._read_id()
        if job_id is None or not job_id.id:  # it does not exist, or may be that of another user
            return
        job = job_name(job_id.id)
        try:
            await self._client.repeat(self._client.api.delete, job)
        except OSError as error:
            self._files.append_line(
                f"job {job} was not deleted: {error.strerror}; delete it with: gcloud run jobs "
                f"delete {job_id.name}"
            )

    def _record_failure(self, status: ExecutionStatus, ended_code: int = 1) -> None:
        if status.is_misconfigured:
            ended_code = CONFIGURATION_ERROR
        super()._record_failure(status, ended_code)
