"""Return the memory that a worker process has freed to the system, while it uses much.

Dask spills, pauses and ends workers by the memory of the process, which includes what was freed
and is kept by malloc. It does not know that a process which is near its limit needs little.

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

    def return_if_useful(self, limit: int | None, in_loop: bool = False) -> tuple[int, int]:
        """Return freed memory if much of `limit` is used; return ``ProcessMemory.read`` then.

        ``in_loop``: an event loop calls this, and waits only if it takes a short time.
        """
        sizes = self._memory.read()
        now = time.monotonic()
        if not limit or sizes[0] < _ABOVE * limit or now < self._next:
            return sizes
        if in_loop and self._took > _SHORT:
            return sizes
        if not self._returning.acquire(blocking=False):
            return sizes
        try:
            return_freed_memory()
            left = self._memory.read(fresh=True)
            gained = sizes[0] - left[0] > _GAIN * limit
            self._wait = 0.0 if gained else min(max(2 * self._wait, _WAIT), _LONGEST_WAIT)
            self._took = time.monotonic() - now
            wait = self._wait if left[0] < _NEAR * limit else 0.0
            self._next = now + max(wait, self._took / _SHARE)
        finally:
            self._returning.release()
        return left
