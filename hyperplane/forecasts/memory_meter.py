"""Peak memory of this process during a block of code: exact on Linux, sampled elsewhere."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import psutil

from hyperplane.guard.freed_memory import return_freed_memory

_CLEAR = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")
#: Seconds between two measurements where the kernel does not record the peak.
_INTERVAL = 0.01


def has_exact_peaks() -> bool:
    """Return whether the kernel records the peak, and lets this process reset it."""
    try:
        _reset_peak()
    except OSError:
        return False
    return True


def _reset_peak() -> None:
    _CLEAR.write_text("5")


def read_memory() -> int:
    """Return the resident memory of this process in bytes."""
    return int(psutil.Process().memory_info().rss)


def release_memory() -> None:
    """Return free memory of the allocators of this process to the system."""
    pyarrow = sys.modules.get("pyarrow")
    if pyarrow is not None:
        pyarrow.default_memory_pool().release_unused()
    return_freed_memory()


class PeakMeter:
    """Context that measures the largest resident memory of this process.

    Examples
    --------
    >>> with PeakMeter() as meter:
    ...     block = bytearray(50_000_000)
    >>> meter.peak > 50_000_000
    True
    """

    def __init__(self) -> None:
        self.exact = has_exact_peaks()
        self.before = self.peak = self.after = 0
        self._end = threading.Event()

    def __enter__(self) -> PeakMeter:
        self.before = self.peak = read_memory()
        if self.exact:
            _reset_peak()
        else:
            self._thread = threading.Thread(target=self._measure, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self.exact:
            self.peak = _read_peak()
        else:
            self._end.set()
            self._thread.join()
        self.after = read_memory()
        self.peak = max(self.peak, self.before, self.after)

    def _measure(self) -> None:
        while not self._end.wait(_INTERVAL):
            self.peak = max(self.peak, read_memory())


def _read_peak() -> int:
    for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0
