"""Mixin for Dask's clusters that lets Ctrl-C interrupt only the waits of a start."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from hyperplane.clusters.interrupts import allow_interrupts

#: Seconds to wait until the interrupted step of a start has ended.
INTERRUPTED_STEP_SECONDS = 60.0


class InterruptibleStart:
    """Mixin for Dask's clusters: Ctrl-C interrupts only the waits of their start.

    An interrupted wait returns after the coroutine that it waited for has ended. Dask's own wait
    returns at once and cancels the coroutine later, so that cleanup would run while the coroutine
    is still creating what has to be cleaned up.
    """

    #: Set by a subclass while its start runs.
    starting = False

    def sync(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a coroutine in the cluster's event loop and wait for it, as Dask's ``sync`` does."""
        dask_sync: Callable[..., Any] = super().sync  # type: ignore[misc]
        if not self.starting:
            return dask_sync(func, *args, **kwargs)
        ended, interrupted = threading.Event(), False
        task: asyncio.Task[Any] | None = None

        async def step(*args: Any, **kwargs: Any) -> Any:
            nonlocal task
            task = asyncio.current_task()
            try:
                if interrupted:
                    raise asyncio.CancelledError
                awaitable: Awaitable[Any] = func(*args, **kwargs)
                return await awaitable
            finally:
                ended.set()

        def cancel(task: asyncio.Task[Any]) -> None:
            if not task.cancelling():  # a second cancel would interrupt its cleanup
                task.cancel()

        try:
            with allow_interrupts():
                return dask_sync(step, *args, **kwargs)
        except BaseException as error:
            if not isinstance(error, Exception):
                interrupted = True
                if task is not None:
                    self.loop.add_callback(cancel, task)  # type: ignore[attr-defined]
                    ended.wait(INTERRUPTED_STEP_SECONDS)
            raise
