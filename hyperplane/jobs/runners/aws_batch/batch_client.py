"""Requests to AWS Batch by all attempts of a supervisor: submit, find, describe, end."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, ClassVar

from hyperplane.jobs.runners.retry_time import ServiceErrors
from hyperplane.jobs.runners.service_client import ServiceClient
from hyperplane.platforms.aws.batch import BatchApi
from hyperplane.platforms.aws.errors import AwsCredentialsError, AwsError, is_retryable
from hyperplane.platforms.aws.object_staging import S3Staging
from hyperplane.platforms.aws.session import AwsSession
from hyperplane.platforms.request_rate import RequestRate
from hyperplane.platforms.slurm.request_batcher import RequestBatcher

_log = logging.getLogger(__name__)
#: Reason that Batch shows for jobs that are ended.
_END_REASON = "ended by hyperplane"
_DUPLICATE_REASON = "second submission of the same attempt"
#: Maximum requests for logs in a second. Amazon limits those of an account.
_LOG_REQUESTS = 15.0


class BatchClient(ServiceClient):
    """Requests of all attempts; ``session`` is used in threads."""

    errors: ClassVar[ServiceErrors] = ServiceErrors("AWS Batch", AwsCredentialsError, is_retryable)

    def __init__(self, session: AwsSession, staging: S3Staging) -> None:
        super().__init__("hyperplane-aws")
        self.session, self.staging, self.api = session, staging, BatchApi(session)
        self._describe_error = ""
        self.log_requests = RequestRate(_LOG_REQUESTS)
        self._descriptions: RequestBatcher[str, dict[str, Any] | AwsError | None] = RequestBatcher(
            self._describe
        )
        self._searches: RequestBatcher[tuple[str, str], str | AwsError] = RequestBatcher(self._find)

    async def describe(self, job_id: str) -> dict[str, Any] | AwsError | None:
        """Return a job; None if Batch does not have it, and the error if it does not answer."""
        return await self._descriptions.request(job_id)

    async def _describe(self, ids: list[str]) -> list[dict[str, Any] | AwsError | None]:
        try:
            jobs = await self.run(self.api.describe_jobs, dict.fromkeys(ids))
        except AwsError as error:
            if str(error) != self._describe_error:
                self._describe_error = str(error)
                _log.warning("the jobs of AWS Batch cannot be observed: %s", error)
            return [error for _ in ids]
        self._describe_error = ""
        return [jobs.get(job_id) for job_id in ids]

    async def find(self, queue: str, name: str) -> str | AwsError:
        """Return the id of the job with a name; empty if there is none.

        If two submissions of it were accepted, the later jobs are ended.
        """
        # One request for all attempts of an array.
        return await self._searches.request((queue, name), (queue, name))

    async def _find(self, searches: list[tuple[str, str]]) -> list[str | AwsError]:
        found: str | AwsError
        try:
            found, *others = await self.run(self.api.find_jobs, *searches[0]) or [""]
            for job_id in others:
                await self.run(self.api.terminate, job_id, _DUPLICATE_REASON)
        except AwsError as error:
            found = error
        return [found for _ in searches]

    async def account(self) -> str | AwsError:
        """Return the account of the present credentials, or the error."""
        try:
            return await self.run(self.api.account)
        except AwsError as error:
            return error

    async def terminate(self, job_id: str) -> AwsError | None:
        """End a job; return the error if Batch does not confirm it."""
        try:
            await self.run(self.api.terminate, job_id, _END_REASON)
        except AwsError as error:
            return error
        return None

    async def submit(self, request: Mapping[str, Any]) -> str:
        """Send a submission once and return the id of the job; raise AwsError if it fails."""
        return await self.run(self.api.submit, request)
