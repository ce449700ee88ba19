"""``JoinedPartition``: a partition joined to a small right side when it is scanned."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import polars as pl
from dask.tokenize import tokenize

from hyperplane.collections.frames.join_kinds import SELECTING, How
from hyperplane.collections.frames.kernels.indexed_table import IndexedTable
from hyperplane.collections.frames.kernels.key_index import NumberIndex
from hyperplane.collections.frames.kernels.table_copies import dump_table, load_table
from hyperplane.collections.frames.shared_tables import SHARED_TABLES
from hyperplane.formats.pandas_frames.column_names import escape
from hyperplane.formats.partition_sizes import WHOLE_FILES, estimate_columns
from hyperplane.formats.partitions import Bounds, ScannablePartition
from hyperplane.formats.polars_frames import columns
from hyperplane.formats.read_errors import get_current_worker
from hyperplane.platforms.local.shared_objects import build_or_map

Names = tuple[tuple[str, str], ...]
#: Maximum joined rows in memory for each row of the left side, unless all of them are the result.
_MAX_MATCHES_IN_MEMORY = 2
#: Bytes of all columns from which other processes of the machine map a right side in place of
#: reading it.
_MIN_SHARED_BYTES = 16 * 10**6


@dataclass(frozen=True, repr=False)
class JoinedPartition:
    """A partition of the left side, joined to a small right side when it is scanned.

    Each worker process has the right side once for all of its partitions. One of those on the same
    machine reads and indexes it, and the others map it.
    """

    left: ScannablePartition
    right: tuple[ScannablePartition, ...]
    left_where: Any
    right_where: Any
    on: tuple[str, ...]
    how: How
    left_names: Names
    right_names: Names

    @property
    def rows(self) -> int | None:
        """None, because the number of rows is not known before the join."""
        return None

    @property
    def nbytes(self) -> int | None:
        """Bytes of the left side, an estimate: the size is not known before the join."""
        return self.left.nbytes

    @property
    def urls(self) -> Any:
        """Files of both sides, for error messages."""
        partitions: Any = (self.left, *self.right)
        return list(dict.fromkeys(url for partition in partitions for url in partition.urls))

    def scan(self, where: pl.Expr | None = None) -> pl.LazyFrame:
        """Return the joined rows, in the order of the left side."""
        left, is_left = self.scan_left(), False
        if where is not None and {*where.meta.root_names()} <= {new for _, new in self.left_names}:
            left, is_left = left.filter(where), True
        rows = self.join_right(left, maintain_order="left_right")
        return rows if where is None or is_left else rows.filter(where)

    def collect(self, names: Sequence[str]) -> pl.DataFrame:
        """Return some columns of the joined rows."""
        part = self.select_columns(names)
        # The result has all joined rows, also if the rows of the left side have several matches.
        joined = part.join_right(part.scan_left(), "left_right", repeats_rows=True)
        return joined.select(columns(names)).collect()

    def scan_left(self) -> pl.LazyFrame:
        """Return the rows of the left side, with the names of the joined columns.

        Before an inner or semi join, rows outside the range of the right side's keys are left out:
        row groups of a file in the order of the key are not read.
        """
        where = self.left_where
        for key in self.on if self.how in ("inner", "semi") else ():
            bounds = _make_bounds_filter(key, self._read_right())
            if bounds is not None:
                where = bounds if where is None else where & bounds
        left = self.left.scan(where)
        return left.select(pl.col(old).alias(new) for old, new in self.left_names)

    def join_right(
        self,
        left: pl.LazyFrame,
        maintain_order: Literal["none", "left_right"] = "none",
        *,
        repeats_rows: bool = False,
    ) -> pl.LazyFrame:
        """Return rows with the keys and columns of the left side, joined to the right side.

        They are in memory if the right side has an index of its keys and, without
        ``repeats_rows``, they are not many more than those of the left side.
        """
        right = self._read_right()
        if right.has_index_for(left):
            rows = left.collect()
            max_rows = None if repeats_rows else _MAX_MATCHES_IN_MEMORY * rows.height
            joined = right.join(rows, self.how, max_rows)
            if joined is not None:
                return joined.lazy()
            left = rows.lazy()
        return left.join(
            right.table.lazy(),
            on=list(self.on),
            how=self.how,
            nulls_equal=True,  # as in pandas.merge
            maintain_order=maintain_order,
        )

    def select_columns(self, names: Collection[str]) -> JoinedPartition:
        """Return this partition with some columns and the keys only."""
        needed = {*names, *self.on}
        left, right = (
            tuple(pair for pair in pairs if pair[1] in needed)
            for pairs in (self.left_names, self.right_names)
        )
        return replace(
            self,
            left=_select_columns(self.left, left, self.left_where),
            right=tuple(_select_columns(part, right, self.right_where) for part in self.right),
            left_names=left,
            right_names=right,
        )

    def _read_right(self) -> IndexedTable:
        """Return the columns of the right side, read and indexed once per process."""
        is_unique = self.how in SELECTING
        where = _serialize(self.right_where)
        key = tokenize(self.right, where, self.right_names, is_unique, self.on)
        return SHARED_TABLES.get(key, partial(self._share_right, key))

    def _share_right(self, key: str) -> IndexedTable:
        """Return the right side, read and indexed once by the workers of this machine."""
        worker = get_current_worker()
        size = sum(part.nbytes or 0 for part in self.right)
        if worker is None or size < _MIN_SHARED_BYTES:
            return self._collect_right()
        name = tokenize(key, worker.scheduler.address)
        return build_or_map(name, self._collect_right, dump_table, load_table)

    def _collect_right(self) -> IndexedTable:
        right = pl.concat([part.scan(self.right_where) for part in self.right])
        selected = right.select(pl.col(old).alias(new) for old, new in self.right_names)
        if self.how in SELECTING:
            selected = selected.unique()
        return IndexedTable.build(selected.collect(engine="streaming"), self.on)

    def bounds(self, column: str) -> Bounds | None:
        """Return the bounds of a left column; None for columns of the right side."""
        old = {new: old for old, new in self.left_names}.get(column)
        return None if old is None else self.left.bounds(old)

    @property
    def partition_size(self) -> int:
        """Bytes in memory that a partition should have at most."""
        return getattr(self.left, "partition_size", WHOLE_FILES)

    def estimate_columns(self, columns: Collection[str]) -> int | None:
        """Return the bytes of some columns of the joined rows, an estimate; None if unknown.

        Each row of the left side is counted with one of the right side, if that has columns of the
        result.
        """
        sizes = []
        for parts, names, where in (
            ([self.left], self.left_names, self.left_where),
            (self.right, self.right_names, self.right_where),
        ):
            needed = {old for old, new in names if new in columns} | {*self.on}
            needed |= set() if where is None else {*where.meta.root_names()}
            sizes.append(estimate_columns(parts, needed))
        left, right = sizes
        rows, right_rows = self.left.rows, [part.rows or 0 for part in self.right]
        if left is None or right is None or rows is None:
            return None
        added = 0 if self.how in SELECTING else sum(right)
        return sum(left) + added * rows // max(1, sum(right_rows))

    def merge(self, others: Sequence[JoinedPartition]) -> JoinedPartition:
        """Return a partition of these rows and those of the partitions that follow it."""
        left: Any = self.left
        return replace(self, left=left.merge([other.left for other in others]))

    def __repr__(self) -> str:
        return f"JoinedPartition({self.left!r})"

    def __dask_tokenize__(self) -> Any:
        return (
            self.left,
            self.right,
            [_serialize(where) for where in (self.left_where, self.right_where)],
            self.on,
            self.how,
            self.left_names,
            self.right_names,
        )


def select_partition_columns(part: Any, names: Collection[str]) -> Any:
    """Return a partition that reads some columns only, if it would not find out by itself."""
    return part.select_columns(names) if isinstance(part, JoinedPartition) else part


def _select_columns(part: Any, names: Names, where: pl.Expr | None) -> Any:
    """Return a partition of one side with the columns that are needed of it."""
    filtered = [] if where is None else where.meta.root_names()
    return select_partition_columns(part, {*(old for old, _ in names), *filtered})


def _make_bounds_filter(key: str, right: IndexedTable) -> pl.Expr | None:
    """Return the filter of the range of a right key; None if it is unknown or costs too much.

    Comparing text costs as much as the join, and ranges of text are rarely narrow.
    """
    values = right.table.get_column(key)
    is_ordered = values.dtype.is_integer() or values.dtype in (pl.Date, pl.Datetime)
    if not is_ordered or not len(values) or escape(key) != key:
        return None
    if values.null_count() == len(values):
        return pl.col(key).is_null()
    # Literals of Python's times would lose nanoseconds.
    numbers = values.to_physical()
    index = right.index  # has the bounds of its only key
    indexed = (index.first, index.last) if isinstance(index, NumberIndex) else None
    first, last = (
        pl.lit(bound, numbers.dtype).cast(values.dtype)
        for bound in indexed or (numbers.min(), numbers.max())
    )
    inside = pl.col(key).is_between(first, last)
    return inside | pl.col(key).is_null() if values.null_count() else inside


def _serialize(where: pl.Expr | None) -> bytes | None:
    """Return the bytes of a filter; its text would leave out the values of an ``isin``."""
    return None if where is None else where.meta.serialize()
