"""Peak memory of this process during a block of code: exact on Linux, sampled elsewhere."""

from __future__ import annotations

import ctypes
import sys
import threading
from pathlib import Path

import psutil

from hyperplane.guard.freed_memory import return_freed_memory

_CLEAR = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")
#: Seconds between two measurements where the kernel does not record the peak.
_INTERVAL = 0.01
#: Bytes of a block of Python's allocator of small objects, on average (measured: 97).
_SMALL_OBJECT = 97


class _MallocInfo(ctypes.Structure):
    """What mallinfo2(3) of glibc returns."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
            "fordblks", "keepcost",
        )
    )  # fmt: skip


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


def read_library_memory() -> int:
    """Return the private memory that libraries have from the system by their own allocators.

    It is what neither malloc nor Python has, as that of Polars, which keeps what it has freed. Zero
    where the C library does not say what malloc has.
    """
    # Not has_exact_peaks(), which resets the peak: this is also called while a task is measured.
    read_malloc = getattr(ctypes.CDLL(None), "mallinfo2", None) if _STATUS.exists() else None
    if read_malloc is None:
        return 0
    read_malloc.restype = _MallocInfo
    found = read_malloc()
    private = _read_status("RssAnon")
    known = found.uordblks + found.hblkhd + _SMALL_OBJECT * sys.getallocatedblocks()
    return max(0, private - int(known))


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

    def split(self) -> int | None:
        """Return the peak since the start or the last split; None if it is not exact."""
        if not self.exact:
            return None
        peak = _read_status("VmHWM")
        self.peak = max(self.peak, peak)
        _reset_peak()
        return peak

    def __exit__(self, *exception: object) -> None:
        if self.exact:
            self.split()
        else:
            self._end.set()
            self._thread.join()
        self.after = read_memory()
        self.peak = max(self.peak, self.before, self.after)

    def _measure(self) -> None:
        while not self._end.wait(_INTERVAL):
            self.peak = max(self.peak, read_memory())


def _read_status(name: str) -> int:
    """Return a size of this process in bytes, as the kernel reports it."""
    for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0
