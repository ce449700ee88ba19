"""Defer Ctrl-C during steps that an interrupt would leave half done.

Python raises ``KeyboardInterrupt`` between any two instructions of the main thread, for example
after a folder is created and before its name is stored, or after a cluster runs and before its
object is returned. Every cluster therefore starts within :func:`defer_interrupts`, and only its
long waits run within :func:`allow_interrupts`.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

#: Number of Ctrl-C presses after which they are no longer deferred.
MAX_DEFERRED = 3
#: Seconds to wait until the interrupted step of a start has ended.
PATIENCE = 60.0


class _DeferredInterrupts:
    """A SIGINT handler that counts interrupts and delivers them later to the previous handler."""

    def __init__(self, handler: Callable[[int, FrameType | None], object]) -> None:
        self.handler = handler
        self.pending = 0
        #: Whether interrupts are delivered at once. A flag, because an interrupt could arrive
        #: between two calls that exchange the handlers.
        self.passes_through = False

    def record(self, number: int, frame: FrameType | None) -> None:
        self.pending += 1
        if self.passes_through or self.pending >= MAX_DEFERRED:
            self.deliver(frame)

    def deliver(self, frame: FrameType | None = None) -> None:
        """Call the previous handler if an interrupt is pending."""
        if self.pending:
            self.pending = 0
            self.handler(signal.SIGINT, frame)


#: Of the main thread, the only one that signals interrupt.
_active: _DeferredInterrupts | None = None


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Defer Ctrl-C to the end of the block, or to the next :func:`allow_interrupts` in it."""
    global _active
    handler = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or not callable(handler) or _active is not None:
        yield
        return
    active = _DeferredInterrupts(handler)
    try:
        _active = active
        signal.signal(signal.SIGINT, active.record)
        yield
    finally:
        _active = None
        signal.signal(signal.SIGINT, handler)
        active.deliver()


@contextmanager
def allow_interrupts() -> Iterator[None]:
    """Let Ctrl-C interrupt a long-running block inside :func:`defer_interrupts`."""
    active = _active
    if active is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = active.passes_through
    try:
        active.passes_through = True
        active.deliver()
        yield
    finally:
        active.passes_through = before


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
        # Imported here because it is slow and a plan does not need it.
        import asyncio

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
                    ended.wait(PATIENCE)
            raise
