"""Waits with a limit, the call for which a coroutine waits, and the call that blocks a loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

#: Seconds of a part of a wait.
_SLICE = 1.0
#: Seconds in which the event loop of a busy machine runs a callback.
RESPONSE_SECONDS = 5.0


def wait_for_future(future: concurrent.futures.Future[Any], seconds: float | None) -> None:
    """Wait until a future is done, at most some seconds; None for no limit.

    An exception that a signal handler raises meanwhile, also a ``TimeoutError``, is raised here;
    it is not confused with the end of the time. On Windows a wait does not see signals, so that
    it is divided.
    """
    end = None if seconds is None else time.monotonic() + seconds
    while not future.done():
        left = _SLICE if end is None else min(_SLICE, end - time.monotonic())
        if left <= 0:
            return
        concurrent.futures.wait([future], timeout=left)


def is_responsive(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether an event loop that runs in another thread calls a function soon."""
    answered = threading.Event()
    try:
        loop.call_soon_threadsafe(answered.set)
    except RuntimeError:  # it is closed
        return False
    return answered.wait(RESPONSE_SECONDS)


def find_wait(task: asyncio.Task[Any] | None) -> str:
    """Return the innermost coroutine that a task awaits; empty if it awaits another task.

    The task may run in another thread.
    """
    frame, awaited = None, getattr(None if task is None else task.get_coro(), "cr_await", None)
    while awaited is not None:
        # Coroutines and generators have these attributes, other awaitables have none of them.
        found = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        frame = found if isinstance(found, FrameType) else frame
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return "" if frame is None else _describe(frame)


def find_blocking_call(thread: int) -> str:
    """Return the innermost call of a thread; empty if it is unknown or waits for events."""
    frame = sys._current_frames().get(thread)
    return "" if frame is None else _describe(frame)


def _describe(frame: FrameType) -> str:
    """Return the function, the file with its folder, and the line of a frame."""
    path = Path(frame.f_code.co_filename)
    file = "/".join(path.parts[-2:])
    return f"{frame.f_code.co_name} ({file}, line {frame.f_lineno})"
