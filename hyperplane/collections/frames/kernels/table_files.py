"""Tables in compressed files of a worker process, for exchanges of more rows than fit into memory.

A :class:`FiledTable` takes little memory. Dask moves it to another process like any result: it is
pickled as the bytes of the table, and written to a file of that process. So each replica has the
rows, and lost ones are computed again. A file is removed with the last table in it.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
import uuid
import weakref
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import dask.config
import polars as pl

from hyperplane.core.errors import HyperplaneError

#: Bytes of a table up to which it stays in memory: a file would take more time.
_MIN_FILE_BYTES = 1 << 16


class TableFile:
    """A new file of this process, removed with the last reference to this object."""

    def __init__(self) -> None:
        self.path = _find_folder() / f"hyperplane-table-{uuid.uuid4().hex}.arrow"
        self.remove = weakref.finalize(self, _remove_file, os.fspath(self.path))


def _remove_file(path: str) -> None:
    with suppress(OSError):  # the nanny may have removed the folder
        Path(path).unlink()


def _find_folder() -> Path:
    """Return the folder of the worker that runs this task, or Dask's for temporary files.

    The worker's nanny removes its folder if the worker is killed.
    """
    distributed = sys.modules.get("distributed")
    if distributed is not None:
        try:
            return Path(distributed.get_worker().local_directory)
        except ValueError:  # no task of a worker runs in this thread
            pass
    return Path(dask.config.get("temporary-directory", None) or tempfile.gettempdir())


class FiledTable:
    """A table as compressed Arrow data: a range of a file of this process, or bytes in memory."""

    def __init__(self, content: bytes | TableFile, offset: int, length: int) -> None:
        self._content, self._offset, self._length = content, offset, length

    def load(self) -> pl.DataFrame:
        """Return the table."""
        return pl.read_ipc_stream(io.BytesIO(self._read_bytes()))

    def _read_bytes(self) -> bytes:
        if isinstance(self._content, bytes):
            return self._content
        with self._content.path.open("rb") as opened:
            opened.seek(self._offset)
            return opened.read(self._length)

    def __reduce__(self) -> Any:
        return _restore_table, (self._read_bytes(),)

    def __sizeof__(self) -> int:
        """Return the bytes in memory, for Dask."""
        return 200 + (self._length if isinstance(self._content, bytes) else 0)


def _restore_table(data: bytes) -> FiledTable:
    """Return the table of pickled bytes; large ones are written to a file of this process."""
    if len(data) < _MIN_FILE_BYTES:
        return FiledTable(data, 0, len(data))
    file = TableFile()
    _append(file, data)
    return FiledTable(file, 0, len(data))


def write_tables(tables: Iterable[pl.DataFrame]) -> list[FiledTable]:
    """Write tables to one file, one after the other; small ones stay in memory.

    Raises
    ------
    HyperplaneError
        If the file cannot be written, for example because the disk is full.
    """
    file: TableFile | None = None
    written: list[FiledTable] = []
    position = 0
    for table in tables:
        out = io.BytesIO()
        table.write_ipc_stream(out, compression="lz4")
        data = out.getvalue()
        if len(data) < _MIN_FILE_BYTES:
            written.append(FiledTable(data, 0, len(data)))
            continue
        file = file or TableFile()
        _append(file, data)
        written.append(FiledTable(file, position, len(data)))
        position += len(data)
    return written


def _append(file: TableFile, data: bytes) -> None:
    try:
        file.path.parent.mkdir(parents=True, exist_ok=True)
        with file.path.open("ab") as opened:
            opened.write(data)
    except OSError as error:
        raise HyperplaneError(
            f"rows of an exchange cannot be written to {file.path}: {error.strerror}; free space "
            "there, or set Dask's temporary-directory, or local_directory of the workers, to a "
            "folder with more"
        ) from error


class JoinedTables(list[FiledTable]):
    """Tables in files that are one table together."""


def join_filed_tables(tables: Iterable[FiledTable | JoinedTables]) -> JoinedTables:
    """Join tables without loading them."""
    joined = JoinedTables()
    for table in tables:
        joined.extend(table if isinstance(table, JoinedTables) else [table])
    return joined


def load_tables(tables: Iterable[pl.DataFrame | FiledTable | JoinedTables]) -> list[pl.DataFrame]:
    """Return tables in memory, those in files loaded."""
    loaded: list[pl.DataFrame] = []
    for table in tables:
        if isinstance(table, JoinedTables):
            loaded += [each.load() for each in table]
        else:
            loaded.append(table.load() if isinstance(table, FiledTable) else table)
    return loaded
