"""Detect files that were replaced after a read was planned, without further requests to stores.

Only sizes are compared. Time stamps differ between copies of a file on the disks of several
machines, which a cluster without a shared file system reads.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hyperplane.core.errors import ReadError
from hyperplane.objectstore.locations import File


def check_local_size(file: File, record_end: bytes = b"") -> None:
    """Raise ReadError if a file on local disk has another size than in the plan.

    With ``record_end`` the file may be longer, as a log is that grows, if a record still ends where
    the file ended.
    """
    if not file.store.local or not file.sized:
        return
    try:
        size = Path(file.path).stat().st_size
    except OSError:
        return  # the read itself raises the error
    if size > file.size and record_end:
        before = file.read_range(max(0, file.size - len(record_end)), file.size)
        if before == record_end:
            return
    _check_size(file, size)


def check_opened_size(file: File, opened: Any) -> None:
    """Raise ReadError if an opened file of a store has another size than in the plan."""
    size = getattr(opened, "size", None)
    if isinstance(size, int) and file.sized:  # not all file systems return it
        _check_size(file, size)


def _check_size(file: File, size: int) -> None:
    if size != file.size:
        raise _change_error(file, f"{size} bytes")


def read_planned_range(file: File, start: int, stop: int, record_end: bytes) -> bytes:
    """Read stored bytes; raise ReadError if the file does not have them as planned.

    A range at the end of the file is read with one more byte. If there is one, the file is longer
    now, and a record must still end where the file ended.
    """
    if start >= stop:
        return b""
    # From servers that ignore ranges, read_range could not tell all bytes from all but the first.
    extra = int(stop == file.size and start != 1)
    data = file.read_range(start, stop + extra)
    if len(data) < stop - start:
        raise _change_error(file, f"{start + len(data)} bytes")
    if len(data) == stop - start:
        return data
    data = data[: stop - start]
    if len(data) >= len(record_end) and not data.endswith(record_end):
        raise _change_error(file, "more")
    return data


def _change_error(file: File, now: str) -> ReadError:
    changed = f"it had {file.size} bytes when the read was planned, and now has {now}"
    return ReadError(file.url, f"{changed}; read it again")
