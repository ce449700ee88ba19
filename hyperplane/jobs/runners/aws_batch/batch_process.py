"""One attempt on AWS Batch."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import ClassVar

from hyperplane.core.errors.platforms import PlatformError
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.aws_batch.batch_client import BatchClient
from hyperplane.jobs.runners.aws_batch.batch_job_id import BatchJobId
from hyperplane.jobs.runners.aws_process import AwsProcess
from hyperplane.jobs.runners.cloudwatch_log import CloudWatchLog
from hyperplane.jobs.runners.service_process import CONFIGURATION_ERROR
from hyperplane.platforms.aws.job_status import NEVER_STARTS, BatchJobStatus, parse_job

#: Seconds for which Batch must report that a job will never start.
NEVER_STARTS_SECONDS = 60.0


class BatchProcess(AwsProcess[BatchJobId, BatchJobStatus]):
    """One attempt as a job of AWS Batch, or as a child of an array job."""

    poll_seconds: ClassVar[float] = 5.0
    confirm_seconds: ClassVar[float] = 300.0
    platform: ClassVar[str] = "AWS Batch"

    _client: BatchClient

    def __init__(self, command: AttemptCommand, client: BatchClient, log_group: str) -> None:
        super().__init__(command, client, BatchJobId, parse_job)
        self._log = CloudWatchLog(command, client, log_group)

    async def end(self, grace: float) -> int | None:
        """End the job and return its exit code.

        ``grace`` has no effect: Batch kills a container 30 seconds after SIGTERM.
        """
        self._log.is_patient = False
        return await super().end(grace)

    async def _may_exist(self, job_id: BatchJobId) -> bool:
        """Return whether a job may run in another account, or later as a part of its array."""
        if await super()._may_exist(job_id):
            return True
        if job_id.index is None or not job_id.id:
            return False
        array = await self._client.describe(replace(job_id, index=None))
        if isinstance(array, PlatformError):
            self._missing_since = 0.0
            self._report_error(array)
            return True
        if array is None or (status := parse_job(array)).has_ended:
            return False
        self._report_problem(f"array {job_id.id} is {status.describe()}, without this chunk")
        return True

    async def _copy_log(self, job_id: BatchJobId, status: BatchJobStatus) -> None:
        del job_id
        if status.log_stream and (status.started or status.has_ended):
            await self._log.copy_new(status.log_stream)

    async def _copy_results(self, job_id: BatchJobId, status: BatchJobStatus) -> None:
        del job_id
        if status.log_stream:
            await self._log.copy_rest(status.log_stream)
            if not self._files.extract_notebook() and status.has_succeeded:
                self._files.append_line("the executed notebook is not in the log of the container")

    async def _check_pending(self, job_id: BatchJobId, status: BatchJobStatus) -> bool:
        """Log why the job does not run yet; return whether it never will, and was ended."""
        await super()._check_pending(job_id, status)
        if (
            not status.reason.startswith(NEVER_STARTS)
            or self._end_requested
            or time.monotonic() - self._pending_since < NEVER_STARTS_SECONDS
        ):
            return False
        error = await self._client.end(job_id)
        if error is not None:  # it may still start
            self._report_error(error)
            return False
        self._files.append_line(f"AWS Batch can never start {self._pending_text}")
        self._files.record_end(CONFIGURATION_ERROR)
        return True

    def _record_failure(self, status: BatchJobStatus, ended_code: int = 1) -> None:
        if "CannotPull" in status.container_reason + status.reason:
            ended_code = CONFIGURATION_ERROR
        super()._record_failure(status, ended_code)
