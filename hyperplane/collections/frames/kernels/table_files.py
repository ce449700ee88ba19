"""Tables in compressed files of a worker process, for exchanges of more rows than fit into memory.

A :class:`FiledTable` takes little memory. Dask moves it to another process like any result: it is
pickled as the bytes of the table, and written to a file of that process. So each replica has the
rows, and lost ones are computed again. A file is removed with the last table in it.
"""

from __future__ import annotations

import io
import os
import tempfile
import threading
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate, pairwise
from pathlib import Path
from typing import IO, Any
from weakref import WeakValueDictionary

import dask.config
import polars as pl

from hyperplane.collections.frames.kernels.concatenate import concat_tables
from hyperplane.core.dask_internals.workers import find_results_folder, keep_filed_results
from hyperplane.core.errors import HyperplaneError
from hyperplane.platforms.local.temporary_folders import TemporaryFolder

#: Bytes of the pieces of a table up to which they stay in memory: a file would take more time.
_MIN_FILE_BYTES = 1 << 16
#: Bytes of a file of received pieces after which the next one begins. A file is removed with the
#: last piece in it.
_MAX_RECEIVED_BYTES = 1 << 26


class TableFile:
    """A new file of this process, removed with the last reference to this object."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._folder = _find_folder()
        folder = self._folder.path if isinstance(self._folder, TemporaryFolder) else self._folder
        self.path = folder / f"hyperplane-table-{uuid.uuid4().hex}.arrow"
        self.remove = weakref.finalize(self, _remove_file, os.fspath(self.path), self._process)
        keep_filed_results(is_filed)

    @property
    def is_of_this_process(self) -> bool:
        """Whether this process was not forked after the file was created."""
        return self._process == os.getpid()


def _remove_file(path: str, process: int) -> None:
    if process != os.getpid():  # a fork, which ends or has dropped its copy of the table
        return
    with suppress(OSError):  # the nanny may have removed the folder
        Path(path).unlink()


#: Folders of this process that have files, by their parent and the process, which may be forked.
_folders: WeakValueDictionary[tuple[str, int], TemporaryFolder] = WeakValueDictionary()


def _find_folder() -> Path | TemporaryFolder:
    """Return the folder of the worker, or one of this process.

    The worker's nanny removes its folder if the worker is killed. Workers in one process share a
    folder, beside theirs. Without a worker it is in Dask's folder for temporary files.
    """
    found = find_results_folder()
    if found is not None and found.is_of_worker:
        return Path(found.path)
    parent = found.path if found else dask.config.get("temporary-directory", None)
    parent = os.fspath(parent or tempfile.gettempdir())
    key = (parent, os.getpid())
    folder = _folders.get(key)
    if folder is None:
        with _name_folder_in_errors(parent):
            # Another thread may have created one meanwhile, which is then used.
            folder = _folders.setdefault(key, TemporaryFolder(parent))
    return folder


class FiledTable:
    """A table as compressed Arrow data: a range of a file of this process, or bytes in memory.

    Parameters
    ----------
    content : bytes, TableFile or HyperplaneError
        The data, or the file with it, or why it could not be written.
    offset, length : int
        Position and number of bytes of the data in a file.
    movable : bool
        Whether it has the size of its data for Dask, which limits by size how many results move to
        another process at once. Others have the size of this object: they are not worth spilling.
    """

    def __init__(
        self,
        content: bytes | TableFile | HyperplaneError,
        offset: int,
        length: int,
        movable: bool = False,
    ) -> None:
        self._content, self._offset, self._length = content, offset, length
        self._movable = movable

    def make_movable(self) -> FiledTable:
        """Return the same table as a result that other processes need."""
        return FiledTable(self._content, self._offset, self._length, movable=True)

    @property
    def is_filed(self) -> bool:
        """Whether the data is in a file."""
        return isinstance(self._content, TableFile)

    def load(self) -> pl.DataFrame:
        """Return the table."""
        return pl.read_ipc_stream(io.BytesIO(self._read_bytes()))

    def _read_bytes(self) -> bytes:
        if isinstance(self._content, HyperplaneError):
            raise self._content
        if isinstance(self._content, bytes):
            return self._content
        with self._content.path.open("rb") as opened:
            opened.seek(self._offset)
            return opened.read(self._length)

    def __reduce__(self) -> Any:
        return _restore_table, (self._read_bytes(), self._movable)

    def __sizeof__(self) -> int:
        """Return the bytes, for Dask."""
        counts = self._movable or isinstance(self._content, bytes)
        return 200 + (self._length if counts else 0)


def _restore_table(data: bytes, movable: bool) -> FiledTable:
    """Return the table of pickled bytes, written to a file of this process.

    If that fails, the task that needs the table does: a worker would ask for a result that it
    cannot unpickle again and again.
    """
    try:
        file, offset = _received.append(data)
    except HyperplaneError as error:
        return FiledTable(error, 0, len(data), movable)
    return FiledTable(file, offset, len(data), movable)


class _ReceivedPieces:
    """File to which the pieces that this process receives are appended.

    Small pieces are written, too: an exchange has one of each pair of sender and receiver, and
    thousands of them took most of a worker's memory.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._file: weakref.ref[TableFile] | None = None
        self._length = 0

    def append(self, data: bytes) -> tuple[TableFile, int]:
        """Write a piece; return its file and its position in it."""
        with self._lock:
            file = self._file() if self._file is not None else None
            if file is None or self._length >= _MAX_RECEIVED_BYTES or not file.is_of_this_process:
                file = TableFile()
            self._file = None  # a file of which a part was written is not continued
            offset = _append(file, data)
            self._file, self._length = weakref.ref(file), offset + len(data)
            return file, offset


_received = _ReceivedPieces()


def write_tables(tables: Iterable[pl.DataFrame]) -> list[FiledTable]:
    """Write tables to one file, one after the other; they stay in memory if all are small.

    Raises
    ------
    HyperplaneError
        If the file cannot be written, for example because the disk is full.
    """
    remaining = iter(tables)
    held: list[FiledTable] = []
    size = 0
    for table in remaining:
        out = io.BytesIO()
        table.write_ipc_stream(out, compression="lz4")
        held.append(FiledTable(out.getvalue(), 0, out.tell()))
        size += out.tell()
        if size >= _MIN_FILE_BYTES:
            return _write_to_file(held, remaining)
    return held


def _write_to_file(held: Sequence[FiledTable], tables: Iterable[pl.DataFrame]) -> list[FiledTable]:
    """Write tables in memory, and others, to one file."""
    file = TableFile()
    _append(file, b"".join(each._read_bytes() for each in held))
    ends = list(accumulate(each._length for each in held))
    with _name_folder_in_errors(file.path), _open_to_append(file.path, 0) as opened:
        for table in tables:
            # Polars writes to the descriptor. Bytes of Python would stay in the memory of malloc.
            table.write_ipc_stream(opened, compression="lz4")
            ends.append(opened.tell())
    return [FiledTable(file, start, end - start) for start, end in pairwise([0, *ends])]


def _append(file: TableFile, data: bytes) -> int:
    """Append data to a file, and return its position there."""
    with _name_folder_in_errors(file.path):
        file.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _open_to_append(file.path) as opened:
            position = opened.tell()
            opened.write(data)
    return position


def _open_to_append(path: Path, buffering: int = -1) -> IO[bytes]:
    """Open a file, which only this user can read if it is created here."""
    return open(path, "ab", buffering, opener=lambda name, flags: os.open(name, flags, 0o600))


@contextmanager
def _name_folder_in_errors(path: str | Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = getattr(error, "strerror", None) or error
        raise HyperplaneError(
            f"rows of an exchange cannot be written to {path}: {reason}; free space "
            "there, or set Dask's temporary-directory, or local_directory of the workers, to a "
            "folder with more"
        ) from error


class JoinedTables(list[FiledTable | pl.DataFrame]):
    """Tables in files, or in memory, that are one table together."""


def is_filed(result: Any) -> bool:
    """Return whether the result of a task is a piece, or pieces, of a table in files."""
    # Only the first piece: those of a table are all in a file or all in memory. Lists in it are
    # not searched, and only known types are asked, because it may be any result of the user.
    piece = result[0] if type(result) is list and result else result
    if type(piece) is JoinedTables:
        return all(type(each) is FiledTable and each.is_filed for each in piece)
    return type(piece) is FiledTable and piece.is_filed


#: A piece of a table that was split.
Piece = FiledTable | JoinedTables | pl.DataFrame


def join_filed_tables(
    tables: Sequence[Piece], combine: Callable[[list[Any]], Any] | None = None
) -> JoinedTables | pl.DataFrame:
    """Join tables without loading them; with ``combine``, combine them if all are in memory."""
    if combine is not None and all(isinstance(table, pl.DataFrame) for table in tables):
        combined: pl.DataFrame = combine(list(tables))
        return combined
    joined = JoinedTables()
    for table in tables:
        joined.extend(table if isinstance(table, JoinedTables) else [table])
    return joined


def take_movable_piece(pieces: Sequence[Piece], number: int) -> Piece:
    """Return one piece of a table that was split, for a receiver in any process."""
    piece = pieces[number]
    if isinstance(piece, JoinedTables):
        return JoinedTables(
            table.make_movable() if isinstance(table, FiledTable) else table for table in piece
        )
    return piece.make_movable() if isinstance(piece, FiledTable) else piece


def concat_pieces(tables: Sequence[Any], number: int | None = None) -> pl.DataFrame:
    """Concatenate the pieces of a receiver, in their order; those in files are loaded.

    ``tables`` are the pieces; with a number, lists of pieces of which the receiver gets that one.
    """
    loaded: list[pl.DataFrame] = []
    positions: list[int] = []  # of the tables of the task, for errors
    for position, table in enumerate(tables):
        piece = table if number is None else table[number]
        for each in piece if isinstance(piece, JoinedTables) else [piece]:
            loaded.append(each.load() if isinstance(each, FiledTable) else each)
            positions.append(position)
    return concat_tables(loaded, positions)
