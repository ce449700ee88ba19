"""Requests to AWS Batch by all attempts of a supervisor: submit, find, describe, end."""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from hyperplane.platforms.aws.batch import BatchApi
from hyperplane.platforms.aws.errors import AwsCredentialsError, AwsError, is_retryable
from hyperplane.platforms.aws.object_staging import ObjectStaging
from hyperplane.platforms.aws.request_rate import RequestRate
from hyperplane.platforms.aws.session import AwsSession
from hyperplane.platforms.slurm.request_batcher import RequestBatcher

_log = logging.getLogger(__name__)
#: Seconds for which a submission is retried, and the longest pause between two requests.
SUBMIT_SECONDS, MAX_PAUSE_SECONDS = 300.0, 30.0
#: Reason that Batch shows for jobs that are ended.
_END_REASON = "ended by hyperplane"
_DUPLICATE_REASON = "second submission of the same attempt"
#: Maximum requests for logs in a second. Amazon limits those of an account.
_LOG_REQUESTS = 15.0
#: Maximum concurrent requests.
_THREADS = 8

Result = TypeVar("Result")


class RetryTime:
    """Time in which a request is repeated, with growing pauses."""

    def __init__(self) -> None:
        self._until, self._pause = time.monotonic() + SUBMIT_SECONDS, 1.0
        self._reported = ""

    async def wait_after(self, error: AwsError) -> None:
        """Wait before the next request; raise OSError if there is to be none.

        Its errno is EPERM for a refusal or credentials that stay invalid, and EAGAIN otherwise.
        """
        # Credentials are loaded again for the next request, such as after a login.
        is_login = isinstance(error, AwsCredentialsError)
        if not is_login and not is_retryable(error):
            raise OSError(errno.EPERM, str(error), "AWS Batch") from error
        if time.monotonic() > self._until:
            number = errno.EPERM if is_login else errno.EAGAIN
            raise OSError(number, str(error), "AWS Batch") from error
        if str(error) != self._reported:
            self._reported = str(error)
            _log.warning("a request of a submission failed and is repeated: %s", error)
        await asyncio.sleep(self._pause)
        self._pause = min(2 * self._pause, MAX_PAUSE_SECONDS)


class BatchClient:
    """Requests of all attempts; ``session`` is used in threads."""

    def __init__(self, session: AwsSession, staging: ObjectStaging) -> None:
        self.session, self.staging, self.api = session, staging, BatchApi(session)
        self._describe_error = ""
        self.log_requests = RequestRate(_LOG_REQUESTS)
        self._threads = ThreadPoolExecutor(_THREADS, "hyperplane-aws")
        self._descriptions: RequestBatcher[str, dict[str, Any] | AwsError | None] = RequestBatcher(
            self._describe
        )
        self._searches: RequestBatcher[tuple[str, str], str | AwsError] = RequestBatcher(self._find)

    async def run(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function in a thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(function, *arguments))

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

    async def repeat(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function that may be repeated until it succeeds; raise OSError if it does not.

        Its errno is that of :meth:`RetryTime.wait_after`.
        """
        time_left = RetryTime()
        while True:
            try:
                return await self.run(function, *arguments)
            except AwsError as error:
                failure = error
            await time_left.wait_after(failure)

    async def submit(self, request: Mapping[str, Any]) -> str:
        """Send a submission once and return the id of the job; raise AwsError if it fails."""
        return await self.run(self.api.submit, request)

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=False)
