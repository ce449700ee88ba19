"""Detect files that were replaced after a read was planned.

The sizes are compared and, if a file has grown, its first bytes. Time stamps are not compared: a
cluster without a shared file system reads copies of a file, each with another time stamp.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from hyperplane.core.errors import ReadError
from hyperplane.objectstore.locations import File

#: Maximum number of bytes of a head.
_HEAD_BYTES = 1000


class HeadChecksum(NamedTuple):
    """CRC-32 of the first bytes of a file."""

    length: int
    crc: int


#: Checksum of no bytes, which matches any file.
ANY_HEAD = HeadChecksum(0, zlib.crc32(b""))


def compute_head_checksum(data: bytes) -> HeadChecksum:
    """Return the checksum of the first bytes of a file that begins with ``data``."""
    head = data[:_HEAD_BYTES]
    return HeadChecksum(len(head), zlib.crc32(head))


def has_only_grown(file: File, head: HeadChecksum, record_end: bytes) -> bool:
    """Whether a longer file has the planned first bytes, and a record end at the planned size.

    If the planned file does not end with a line end, the bytes after it must begin with one.
    """
    if not file.size:
        return True
    begin = max(0, file.size - len(record_end))
    near = file.read_range(begin, file.size + 1 + len(record_end))
    before, after = near[: file.size - begin], near[file.size - begin :]
    if before != record_end and not after.startswith((record_end, b"\r" + record_end)):
        return False
    return zlib.crc32(file.read_range(0, head.length)) == head.crc


def check_local_size(file: File, has_grown: Callable[[], bool] | None = None) -> None:
    """Raise ReadError if a file on local disk has another size than in the plan.

    A longer file is accepted if ``has_grown()`` is true: it only has additional records.
    """
    if not file.store.local or not file.sized:
        return
    path = Path(file.path)
    try:
        size = path.stat().st_size
        if size != file.size:
            # A client of NFS may return an old size, until it opens the file.
            with path.open("rb") as opened:
                size = os.fstat(opened.fileno()).st_size
    except OSError:
        return  # the read itself raises the error
    if size > file.size and has_grown is not None and has_grown():
        return
    _check_size(file, size)


def check_opened_size(file: File, opened: Any) -> None:
    """Raise ReadError if an opened file of a store has another size than in the plan."""
    size = getattr(opened, "size", None)
    if isinstance(size, int) and file.sized:  # not all file systems return it
        _check_size(file, size)


def _check_size(file: File, size: int) -> None:
    if size != file.size:
        raise _make_change_error(file, f"{size} bytes")


def read_planned_range(file: File, start: int, stop: int, has_grown: Callable[[], bool]) -> bytes:
    """Read stored bytes; raise ReadError if they show that the size of the file has changed.

    A range at the end of the file is read with one more byte. If there is one, the file is longer
    now, which is accepted if ``has_grown()`` is true: it only has additional records.
    """
    if start >= stop:
        return b""
    # Not from byte 1: a server that ignores ranges would return the whole file, which has as many
    # bytes as this range and the extra byte together, so read_range could not notice it.
    extra = int(stop == file.size and start != 1)
    data = file.read_range(start, stop + extra)
    if len(data) < stop - start:
        raise _make_change_error(file, f"{start + len(data)} bytes")
    if len(data) > stop - start and not has_grown():
        raise _make_change_error(file, "more")
    return data[: stop - start]


def _make_change_error(file: File, now: str) -> ReadError:
    changed = f"it had {file.size} bytes when the read was planned, and now has {now}"
    return ReadError(file.url, f"{changed}; read it again")
