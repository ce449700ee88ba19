"""A share of the rows of Parquet: the row groups that hold them, and of these the rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import polars as pl

from hyperplane.collections.frames.sources.parquet_partition import ParquetPartition, RowGroupRange
from hyperplane.shards.identity import Shard, rows_of


@dataclass(frozen=True)
class Rows(RowGroupRange):
    """Some rows of neighbouring row groups.

    Parameters
    ----------
    skip : int
        Rows of the first row group that are left out.
    """

    skip: int = 0

    @property
    def first_read(self) -> int:
        """Number of the first row of the row groups."""
        return self.start - self.skip

    def fetch(self, names: Collection[str]) -> pl.LazyFrame:
        """Some raw columns."""
        raw = super().fetch(names)
        # From the disk Polars takes these rows only; elsewhere row groups come whole.
        return (
            raw
            if self.file.store.local and not self.use_pyarrow
            else raw.slice(self.skip, self.rows)
        )


def share(parts: Sequence[ParquetPartition], shard: Shard) -> ParquetPartition | None:
    """The rows of one shard.

    Parameters
    ----------
    parts : sequence of ParquetPartition
        All files, divided into row groups.
    shard : Shard
        Which share.

    Returns
    -------
    ParquetPartition or None
        None when nothing is left for this shard.
    """
    pieces = [piece for part in parts for piece in part.pieces if piece.rows]
    first, last = rows_of(shard, sum(piece.rows for piece in pieces))
    mine: list[Rows] = []
    before = 0
    for piece in pieces:
        start, stop = max(first - before, 0), min(last - before, piece.rows)
        before += piece.rows
        if start < stop:
            mine.append(_rows(piece, start, stop))
            if len(mine) > 1 and _go_on(mine[-2], mine[-1]):
                one, other = mine[-2:]
                groups, rows = one.groups + other.groups, one.rows + other.rows
                mine[-2:] = [replace(one, groups=groups, rows=rows)]
    return replace(parts[0], pieces=tuple(mine)) if mine else None


def _rows(piece: RowGroupRange, start: int, stop: int) -> Rows:
    return Rows(
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


def _go_on(one: Rows, other: Rows) -> bool:
    return one.file is other.file and one.start + one.rows == other.start
