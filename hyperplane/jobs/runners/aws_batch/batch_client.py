"""Requests to AWS Batch by all attempts of a supervisor: submit, find, describe, end."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar

from hyperplane.jobs.runners.aws_batch.batch_job_id import BatchJobId
from hyperplane.jobs.runners.aws_client import AwsClient, aws_errors
from hyperplane.jobs.runners.retry_time import ServiceErrors
from hyperplane.platforms.aws.batch import BatchApi
from hyperplane.platforms.aws.object_staging import S3Staging
from hyperplane.platforms.aws.session import AwsSession


class BatchClient(AwsClient[BatchJobId]):
    """Requests of all attempts to AWS Batch."""

    errors: ClassVar[ServiceErrors] = aws_errors("AWS Batch")

    def __init__(self, session: AwsSession, staging: S3Staging) -> None:
        super().__init__(session, staging)
        self.api = BatchApi(session)

    async def create(self, request: Mapping[str, Any]) -> str:
        """Send a submission once and return the id of the job; raise AwsError if it fails."""
        return await self.run(self.api.submit, request)

    def _read_account(self) -> str:
        return self.api.account()

    async def _read(self, ids: Sequence[BatchJobId]) -> list[Mapping[str, Any] | None]:
        tasks = [job_id.task_id() for job_id in ids]
        jobs = await self.run(self.api.describe_jobs, dict.fromkeys(tasks))
        return [jobs.get(task) for task in tasks]

    async def _search(self, job_id: BatchJobId) -> list[str]:
        return await self.run(self.api.find_jobs, job_id.queue, job_id.name)

    async def _stop(self, task_id: str, reason: str) -> None:
        await self.run(self.api.terminate, task_id, reason)

    def _read_group(self, job_id: BatchJobId) -> Hashable:
        del job_id
        return None  # one request for all

    def _search_group(self, job_id: BatchJobId) -> Hashable:
        # One request for all attempts of an array.
        return (job_id.queue, job_id.name)
