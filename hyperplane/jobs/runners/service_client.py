"""Requests to a service by all attempts of a supervisor, in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ClassVar, TypeVar

from hyperplane.core.errors.platforms import PlatformError
from hyperplane.jobs.runners.retry_time import RetryTime, ServiceErrors

#: Maximum concurrent requests.
_THREADS = 8

Result = TypeVar("Result")


class ServiceClient:
    """Base of clients whose requests are functions that wait for an answer."""

    #: What the errors of the service mean for a submission.
    errors: ClassVar[ServiceErrors]

    def __init__(self, name: str) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, name)

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


async def finish(work: asyncio.Future[Result]) -> Result:
    """Wait for the end of work, also if this coroutine is cancelled in the meantime."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait({work})
        raise
