"""First rows of Parquet files, read by a process with a limit of memory.

Readers of Parquet trust what a file says of itself: one of 13 kB with a false footer made a preview
take 2 GB, and others end the process. A process for each preview takes a tenth of a second, so
that the rows of the last files are kept.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from hyperplane.core.errors import HyperplaneError
from hyperplane.core.units import format_bytes

#: Memory of the process beyond that of its modules, on Linux. A preview takes at most about 80 MB:
#: ten times the largest footer, or four times the largest column.
MEMORY_BYTES = 200_000_000
#: Seconds that a preview may take, also on a busy machine, and those of the processor.
_SECONDS, _CPU_SECONDS = 60.0, 20
#: Files whose rows are kept.
_MOST_KEPT = 100
_PROGRAM = Path(__file__).with_name("parquet_previews.py")
#: One heap, so that the limit counts what is used, and the allocator that obeys it.
_ENVIRONMENT = {"MALLOC_ARENA_MAX": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}


_TOO_LONG = "its content cannot be shown, as reading it takes too long"


class PreviewFailed(HyperplaneError, RuntimeError):
    """The first rows of a file cannot be read."""


class FirstRows(NamedTuple):
    """The first rows of a table.

    Parameters
    ----------
    names : list of str
        Names of the first columns.
    columns : list of list of str
        Their cells, shortened; the type in parentheses in columns that are not read.
    row_count, column_count : int
        Number of rows and columns of the file.
    """

    names: list[str]
    columns: list[list[str]]
    row_count: int
    column_count: int


class FirstRowsCache:
    """First rows of the files that were read last, by a key for the content of a file."""

    def __init__(self) -> None:
        self._rows: OrderedDict[tuple[Any, ...], FirstRows] = OrderedDict()
        self._lock = threading.Lock()

    def read(
        self, key: tuple[Any, ...], file: BinaryIO, rows: int, columns: int, length: int
    ) -> FirstRows:
        """Return the first rows of a file, as :func:`read_first_rows` does."""
        key = (*key, rows, columns, length)
        with self._lock:
            if key in self._rows:
                self._rows.move_to_end(key)
                return self._rows[key]
        found = read_first_rows(file, rows, columns, length)
        with self._lock:
            self._rows[key] = found
            if len(self._rows) > _MOST_KEPT:
                self._rows.popitem(last=False)
        return found


def read_first_rows(file: BinaryIO, rows: int, columns: int, length: int) -> FirstRows:
    """Return the first rows of the first columns of a file, with cells cut after a length.

    Parameters
    ----------
    file : BinaryIO
        An open file of a disk.
    rows, columns, length : int
        Most rows, columns, and characters of a cell.

    Raises
    ------
    PreviewFailed
        If the file is damaged, or takes too much memory or time.
    """
    limits = map(str, (rows, columns, length, MEMORY_BYTES, _CPU_SECONDS))
    try:
        completed = subprocess.run(  # noqa: S603 - a fixed program
            [sys.executable, "-P", str(_PROGRAM), *limits],
            stdin=file, capture_output=True, check=False, timeout=_SECONDS,
            env={**os.environ, **_ENVIRONMENT},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise PreviewFailed(_TOO_LONG) from None
    if completed.returncode == -signal.SIGXCPU:
        raise PreviewFailed(_TOO_LONG)
    try:
        answer = json.loads(completed.stdout)
    except ValueError:  # the process was ended, such as by a failed allocation of C++
        answer = {"error": "MemoryError"}
    if error := answer.get("error"):
        if error in ("MemoryError", "ArrowMemoryError"):
            text = f"reading it takes more than {format_bytes(MEMORY_BYTES)} of memory"
            raise PreviewFailed(f"its content cannot be shown, as {text}")
        raise PreviewFailed(f"its content cannot be shown ({error})")
    return FirstRows(**answer)
