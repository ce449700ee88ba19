"""Requests to a service by all attempts of a supervisor, in threads."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

from hyperplane.core.errors.platforms import PlatformError
from hyperplane.jobs.runners.retry_time import RetryTime, ServiceErrors
from hyperplane.jobs.runners.service_job_id import ServiceJobId
from hyperplane.platforms.object_staging import ObjectStaging
from hyperplane.platforms.slurm.request_batcher import RequestBatcher

_log = logging.getLogger(__name__)
#: Maximum concurrent requests.
_THREADS = 8
#: Reasons for which jobs are ended, in services that show one.
_END_REASON = "ended by hyperplane"
_DUPLICATE_REASON = "second submission of the same attempt"

Result = TypeVar("Result")
JobIdT = TypeVar("JobIdT", bound=ServiceJobId)

#: A job in the form of the service; None if it has none, and the error if it does not answer.
Description = Mapping[str, Any] | PlatformError | None


class ServiceClient(ABC, Generic[JobIdT]):
    """Requests for jobs, one for all attempts where the service allows that.

    Subclasses send the requests, and raise the errors of their platform.

    Parameters
    ----------
    name : str
        Name of the threads.
    staging : ObjectStaging
        Files for the tasks.
    """

    #: What the errors of the service mean for a submission.
    errors: ClassVar[ServiceErrors]

    def __init__(self, name: str, staging: ObjectStaging) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, name)
        self._staging, self._describe_error = staging, ""
        self._descriptions: RequestBatcher[JobIdT, Description] = RequestBatcher(self._describe)
        self._searches: RequestBatcher[JobIdT, str | PlatformError] = RequestBatcher(self._find)

    @abstractmethod
    async def create(self, request: Mapping[str, Any]) -> str:
        """Send a creation once and return the id of the job."""

    @abstractmethod
    async def _read(self, ids: Sequence[JobIdT]) -> list[Mapping[str, Any] | None]:
        """Return the jobs with some ids, in their order; None for those that there are not."""

    @abstractmethod
    async def _search(self, job_id: JobIdT) -> list[str]:
        """Return the ids of all jobs with the name of an attempt, the oldest first."""

    @abstractmethod
    async def _stop(self, task_id: str, reason: str) -> None:
        """Request the end of a job."""

    @abstractmethod
    def _read_group(self, job_id: JobIdT) -> Hashable:
        """Return a key that is equal for jobs that are read together."""

    @abstractmethod
    def _search_group(self, job_id: JobIdT) -> Hashable:
        """Return a key that is equal for attempts that one search finds."""

    async def upload_content(self, content: bytes, suffix: str) -> None:
        """Upload content unless the bucket has it; raise OSError if it cannot be uploaded."""
        await self.repeat(self._staging.upload_content, content, suffix)

    async def upload(self, key: str, content: bytes) -> None:
        """Write an object of the staging folder; raise OSError if it cannot be written."""
        await self.repeat(self._staging.put, key, content)

    async def describe(self, job_id: JobIdT) -> Description:
        """Return a job; None if the service has none, and the error if it does not answer."""
        return await self._descriptions.request(job_id, self._read_group(job_id))

    async def _describe(self, ids: list[JobIdT]) -> Sequence[Description]:
        try:
            jobs = await self._read(ids)
        except PlatformError as error:
            if str(error) != self._describe_error:
                self._describe_error = str(error)
                _log.warning("the jobs of %s cannot be observed: %s", self.errors.system, error)
            return [error for _ in ids]
        self._describe_error = ""
        return jobs

    async def find(self, job_id: JobIdT) -> str | PlatformError:
        """Return the id of the job with the name of an attempt; empty if there is none.

        If two creations of it were accepted, the later jobs are ended.
        """
        return await self._searches.request(job_id, self._search_group(job_id))

    async def _find(self, ids: list[JobIdT]) -> list[str | PlatformError]:
        found: str | PlatformError
        try:
            found, *others = await self._search(ids[0]) or [""]
            for other in others:
                await self._stop(other, _DUPLICATE_REASON)
        except PlatformError as error:
            found = error
        return [found for _ in ids]

    async def end(self, job_id: JobIdT) -> PlatformError | None:
        """Request the end of a job; return the error if the service does not confirm it."""
        try:
            await self._stop(job_id.task_id(), _END_REASON)
        except PlatformError as error:
            return error
        return None

    async def run(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function in a thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(function, *arguments))

    async def repeat(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function that may be repeated until it succeeds; raise OSError if it does not.

        Its errno is that of :meth:`RetryTime.wait_after`.
        """
        time_left = RetryTime(self.errors)
        while True:
            try:
                return await self.run(function, *arguments)
            except PlatformError as error:
                failure = error
            await time_left.wait_after(failure)

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=False)
