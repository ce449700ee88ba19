"""Row groups, and the rows in them, of one shard."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import polars as pl

from hyperplane.formats.parquet.partition import ParquetPartition, RowGroupRange
from hyperplane.formats.partition_sizes import shard_bounds


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

    def fetch(self, names: Collection[str]) -> pl.LazyFrame:
        """Return raw columns."""
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
    first, last = shard_bounds(index, count, sum(piece.rows for piece in pieces))
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


def _is_adjacent(one: ParquetRowRange, other: ParquetRowRange) -> bool:
    """Return whether one range ends where the other begins, in the same file."""
    return one.file is other.file and one.start + one.rows == other.start
