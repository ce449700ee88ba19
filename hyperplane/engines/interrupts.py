"""Put off Ctrl-C during a step that an interrupt would leave half done.

Python raises ``KeyboardInterrupt`` between any two instructions of the main thread: after a folder
is made and before its name is kept, or after a cluster runs and before its object is returned. So
the start of every cluster runs within :func:`put_off`, and only what takes long within it runs
within :func:`let_through`.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

#: How often Ctrl-C is pressed until it is put off no longer.
AT_ONCE = 3
#: Seconds that the interrupted step of a start gets to end.
PATIENCE = 60.0


class _PutOff:
    """A handler that counts interrupts, in the place of another one."""

    def __init__(self, handler: Callable[[int, FrameType | None], object]) -> None:
        self.handler = handler
        self.waiting = 0
        #: Whether interrupts go to the other handler at once. A mark, because the handlers
        #: themselves cannot be exchanged, and put back, without an interrupt in between.
        self.through = False

    def note(self, number: int, frame: FrameType | None) -> None:
        self.waiting += 1
        if self.through or self.waiting >= AT_ONCE:
            self.pass_on(frame)

    def pass_on(self, frame: FrameType | None = None) -> None:
        """Do what the other handler does, if an interrupt has come."""
        if self.waiting:
            self.waiting = 0
            self.handler(signal.SIGINT, frame)


#: In force in the main thread, the only one that signals interrupt.
_active: _PutOff | None = None


@contextmanager
def put_off() -> Iterator[None]:
    """Put off Ctrl-C to the end of the block, or to the next :func:`let_through`."""
    global _active
    handler = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or not callable(handler) or _active is not None:
        yield
        return
    active = _PutOff(handler)
    try:
        _active = active
        signal.signal(signal.SIGINT, active.note)
        yield
    finally:
        _active = None
        signal.signal(signal.SIGINT, handler)
        active.pass_on()


@contextmanager
def let_through() -> Iterator[None]:
    """Let Ctrl-C interrupt a block that takes long, within one of :func:`put_off`."""
    active = _active
    if active is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = active.through
    try:
        active.through = True
        active.pass_on()
        yield
    finally:
        active.through = before


class InterruptibleStart:
    """A mixin for Dask's clusters: Ctrl-C interrupts the waits of their start, and nothing else.

    An interrupted wait returns when what it waited for has ended. Dask's own returns at once and
    cancels that later, so that what is undone then is still being made.
    """

    #: Set by a subclass while its start runs.
    starting = False

    def sync(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a coroutine in the loop of the cluster and wait for it, as Dask's own does."""
        dask_sync: Callable[..., Any] = super().sync  # type: ignore[misc]
        if not self.starting:
            return dask_sync(func, *args, **kwargs)
        # Imported here: it takes a while, and a plan needs none of it.
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
            if not task.cancelling():  # once: the second time would end what it does to end
                task.cancel()

        try:
            with let_through():
                return dask_sync(step, *args, **kwargs)
        except BaseException as error:
            if not isinstance(error, Exception):
                interrupted = True
                if task is not None:
                    self.loop.add_callback(cancel, task)  # type: ignore[attr-defined]
                    ended.wait(PATIENCE)
            raise
