"""Put off Ctrl-C during a step that an interrupt would leave half done.

Python raises ``KeyboardInterrupt`` between any two instructions of the main thread: after a folder
is made and before its name is kept, or after a cluster runs and before its object is returned.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

#: How often Ctrl-C is pressed until it is put off no longer.
AT_ONCE = 3


class _PutOff:
    """A handler that counts interrupts, in the place of another one."""

    def __init__(self, handler: Callable[[int, FrameType | None], object]) -> None:
        self.handler = handler
        self.waiting = 0

    def note(self, number: int, frame: FrameType | None) -> None:
        self.waiting += 1
        if self.waiting >= AT_ONCE:
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
    try:
        signal.signal(signal.SIGINT, active.handler)
        active.pass_on()
        yield
    finally:
        signal.signal(signal.SIGINT, active.note)
