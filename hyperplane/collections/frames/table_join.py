"""Joins of collections of any size in Polars: a small side for all tasks, or an exchange."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import dask.dataframe as dd
import pandas as pd
import polars as pl
from dask.tokenize import tokenize

from hyperplane.collections.frames import task_graph
from hyperplane.collections.frames.exchange_join import exchange_sides, plan_exchange, read_rows
from hyperplane.collections.frames.finalize import build_collection
from hyperplane.collections.frames.helper_steps import JOIN, KeyedTable, register_join
from hyperplane.collections.frames.join_kinds import SELECTING, How
from hyperplane.collections.frames.join_sides import JoinSide, SideColumns, open_side
from hyperplane.collections.frames.kernels.concatenate import concat_tables
from hyperplane.collections.frames.kernels.joins import join_tables
from hyperplane.collections.frames.small_side import get_max_small_side
from hyperplane.collections.frames.task_errors import name_partition_in_errors
from hyperplane.collections.frames.typed_partitions import register_tables
from hyperplane.formats.pandas_frames.column_names import escape_all, escape_columns, unescape
from hyperplane.formats.pandas_frames.to_pandas import columns_to_pandas
from hyperplane.formats.pandas_frames.typed_table import TypedTable

#: How many times the bytes of both sides all tasks together may read of a small side, of which each
#: task builds a hash table: with three times the bytes, an exchange took as long. Less than the
#: minimum takes less time than the tasks of an exchange.
_MAX_REPEATED, _MIN_REPEATED_BYTES = 2, 50 * 10**6


def join_as_tables(
    left: dd.DataFrame,
    right: dd.DataFrame,
    like: pd.DataFrame,
    keys: Sequence[str],
    how: How,
    suffixes: tuple[str, str],
) -> dd.DataFrame:
    """Join two collections like ``left.merge(right, on=keys, how=how)``.

    ``like`` is the empty frame of the result. The types of both sides are those of
    :func:`can_join_tables`. For a semi or anti join, ``right`` has the keys only.
    """
    sides = (
        open_side(left, suffixes[0], right, keys),
        open_side(right, suffixes[1], left, keys),
    )
    like, keys = escape_columns(like), escape_all(keys)
    token = tokenize(sides[0].token, sides[1].token, list(like.columns), keys, how)
    small = _choose_small_side(sides, how)
    if small is not None:
        arguments = _broadcast(sides, small, keys, how, token)
        build: Any = partial(_build, _join_partition, like=like)
    else:
        sides, exchange = plan_exchange(sides, keys, how)
        token = tokenize(token, exchange)
        arguments = exchange_sides(sides, exchange, token)
        build = partial(_build, exchange.join_pieces, like=like)
    results = task_graph.make_tasks("join", token, partial(_to_pandas, build), arguments)
    result = build_collection(results, like, "join")
    register_tables(
        result, like, lambda: task_graph.make_tasks("join-table", token, build, arguments)
    )
    names = tuple(unescape(key) for key in keys)
    is_divided = small is None
    tables = [KeyedTable(JOIN, side.expr, names, 0, is_divided) for side in (left, right)]
    register_join(result, tables, suffixes, common=names, selects=how in SELECTING)
    return result


def _choose_small_side(sides: tuple[JoinSide, JoinSide], how: How) -> int | None:
    """Return the number of the side that all tasks get; None if both sides are exchanged."""
    if len(sides[1].partitions) == 1:
        return 1
    candidates = [1, 0] if how == "inner" else [1]
    sizes = {number: sides[number].size for number in candidates}
    known = [(size, number) for number, size in sizes.items() if size is not None]
    if not known:
        return None
    size, small = min(known)
    limit = get_max_small_side()
    other = sides[1 - small]
    repeated = limit if other.size is None else _MAX_REPEATED * (size + other.size)
    is_repeated = size * len(other.partitions) > max(_MIN_REPEATED_BYTES, repeated)
    return None if size > limit or is_repeated else small


def _broadcast(
    sides: tuple[JoinSide, JoinSide], small: int, keys: Sequence[str], how: How, token: str
) -> list[list[Any]]:
    """Return the arguments of the tasks that join a partition to the whole small side."""
    side, other = sides[small], sides[1 - small]
    arguments = [
        [partition, number, side.columns, keys, how]
        for number, partition in enumerate(side.partitions)
    ]
    tables = task_graph.make_tasks("join-small", f"{token}-small", _read_small, arguments)
    if len(tables) > 1:
        tables = task_graph.reduce_tree("join-merge", token, concat_tables, tables)
        merge = partial(_merge_small, how=how)
        tables = task_graph.make_tasks("join-small-side", token, merge, [[tables]])
    return [
        [partition, number, tables[0], other.columns, keys, how, small == 0]
        for number, partition in enumerate(other.partitions)
    ]


@name_partition_in_errors
def _read_small(
    partition: Any, number: int, columns: SideColumns, keys: Sequence[str], how: How
) -> pl.DataFrame:
    rows = read_rows(partition, columns, keys)
    return rows.unique() if how in SELECTING else rows


def _merge_small(tables: list[pl.DataFrame], how: How) -> pl.DataFrame:
    rows = concat_tables(tables)
    return rows.unique() if how in SELECTING else rows


@name_partition_in_errors
def _join_partition(
    partition: Any,
    number: int,
    small: pl.DataFrame,
    columns: SideColumns,
    keys: Sequence[str],
    how: How,
    is_left_small: bool,
) -> pl.DataFrame:
    """Join a partition of one side to all rows of the other."""
    rows = read_rows(partition, columns, keys)
    left, right = (small, rows) if is_left_small else (rows, small)
    return join_tables(left, right, keys, how, ordered=not is_left_small)


def _build(join: Any, *arguments: Any, like: pd.DataFrame) -> TypedTable:
    """Return the joined rows of a task as a Polars table, in the order of the columns."""
    return TypedTable(join(*arguments).select(like.columns), like)


def _to_pandas(build: Any, *arguments: Any) -> pd.DataFrame:
    """Return the rows of a task as a pandas frame."""
    table: TypedTable = build(*arguments)
    # To save memory, each column is released once it is converted.
    columns = (table.frame.drop_in_place(str(name)) for name in table.like.columns)
    return columns_to_pandas(columns, table.like, table.frame.height)
