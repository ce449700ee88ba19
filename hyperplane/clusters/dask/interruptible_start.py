"""Mixin for Dask's clusters whose start Ctrl-C can interrupt, and whose start has a time limit."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Callable
from typing import Any

from hyperplane.clusters.dask.wait_places import (
    find_blocking_call,
    find_wait,
    is_responsive,
    wait_for_future,
)
from hyperplane.clusters.interrupts import allow_interrupts

#: Seconds to wait until the interrupted step of a start has ended.
INTERRUPTED_STEP_SECONDS = 60.0
#: Seconds that Dask may take to close a cluster whose start has failed.
CLOSE_SECONDS = 60.0


class StartLimitReached(BaseException):
    """A step of a start has not ended within the time limit.

    No Exception, after which Dask closes the cluster: it would wait for the workers that are still
    starting, and for a scheduler that does not answer.

    Attributes
    ----------
    waited : str
        What did not happen, such as "the scheduler did not start".
    place : str
        The call that did not return.
    """

    def __init__(self, waited: str, place: str) -> None:
        super().__init__(waited)
        self.waited, self.place = waited, place


class InterruptibleStart:
    """Mixin for Dask's clusters: Ctrl-C and a time limit interrupt the waits of their start.

    An interrupted wait returns after the coroutine that it waited for has ended. Dask's own wait
    returns at once and cancels the coroutine later, so that cleanup would run while the coroutine
    is still creating what has to be cleaned up.
    """

    #: Set by a subclass while its start runs.
    starting = False
    #: When the start must have ended, by ``time.monotonic``; None without a limit.
    deadline: float | None = None
    #: Identity of the event loop's thread; 0 before the first step of the start.
    loop_thread = 0
    #: The first error of the start, after which Dask closes the cluster.
    _first_error: Exception | None = None
    _is_blocked = False

    def responds(self) -> bool:
        """Return whether the event loop runs; once it is found blocked, it is not asked again."""
        if not self._is_blocked:
            loop: Any = self.loop  # type: ignore[attr-defined]
            self._is_blocked = not is_responsive(loop.asyncio_loop)
        return not self._is_blocked

    def describe_wait(self) -> str:
        """Return what has not happened yet, for the error of the time limit."""
        return "the cluster did not start"

    def sync(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a coroutine in the cluster's event loop and wait for it, as Dask's ``sync`` does."""
        if not self.starting or self.asynchronous:  # type: ignore[attr-defined]
            dask_sync: Callable[..., Any] = super().sync  # type: ignore[misc]
            return dask_sync(func, *args, **kwargs)
        kwargs.pop("callback_timeout", None)  # the time limits of a start apply
        loop: asyncio.AbstractEventLoop = self.loop.asyncio_loop  # type: ignore[attr-defined]
        step = _Step(func, args, kwargs)
        future = None
        try:
            future = asyncio.run_coroutine_threadsafe(step.run(), loop)
            with allow_interrupts():
                return self._wait(future, step)
        except BaseException as error:
            is_own = isinstance(error, StartLimitReached) or future is None or future.done()
            if isinstance(error, Exception) and is_own:
                self._first_error = self._first_error or error
            else:  # Ctrl-C, or what a signal handler of the program raises
                step.interrupt(loop)
                if self.responds():  # else the coroutine does not end soon
                    step.ended.wait(INTERRUPTED_STEP_SECONDS)
            raise

    def _wait(self, future: concurrent.futures.Future[None], step: _Step) -> Any:
        wait_for_future(future, self._remaining())
        self.loop_thread = step.thread or self.loop_thread
        if future.done():
            future.result()  # raises if the event loop was stopped
            return step.get_result()
        if self.responds():
            place = find_wait(step.task)
            place = f"the start waited in {place}" if place else ""
        else:
            place = find_blocking_call(self.loop_thread)
            place = f"the event loop of this process is blocked{place and f' in {place}'}"
        raise StartLimitReached(self.describe_wait(), place)

    def _remaining(self) -> float | None:
        """Return the seconds that the next step may take; None without a limit."""
        if self._first_error is not None:
            return CLOSE_SECONDS
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())


class _Step:
    """A coroutine function that runs in an event loop while another thread waits for it.

    Parameters
    ----------
    function : callable
        Returns an awaitable.
    args, kwargs
        Its arguments.
    """

    def __init__(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._function, self._args, self._kwargs = function, args, kwargs
        self._interrupted = False
        self._result: Any = None
        self._error: Exception | None = None
        self.ended = threading.Event()
        self.task: asyncio.Task[Any] | None = None
        #: Identity of the event loop's thread; 0 before the step has begun.
        self.thread = 0

    async def run(self) -> None:
        """Call the function and wait for its result."""
        self.task, self.thread = asyncio.current_task(), threading.get_ident()
        try:
            if self._interrupted:
                raise asyncio.CancelledError
            self._result = await self._function(*self._args, **self._kwargs)
        except Exception as error:  # noqa: BLE001 - asyncio would raise a TimeoutError without cause
            self._error = error
        finally:
            self.ended.set()

    def get_result(self) -> Any:
        """Return the result of the function, or raise its error."""
        if self._error is not None:
            raise self._error
        return self._result

    def interrupt(self, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel the coroutine, also if it has not begun yet."""
        self._interrupted = True
        loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        # A second cancel would interrupt its cleanup.
        if self.task is not None and not self.task.cancelling():
            self.task.cancel()
