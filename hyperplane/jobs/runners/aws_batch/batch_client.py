"""Requests to AWS Batch by all attempts of a supervisor: submit once, describe together, end."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from hyperplane.platforms.aws.batch import BatchApi
from hyperplane.platforms.aws.errors import AwsError, is_retryable, is_unconfirmed
from hyperplane.platforms.aws.object_staging import ObjectStaging
from hyperplane.platforms.aws.request_rate import RequestRate
from hyperplane.platforms.aws.session import AwsSession
from hyperplane.platforms.slurm.request_batcher import RequestBatcher

#: Seconds for which a submission is retried, and the longest pause between two requests.
SUBMIT_SECONDS, MAX_PAUSE_SECONDS = 300.0, 30.0
#: Seconds between searches for a job whose submission had no answer, and their number: the list of
#: jobs shows a new job with a delay.
SEARCH_SECONDS, SEARCHES = 3.0, 5
#: Reason that Batch shows for jobs that are ended.
_END_REASON = "ended by hyperplane"
_DUPLICATE_REASON = "second submission of the same attempt"
#: Maximum requests for logs in a second. Amazon limits those of an account.
_LOG_REQUESTS = 15.0
#: Maximum concurrent requests.
_THREADS = 8

Result = TypeVar("Result")


class SubmissionUnknown(OSError):
    """A job may or may not have been submitted; its errno is EAGAIN."""

    def __init__(self, message: str) -> None:
        super().__init__(errno.EAGAIN, message, "AWS Batch")


class BatchClient:
    """Requests of all attempts; ``session`` is used in threads."""

    def __init__(self, session: AwsSession, staging: ObjectStaging) -> None:
        self.session, self.staging, self.api = session, staging, BatchApi(session)
        self.log_requests = RequestRate(_LOG_REQUESTS)
        self._threads = ThreadPoolExecutor(_THREADS, "hyperplane-aws")
        self._descriptions: RequestBatcher[str, dict[str, Any] | AwsError | None] = RequestBatcher(
            self._describe
        )

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
            return [error for _ in ids]
        return [jobs.get(job_id) for job_id in ids]

    async def find(self, queue: str, name: str) -> str | AwsError:
        """Return the id of the job with a name; empty if there is none.

        If two submissions of it were accepted, the later jobs are ended.
        """
        try:
            first, *others = await self.run(self.api.find_jobs, queue, name) or [""]
            for job_id in others:
                await self.run(self.api.terminate, job_id, _DUPLICATE_REASON)
        except AwsError as error:
            return error
        return first

    async def terminate(self, job_id: str) -> AwsError | None:
        """End a job; return the error if Batch does not confirm it."""
        try:
            await self.run(self.api.terminate, job_id, _END_REASON)
        except AwsError as error:
            return error
        return None

    async def repeat(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function that may be repeated until it succeeds; raise OSError if it does not.

        Its errno is EPERM for a refusal, and EAGAIN if the service does not answer.
        """
        until, pause = time.monotonic() + SUBMIT_SECONDS, 1.0
        while True:
            try:
                return await self.run(function, *arguments)
            except AwsError as error:
                _raise_final(error, until)
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)

    async def submit(self, request: Mapping[str, Any]) -> str:
        """Submit a job once and return its id.

        If there is no answer, the job is searched by its name before it is submitted again.

        Raises
        ------
        SubmissionUnknown
            If no answer says whether it was submitted.
        OSError
            If Batch refuses it.
        """
        until, pause = time.monotonic() + SUBMIT_SECONDS, 1.0
        while True:
            try:
                return await self.run(self.api.submit, request)
            except AwsError as error:
                if not is_unconfirmed(error):
                    _raise_final(error, until)
                elif found := await self._search(request, until):
                    return found
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)

    async def _search(self, request: Mapping[str, Any], until: float) -> str:
        """Return the id of a job whose submission had no answer; empty if it was not accepted."""
        answered, error = 0, ""
        while answered < SEARCHES:
            await asyncio.sleep(SEARCH_SECONDS)
            found = await self.find(str(request["jobQueue"]), str(request["jobName"]))
            if isinstance(found, AwsError):
                error = str(found)
                if time.monotonic() > until or not is_retryable(found):
                    raise SubmissionUnknown(error)
            elif found:
                return found
            else:
                answered += 1
        if time.monotonic() > until:
            raise OSError(errno.EAGAIN, "no answer to the submission", "AWS Batch")
        return ""

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=False)


def _raise_final(error: AwsError, until: float) -> None:
    """Raise OSError if a request is not to be repeated."""
    if not is_retryable(error):
        raise OSError(errno.EPERM, str(error), "AWS Batch") from error
    if time.monotonic() > until:
        raise OSError(errno.EAGAIN, str(error), "AWS Batch") from error
