"""Joins by an exchange: rows of both sides with the same hash of keys are joined in one task.

The rows of frequent keys of either side are then divided among several tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import polars as pl
from dask.delayed import Delayed

from hyperplane.collections.frames import exchange_memory, frequent_keys, task_graph
from hyperplane.collections.frames.declared_cast import cast_to_declared
from hyperplane.collections.frames.frequent_keys import KeyCounts
from hyperplane.collections.frames.join_kinds import SELECTING, How
from hyperplane.collections.frames.join_sides import JoinSide, SideColumns
from hyperplane.collections.frames.kernels import polars_kernel as kernel
from hyperplane.collections.frames.kernels.concatenate import concat_tables
from hyperplane.collections.frames.kernels.joins import join_tables
from hyperplane.collections.frames.kernels.table_files import (
    FiledTable,
    Piece,
    concat_pieces,
    join_filed_tables,
    write_tables,
)
from hyperplane.collections.frames.task_errors import name_partition_in_errors
from hyperplane.formats.pandas_frames.column_names import unescape, unescape_columns


@dataclass(frozen=True)
class ExchangeJoin:
    """Keys of a join, and how its rows are exchanged."""

    keys: tuple[str, ...]
    how: How
    #: Number of tasks that receive rows.
    into: int
    #: Bytes of a table up to which its pieces stay in memory; None if all do.
    max_bytes: int | None

    def hash_keys(self, rows: pl.DataFrame) -> pl.Series:
        """Return the hashes of the keys of each row."""
        return kernel.hash_keys(rows, self.keys)

    def split_rows(self, rows: pl.DataFrame, receivers: pl.Series, in_files: bool) -> list[Piece]:
        """Return the rows of each receiver."""
        if not in_files:
            return list(kernel.split_by_number(rows, receivers, self.into))
        return list(write_tables(kernel.iterate_pieces(rows, receivers.to_numpy(), self.into)))

    def join_pieces(
        self,
        left: list[Any],
        left_number: int | None,
        right: list[Any],
        right_number: int | None,
        spread: pl.DataFrame,
        receiver: int,
    ) -> pl.DataFrame:
        """Join the rows that one task receives; ``spread`` has the frequent keys."""
        rows, others = concat_pieces(left, left_number), concat_pieces(right, right_number)
        of_right = spread.filter(~pl.col("is_left"))
        if self.how != "left" or not len(of_right):
            return join_tables(rows, others, self.keys, self.how)
        is_copy = frequent_keys.find_copies(self.hash_keys(rows), of_right, self.into, receiver)
        # Whether a row has a match is known where its hash sends it.
        results = [
            join_tables(rows.filter(~is_copy), others, self.keys, "left"),
            join_tables(rows.filter(is_copy), others, self.keys, "inner"),
        ]
        return concat_tables([result.select(results[0].columns) for result in results])


def plan_exchange(
    sides: tuple[JoinSide, JoinSide], keys: Sequence[str], how: How
) -> tuple[tuple[JoinSide, JoinSide], ExchangeJoin]:
    """Choose the number of receivers, and whether rows are exchanged through files."""
    known = [side.size for side in sides if side.size is not None]
    size = sum(known) if len(known) == len(sides) else None
    if size is not None and not exchange_memory.fits_in_memory(size):
        sides = sides[0].split_small(), sides[1].split_small()  # less memory for each task
    count = max(len(side.partitions) for side in sides)
    # A receiver holds its rows of both sides and the joined rows, which have all of their columns.
    held = None if size is None else 2 * size
    into = exchange_memory.choose_row_partition_count(count, held)
    max_bytes = exchange_memory.choose_max_bytes(count, size)
    return sides, ExchangeJoin(tuple(keys), how, into, max_bytes)


def exchange_sides(
    sides: tuple[JoinSide, JoinSide], join: ExchangeJoin, token: str
) -> list[list[Any]]:
    """Return the arguments of :meth:`ExchangeJoin.join_pieces` for each receiver."""
    split_sides = []
    for name, side in zip(("left", "right"), sides, strict=True):
        is_distinct = name == "right" and join.how in SELECTING
        arguments = [
            [partition, number, side.columns, join, is_distinct]
            for number, partition in enumerate(side.partitions)
        ]
        split_sides.append(task_graph.make_tasks(f"join-split-{name}", token, _split, arguments))
    counts = [
        task_graph.make_tasks(f"join-counts-{name}", token, _take_counts, [[t] for t in tables])
        for name, tables in zip(("left", "right"), split_sides, strict=True)
    ]
    (spread,) = task_graph.make_tasks("join-spread", token, _choose_spread_keys, [[*counts, join]])
    pieces = []
    for name, tables in zip(("left", "right"), split_sides, strict=True):
        arguments = [
            [table, spread, join, number, name == "left"] for number, table in enumerate(tables)
        ]
        tables = task_graph.make_tasks(f"join-spread-{name}", token, _spread_rows, arguments)
        pieces.append(_exchange(f"join-{name}", token, tables, join))
    return [
        [*one, *other, spread, receiver]
        for receiver, (one, other) in enumerate(zip(*pieces, strict=True))
    ]


def _exchange(
    name: str, token: str, tables: Sequence[Delayed], join: ExchangeJoin
) -> list[list[Any]]:
    """Return two arguments for each receiver, those of :func:`concat_pieces`."""
    if join.max_bytes is None:
        return task_graph.exchange_groups(name, token, tables, join.into)
    return task_graph.exchange_files(name, token, tables, join.into, concat_tables)


def read_rows(partition: Any, columns: SideColumns, keys: Sequence[str]) -> pl.DataFrame:
    """Return the rows of a partition; those of pandas are cast to the declared types first."""
    if isinstance(partition, pd.DataFrame):
        declared = unescape_columns(columns.like)
        partition = cast_to_declared(partition, declared, [unescape(key) for key in keys])
    return columns.open_rows(partition).collect()


@name_partition_in_errors
def _split(
    partition: Any, number: int, columns: SideColumns, join: ExchangeJoin, is_distinct: bool
) -> list[Any]:
    """Return the rows of each receiver by the hash of their keys, and the counts of the keys."""
    rows = read_rows(partition, columns, join.keys)
    if is_distinct:
        rows = rows.unique()
    hashes = join.hash_keys(rows)
    in_files = join.max_bytes is not None and rows.estimated_size() > join.max_bytes
    pieces = join.split_rows(rows, (hashes % join.into).cast(pl.UInt32), in_files)
    return [*pieces, frequent_keys.count_keys(hashes, join.into)]


def _take_counts(pieces: list[Any]) -> KeyCounts:
    counts: KeyCounts = pieces[-1]
    return counts


def _choose_spread_keys(
    left: list[KeyCounts], right: list[KeyCounts], join: ExchangeJoin
) -> pl.DataFrame:
    # Of a semi or anti join, the keys of the right side are distinct.
    return frequent_keys.choose_spread_keys(left, [] if join.how in SELECTING else right, join.into)


def _spread_rows(
    pieces: list[Any], spread: pl.DataFrame, join: ExchangeJoin, number: int, is_left: bool
) -> list[Piece]:
    """Return the pieces of a table with the rows of frequent keys at their receivers."""
    result: list[Piece] = pieces[:-1]
    moved = []
    for home in frequent_keys.find_homes(spread, join.into):
        rows = concat_pieces([result[home]])
        is_frequent = join.hash_keys(rows).is_in(spread.get_column("hash").implode())
        if is_frequent.any():
            moved.append(rows.filter(is_frequent))
            rest = rows.filter(~is_frequent)
            in_files = isinstance(result[home], FiledTable)
            result[home] = write_tables([rest])[0] if in_files else rest
    if not moved:
        return result
    rows, receivers = _choose_receivers(concat_tables(moved), spread, join, number, is_left)
    in_files = any(isinstance(piece, FiledTable) for piece in result)
    added = join.split_rows(rows, receivers, in_files)
    return [
        join_filed_tables([piece, more], concat_tables)
        for piece, more in zip(result, added, strict=True)
    ]


def _choose_receivers(
    rows: pl.DataFrame, spread: pl.DataFrame, join: ExchangeJoin, number: int, is_left: bool
) -> tuple[pl.DataFrame, pl.Series]:
    """Return rows of frequent keys, with copies, and the receiver of each."""
    hashes = join.hash_keys(rows)
    is_of_side = pl.col("is_left") == is_left
    own, others = spread.filter(is_of_side), spread.filter(~is_of_side)
    is_own = hashes.is_in(own.get_column("hash").implode())
    divided = rows.filter(is_own)
    # A left join finds out at the home of a key whether it has a match.
    keys = join.keys if join.how == "left" and not is_left else None
    divided_hashes = hashes.filter(is_own)
    receivers = frequent_keys.spread_rows(divided, divided_hashes, own, join.into, number, keys)
    copied = rows.filter(~is_own)
    positions, more = frequent_keys.copy_rows(hashes.filter(~is_own), others, join.into)
    return concat_tables([divided, copied[positions]]), pl.concat([receivers, more])
