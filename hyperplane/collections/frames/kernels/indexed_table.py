"""A table with an index of one key, for joins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from hyperplane.collections.frames.join_kinds import SELECTING, How
from hyperplane.collections.frames.kernels.key_index import (
    Array,
    NumberIndex,
    TextIndex,
    build_index,
)


@dataclass(frozen=True, eq=False)
class IndexedTable:
    """Right side of a join, and the index of its key; None if it has none."""

    table: pl.DataFrame
    key: str
    index: NumberIndex | TextIndex | None

    @classmethod
    def build(cls, table: pl.DataFrame, keys: Sequence[str]) -> IndexedTable:
        """Index a table by its key, if it is the only one and an index is faster than a hash."""
        if len(keys) != 1:
            return cls(table, keys[0], None)
        key = table.get_column(keys[0]).rechunk()
        index = build_index(key)
        # Rows are gathered faster from one chunk; but Polars' hash join of text took twice the time
        # with one chunk than with several.
        if index is not None and table.n_chunks() > 1:
            columns = table.with_columns(key).iter_columns()
            table = pl.DataFrame([column.rechunk() for column in columns])
        return cls(table, keys[0], index)

    def estimated_size(self) -> int:
        """Return the bytes in memory."""
        size = int(self.table.estimated_size())
        return size if self.index is None else size + self.index.estimated_size()

    def has_index_for(self, left: pl.LazyFrame) -> bool:
        """Return whether there is an index of the type of the left side's key."""
        if self.index is None:
            return False
        return bool(left.collect_schema()[self.key] == self.table.schema[self.key])

    def join(
        self, left: pl.DataFrame, how: How, max_rows: int | None = None
    ) -> pl.DataFrame | None:
        """Join a table to this one, in the order of its rows and then of the rows of this table.

        None if the joined rows may be more than ``max_rows``.
        """
        if self.index is None:
            return None
        is_selecting = how in SELECTING
        matches = self.index.match(
            left.get_column(self.key),
            keep_unmatched=how == "left" or is_selecting,
            max_rows=max_rows,
        )
        if matches is None:
            return None
        rows, others = matches.left, matches.right
        if is_selecting:
            has_match = others >= 0
            if rows is not None:
                matched, has_match = rows[has_match], np.zeros(left.height, bool)
                has_match[matched] = True
            return left.filter(pl.Series(has_match if how == "semi" else ~has_match))
        if rows is not None:
            left = _gather(left.rechunk(), rows)  # gathers from several chunks took 4 times as long
        added = self.table.drop(self.key)
        return left.hstack(_gather(added, others)) if added.width else left


def _gather(table: pl.DataFrame, rows: Array) -> pl.DataFrame:
    """Return rows of a table; nulls for -1."""
    positions = pl.Series("row", rows.view(np.uint32))  # the type that Polars does not convert
    if rows.size and rows.min() < 0:
        present = pl.when(pl.col("row") < 2**31).then(pl.col("row"))
        positions = positions.to_frame().select(present).to_series()
    return table.select(pl.all().gather(positions))
