"""Return the memory that a worker process has freed to the system, while it uses much or grows.

Dask spills, pauses and ends workers by the memory of the process, which includes what was freed
and is kept by malloc. It does not know that a process which is near its limit needs little. With
hundreds of tasks the heap gets ever more gaps between used memory, into which few blocks fit.

Processes without this package receive this module by value.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time

from hyperplane.guard.memory_record import ProcessMemory

#: Fraction of the limit above which a process returns freed memory, and above which there may not
#: be enough for the next task, so that it does not wait long after a time without a gain.
_ABOVE, _NEAR = 0.5, 0.7
#: Fraction of the limit that makes it worth to do so again soon.
_GAIN = 0.03
#: Seconds to wait after the first time without such a gain, and the most; each time doubles them.
_WAIT, _LONGEST_WAIT = 0.25, 4.0
#: Share of the time of a process that this may take.
_SHARE = 0.1
#: Growth since memory was last returned from which on a process below that fraction returns it,
#: too: bytes, and a share of what was left then.
_GROWTH, _GROWTH_SHARE = 64 * 10**6, 0.25
#: CPU seconds of a process before it does so the first time, and for each CPU second that it took
#: the last time. The next tasks use three quarters of what was returned again, which the kernel has
#: to clear: this costs five times the return itself, and both together are 1 % then.
_GROWTH_AFTER, _GROWTH_WAIT = 5.0, 600.0
#: Seconds that it may have taken the last time, to be done by an event loop, which waits for it.
_SHORT = 0.02


def return_freed_memory() -> None:
    """Return freed memory between used memory to the system, if the C library is glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


class FreedMemory:
    """The memory that this process has freed, and the times at which it is returned.

    Parameters
    ----------
    memory : ProcessMemory
        Reader of the memory of this process.
    """

    def __init__(self, memory: ProcessMemory) -> None:
        self._memory = memory
        self._returning = threading.Lock()
        self._wait = self._next = self._took = 0.0
        self._left = memory.read()[0]
        self._next_growth = time.process_time() + _GROWTH_AFTER

    def return_if_useful(self, limit: int | None, in_loop: bool = False) -> tuple[int, int]:
        """Return freed memory if much of `limit` is used, or if the process has grown.

        Returns ``ProcessMemory.read`` afterwards. ``in_loop``: an event loop calls this. It waits
        only if much is used and it takes a short time.
        """
        sizes = self._memory.read()
        if not limit:
            return sizes
        now = time.monotonic()
        if sizes[0] >= _ABOVE * limit:
            is_due = now >= self._next and not (in_loop and self._took > _SHORT)
        else:
            is_due = not in_loop and self._has_grown(sizes[0])
        if not is_due or not self._returning.acquire(blocking=False):
            return sizes
        try:
            return self._return(sizes[0], limit, now)
        finally:
            self._returning.release()

    def _has_grown(self, memory: int) -> bool:
        grown = memory - self._left > max(_GROWTH, _GROWTH_SHARE * self._left)
        return grown and time.process_time() >= self._next_growth

    def _return(self, memory: int, limit: int, now: float) -> tuple[int, int]:
        began = time.thread_time()
        return_freed_memory()
        cpu = time.thread_time() - began
        left = self._memory.read(fresh=True)
        self._left = left[0]
        self._next_growth = time.process_time() + _GROWTH_WAIT * cpu
        if memory >= _ABOVE * limit:
            gained = memory - left[0] > _GAIN * limit
            self._wait = 0.0 if gained else min(max(2 * self._wait, _WAIT), _LONGEST_WAIT)
            self._took = time.monotonic() - now
            wait = self._wait if left[0] < _NEAR * limit else 0.0
            self._next = now + max(wait, self._took / _SHARE)
        return left
