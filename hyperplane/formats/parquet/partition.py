"""Parquet partitions: row groups scanned by Polars, or read by pyarrow where it cannot."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import polars as pl
from pyarrow import parquet

from hyperplane.formats.column_mapping import ColumnMapping
from hyperplane.formats.file_changes import check_local_size, check_opened_size
from hyperplane.formats.file_partition import FilePartition
from hyperplane.formats.filters import Filters, list_filter_columns
from hyperplane.formats.parquet.index_ranges import IndexRange
from hyperplane.formats.partition_sizes import WHOLE_FILES, find_shard_bounds
from hyperplane.formats.partitions import Bounds
from hyperplane.formats.polars_frames import columns
from hyperplane.formats.request import OnError
from hyperplane.objectstore.locations import File


@dataclass(frozen=True)
class RowGroupRange:
    """Consecutive row groups of one file.

    Parameters
    ----------
    file : File
        The file.
    groups : tuple of int
        Their indexes.
    start, rows : int
        First row within the file, and number of rows.
    whole : bool
        Whether these are all rows of the file.
    schema_id : int, optional
        Identifies the schema of the file; files of the same schema can be scanned together.
    mapping : ColumnMapping
        Converts columns of the file to those of the data set.
    use_pyarrow : bool
        Whether pyarrow reads the file even from a local disk, because Polars cannot open it.
    index : IndexRange, optional
        A requested index that is computed from row numbers.
    """

    file: File
    groups: tuple[int, ...]
    start: int
    rows: int
    whole: bool
    schema_id: int | None
    mapping: ColumnMapping
    use_pyarrow: bool = False
    index: IndexRange | None = None

    @property
    def urls(self) -> tuple[str, ...]:
        """The URL of the file, for messages."""
        return (self.file.url,)

    @property
    def scan_key(self) -> Any:
        """Key that is equal for row groups that one scan can read."""
        alike = self.whole and self.schema_id is not None and self.index is None
        return (self.schema_id, self.mapping) if alike else self

    @property
    def first_read(self) -> int:
        """Number of the first row that is read, within the file."""
        return self.start

    def scan(self) -> pl.LazyFrame:
        """Return a lazy frame of the columns of the file, on a local disk."""
        check_local_size(self.file)
        raw = pl.scan_parquet(self.file.path, glob=False, hive_partitioning=False)
        rows = raw if self.whole else raw.slice(self.start, self.rows)
        return rows if self.index is None else self.index.add_to(rows, self.start)

    @property
    def identity(self) -> Any:
        """Identifies the row groups within the file, for a token."""
        return self.groups

    def __str__(self) -> str:
        return f"{self.file.url}{list(self.groups)}"

    def fetch(self, names: Collection[str]) -> pl.LazyFrame:
        """Read some columns of the file, and no other data, from any file system."""
        if self.file.store.local and not self.use_pyarrow:
            return self.scan().select(columns(names))
        check_local_size(self.file)
        with self.file.store.system.open(self.file.path, "rb", cache_type="none") as opened:
            check_opened_size(self.file, opened)
            reader = parquet.ParquetFile(opened, pre_buffer=True)
            stored = [name for name in names if self.index is None or name != self.index.name]
            table = reader.read_row_groups(self.groups, columns=stored, use_threads=False)
        if self.index is not None:
            table = self.index.append_to(table, self.first_read)
        loaded = pl.from_arrow(table)
        frame = loaded if isinstance(loaded, pl.DataFrame) else loaded.to_frame()
        frame.columns = table.column_names  # Polars renames columns with empty names
        return frame.lazy()


@dataclass(frozen=True, repr=False)
class ParquetPartition(FilePartition):
    """A partition of Parquet row groups.

    Parameters
    ----------
    pieces : tuple of RowGroupRange
        In the order of the rows.
    filters : Filters
        Row filters.
    nbytes : int
        Estimated bytes in memory of the requested columns, before filters.
    on_error : {"raise", "skip"}
        Whether a damaged file is an error or left out.
    known : mapping of str to Bounds
        Minimum and maximum of columns; not pickled.
    column_sizes : mapping of str to int
        Estimated bytes in memory of each requested column and of those of the filters; not
        pickled.
    partition_size : int
        Bytes in memory that a partition should have at most.
    """

    pieces: tuple[RowGroupRange, ...]
    filters: Filters
    nbytes: int
    on_error: OnError = "raise"
    known: Mapping[str, Bounds] = field(default_factory=dict, compare=False, repr=False)
    column_sizes: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)
    partition_size: int = field(default=WHOLE_FILES, compare=False, repr=False)

    @property
    def slices(self) -> tuple[RowGroupRange, ...]:
        """The row groups, as ranges."""
        return self.pieces

    @property
    def rows(self) -> int:
        """Number of rows before filters."""
        return sum(piece.rows for piece in self.pieces)

    @property
    def is_read_by_python(self) -> bool:
        """Whether a scan reads whole row groups in Python, instead of the rows that it needs."""
        is_local = self.pieces[0].file.store.local
        return (
            self.on_error == "skip"
            or not is_local
            or any(piece.use_pyarrow for piece in self.pieces)
        )

    def scan(self, where: pl.Expr | None = None) -> pl.LazyFrame:
        """Return the filtered rows as a lazy frame that reads only the needed columns."""
        if self.is_read_by_python:
            return super().scan(where)
        runs = groupby(self.pieces, key=lambda piece: piece.scan_key)
        frames = [_scan_files(list(run)) for _, run in runs]
        frames_read = [mapping.apply(raw, self.filters, where=where) for raw, mapping in frames]
        return frames_read[0] if len(frames_read) == 1 else pl.concat(frames_read)

    def collect(self, names: Sequence[str]) -> pl.DataFrame:
        """Read some columns of the filtered rows."""
        if self.is_read_by_python:
            return super().collect(names)
        return self.scan().select(columns(names)).collect()

    def bounds(self, column: str) -> Bounds | None:
        """Return minimum and maximum of a column of times or integers, before filters.

        None if unknown, and always on a worker, because the bounds are not pickled.
        """
        return self.known.get(column)

    def estimate_columns(self, columns: Collection[str]) -> int | None:
        """Return the bytes in memory of some columns and those of the filters, before filters."""
        needed = {*columns, *list_filter_columns(self.filters)}
        if not needed <= self.column_sizes.keys():
            return None
        return sum(self.column_sizes[name] for name in needed)

    def merge(self, others: Sequence[ParquetPartition]) -> ParquetPartition:
        """Return a partition of these row groups and those of the partitions that follow it."""
        parts = (self, *others)
        bounds = {
            name: [part.known[name] for part in parts]
            for name in self.known
            if all(name in part.known for part in others)
        }
        return replace(
            self,
            pieces=tuple(piece for part in parts for piece in part.pieces),
            nbytes=sum(part.nbytes for part in parts),
            known={
                name: (min(low for low, _ in each), max(high for _, high in each))
                for name, each in bounds.items()
            },
            column_sizes={
                name: sum(part.column_sizes[name] for part in parts) for name in self.column_sizes
            },
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "known": {}, "column_sizes": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def _scan_files(pieces: list[RowGroupRange]) -> tuple[pl.LazyFrame, ColumnMapping]:
    """Return one scan of whole files of the same schema, and their column mapping."""
    if len(pieces) == 1:
        return pieces[0].scan(), pieces[0].mapping
    for piece in pieces:
        check_local_size(piece.file)
    paths = [piece.file.path for piece in pieces]
    raw = pl.scan_parquet(paths, glob=False, hive_partitioning=False)
    return raw, pieces[0].mapping


@dataclass(frozen=True)
class ParquetRowRange(RowGroupRange):
    """A range of rows within adjacent row groups.

    Parameters
    ----------
    skip : int
        Rows of the first row group before the range.
    """

    skip: int = 0

    @property
    def first_read(self) -> int:
        """Number of the first row of the row groups."""
        return self.start - self.skip

    @property
    def identity(self) -> Any:
        """Identifies the rows within the file, for a token."""
        return (self.groups, self.start, self.rows)

    def fetch(self, names: Collection[str]) -> pl.LazyFrame:
        """Return some columns of the range, as they are in the file."""
        raw = super().fetch(names)
        # From local disk Polars reads only these rows; from a store, whole row groups.
        return (
            raw
            if self.file.store.local and not self.use_pyarrow
            else raw.slice(self.skip, self.rows)
        )


def select_rows(
    parts: Sequence[ParquetPartition], index: int, count: int
) -> ParquetPartition | None:
    """Return the rows of one of ``count`` shards; None if it has none.

    ``parts`` are all files, divided into row groups.
    """
    pieces = [piece for part in parts for piece in part.pieces if piece.rows]
    first, last = find_shard_bounds(index, count, sum(piece.rows for piece in pieces))
    selected: list[ParquetRowRange] = []
    before = 0
    for piece in pieces:
        start, stop = max(first - before, 0), min(last - before, piece.rows)
        before += piece.rows
        if start < stop:
            selected.append(_slice_piece(piece, start, stop))
            if len(selected) > 1 and _is_adjacent(selected[-2], selected[-1]):
                first_range, next_range = selected[-2:]
                groups, rows = (
                    first_range.groups + next_range.groups,
                    first_range.rows + next_range.rows,
                )
                selected[-2:] = [replace(first_range, groups=groups, rows=rows)]
    return replace(parts[0], pieces=tuple(selected)) if selected else None


def _slice_piece(piece: RowGroupRange, start: int, stop: int) -> ParquetRowRange:
    """Return rows ``start`` to before ``stop`` of a piece."""
    return ParquetRowRange(
        piece.file,
        piece.groups,
        piece.start + start,
        stop - start,
        whole=False,
        schema_id=None,
        mapping=piece.mapping,
        use_pyarrow=piece.use_pyarrow,
        index=piece.index,
        skip=start,
    )


def _is_adjacent(first: ParquetRowRange, second: ParquetRowRange) -> bool:
    """Return whether one range ends where the other begins, in the same file."""
    return first.file is second.file and first.start + first.rows == second.start
