"""``join_asof``: each row with the nearest earlier or later row of another table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import dask.dataframe as dd
import pandas as pd
import polars as pl
from dask.delayed import Delayed
from dask.tokenize import tokenize

from hyperplane.collections.frames import exchange_memory, small_side, task_graph
from hyperplane.collections.frames.arguments import collect_faults, list_names
from hyperplane.collections.frames.asof_arguments import (
    DIRECTIONS,
    find_asof_type_faults,
    parse_tolerance,
)
from hyperplane.collections.frames.finalize import build_collection
from hyperplane.collections.frames.helper_steps import JOIN, KeyedTable, register_join
from hyperplane.collections.frames.join_arguments import (
    are_suffixes,
    find_name_clash_faults,
    find_side_faults,
    open_sides,
)
from hyperplane.collections.frames.join_sides import JoinSide, SideColumns, open_side
from hyperplane.collections.frames.kernels import asof
from hyperplane.collections.frames.kernels.asof import AsofMatch, Direction, SortedSide
from hyperplane.collections.frames.kernels.concatenate import concat_tables
from hyperplane.collections.frames.kernels.table_files import concat_pieces
from hyperplane.collections.frames.shuffle_join import make_nullable
from hyperplane.collections.frames.source_collection import Frame
from hyperplane.collections.frames.task_errors import name_partition_in_errors
from hyperplane.collections.frames.typed_partitions import register_tables
from hyperplane.core.argument_checks import find_flag_faults, is_one_of
from hyperplane.core.errors import Fault, HyperplaneError, check
from hyperplane.core.public_calls import check_call
from hyperplane.core.units import round_bytes
from hyperplane.formats.pandas_frames.column_names import escape_all, unescape
from hyperplane.formats.pandas_frames.typed_table import TypedTable

_LARGE_ADVICE = (
    "pass by=..., so that both sides are exchanged by these keys, or select fewer rows and columns "
    "of right"
)


@check_call
def join_asof(
    left: Frame,
    right: Frame,
    on: str,
    by: str | Sequence[str] | None = None,
    *,
    direction: Direction = "backward",
    tolerance: Any = None,
    allow_exact_matches: bool = True,
    suffixes: tuple[str, str] = ("_x", "_y"),
) -> dd.DataFrame:
    """Join each row with the nearest earlier or later row of another table.

    Returns the rows of ``pandas.merge_asof``, such as for each trade the last quote before it.
    Neither side must be sorted, and values of ``on`` may be missing. A right side of up to 250 MB
    (250·10^6 bytes) in memory is sorted once and sent to each worker process; a larger one, or one
    of unknown size, is exchanged with the left side by the keys ``by``, through compressed files
    if both take more than a quarter of the cluster's memory.

    Parameters
    ----------
    left, right : dask.dataframe.DataFrame, URL or list of URLs
        The rows. URLs are read with :func:`read`.
    on : str
        Column of both sides of times or numbers, of one type.
    by : str or list of str, optional
        Columns of both sides that must be equal. Missing values are equal to each other.
    direction : {"backward", "forward", "nearest"}
        Whether the row of the right side is the last one with a smaller or equal value, the first
        one with a larger or equal value, or the nearer of both; of two equally near rows, the one
        with the smaller value.
    tolerance : str, timedelta or number, optional
        Maximum difference of the values, inclusive: such as ``"5min"`` or a timedelta for times,
        and a number for numbers. Other rows have no match.
    allow_exact_matches : bool
        Whether a row with an equal value is a match.
    suffixes : (str, str)
        Suffixes for other columns that both sides have; one of them may be ``""``.

    Returns
    -------
    dask.dataframe.DataFrame
        Lazy. Each row of the left side once, without values of the right side if it has no match.
        Rows are in the order of the left side, unless they are exchanged. Integer and boolean
        columns of the right side have a nullable type.

    Raises
    ------
    RequestError
        With every invalid argument, and without ``by`` for a right side of more than 250 MB.
    DataError
        When it is computed, if values of a column have no common type. It has ``column``.
    HyperplaneError
        When it is computed without ``by``, if a right side of unknown size is larger than 250 MB.

    Notes
    -----
    Of several rows of the right side with the same keys and value, the last one is the match of
    later rows, and the first one that of earlier rows, as in pandas. If rows are exchanged, all
    rows with the same keys are joined in one task.

    Examples
    --------
    >>> import pandas as pd, dask.dataframe as dd
    >>> trades = pd.DataFrame({"second": [5, 2, 9], "price": [51.5, 50.0, 52.0]})
    >>> quotes = pd.DataFrame({"second": [1, 4, 8], "bid": [49, 51, 52]})
    >>> sides = dd.from_pandas(trades, npartitions=2), dd.from_pandas(quotes, npartitions=1)
    >>> join_asof(*sides, "second", tolerance=1).compute()["bid"].to_list()
    [51, 49, 52]
    """
    left, right = open_sides(left, right)
    keys = list_names(by)
    with collect_faults() as faults:
        limit = None
        faults += find_side_faults(left, right, "on", [on])
        faults += find_side_faults(left, right, "by", keys) if keys else []
        if isinstance(on, str) and on in [key for key in keys if isinstance(key, str)]:
            faults.append(Fault("by", repr(on), "other columns than on"))
        if not is_one_of(direction, DIRECTIONS):
            allowed = "'backward', 'forward' or 'nearest'"
            faults.append(Fault("direction", repr(direction)[:80], allowed))
        if not are_suffixes(suffixes):
            allowed = "two strings, such as ('_x', '_y')"
            faults.append(Fault("suffixes", repr(suffixes)[:80], allowed))
        faults += find_flag_faults(allow_exact_matches=allow_exact_matches)
        if not faults:
            faults += find_asof_type_faults(left._meta, right._meta, on, keys)
        if not faults:
            faults += find_name_clash_faults(left._meta, right._meta, [on, *keys], suffixes)
            limit, tolerance_faults = parse_tolerance(tolerance, left._meta[on].dtype)
            faults += tolerance_faults
    sides = (
        open_side(left, suffixes[0], right, [on, *keys]),
        open_side(right, suffixes[1], left, [on, *keys]),
    )
    (on, *keys) = escape_all([on, *keys])
    match = AsofMatch(on, tuple(keys), direction, limit, allow_exact_matches)
    like = _make_meta(sides[0].columns, sides[1].columns, [on, *keys])
    token = tokenize(sides[0].token, sides[1].token, list(like.columns), match)
    receivers = 0
    if _is_broadcast(sides[1], keys):
        arguments = [[*each, match, like] for each in _broadcast(sides, match, token)]
        build: Any = _join_partition
    else:
        arguments = _exchange(sides, match, token)
        receivers = len(arguments)
        build = partial(_join_pieces, match=match, like=like)
    results = task_graph.make_tasks("join-asof", token, partial(_to_pandas, build), arguments)
    result = build_collection(results, like, "join-asof")
    register_tables(
        result, like, lambda: task_graph.make_tasks("join-asof-table", token, build, arguments)
    )
    names = [unescape(name) for name in (on, *keys)]
    tables = [KeyedTable(JOIN, side.df.expr, tuple(names[1:]), receivers) for side in sides]
    register_join(result, tables, suffixes, common=names)
    return result


def _make_meta(left: SideColumns, right: SideColumns, keys: Sequence[str]) -> pd.DataFrame:
    """Return the empty frame of the result, with escaped names."""
    columns = {name: left.like.iloc[:, position] for position, name in enumerate(left.names)}
    for position, name in enumerate(right.names):
        if name not in keys:
            values = right.like.iloc[:, position]
            columns[name] = values.astype(make_nullable(values.dtype))
    return pd.DataFrame(columns)


def _is_broadcast(right: JoinSide, keys: Sequence[str]) -> bool:
    """Return whether all processes get the right side; a RequestError if it is too large."""
    if right.size is not None and right.size > small_side.MAX_SMALL_SIDE and not keys:
        given = f"{round_bytes(right.size)} in memory"
        allowed = f"at most {round_bytes(small_side.MAX_SMALL_SIDE)} without by"
        check([Fault("right", given, allowed, _LARGE_ADVICE)])
    if right.size is None:
        return not keys or len(right.partitions) == 1
    return right.size <= small_side.MAX_SMALL_SIDE


def _broadcast(sides: tuple[JoinSide, JoinSide], match: AsofMatch, token: str) -> list[list[Any]]:
    """Return the arguments of the tasks that join each partition to the whole right side."""
    left, right = sides
    tables = _open_partitions(right, match, f"{token}-right")
    tables = task_graph.reduce_tree("join-asof-merge", token, concat_tables, tables)
    limit = small_side.MAX_SMALL_SIDE if right.size is None and len(right.partitions) > 1 else None
    sort = partial(_sort_right_side, match=match, limit=limit)
    (prepared,) = task_graph.make_tasks("join-asof-right", token, sort, [[tables]])
    return [
        [partition, number, prepared, left.columns]
        for number, partition in enumerate(left.partitions)
    ]


def _exchange(sides: tuple[JoinSide, JoinSide], match: AsofMatch, token: str) -> list[list[Any]]:
    """Return the arguments of the tasks that join the rows of both sides with the same keys."""
    known = [side.size for side in sides if side.size is not None]
    size = sum(known) if len(known) == len(sides) else None
    count = max(len(side.partitions) for side in sides)
    into = exchange_memory.choose_row_partition_count(count, size)
    max_bytes = exchange_memory.choose_max_bytes(count, size)
    pieces = [
        task_graph.gather_by_key(
            f"join-asof-{name}",
            f"{token}-{name}",
            _open_partitions(side, match, f"{token}-{name}"),
            into,
            match.by,
            concat_tables,
            max_bytes,
        )
        for name, side in zip(("left", "right"), sides, strict=True)
    ]
    return [[*left, *right] for left, right in zip(*pieces, strict=True)]


def _open_partitions(side: JoinSide, match: AsofMatch, token: str) -> list[Delayed]:
    """Return one task for each partition of a side, which returns its rows."""
    arguments = [
        [partition, number, side.columns, match] for number, partition in enumerate(side.partitions)
    ]
    return task_graph.make_tasks("join-asof-rows", token, _open_rows, arguments)


@name_partition_in_errors
def _open_rows(partition: Any, number: int, columns: SideColumns, match: AsofMatch) -> pl.DataFrame:
    return _read_rows(partition, columns, match)


def _read_rows(partition: Any, columns: SideColumns, match: AsofMatch) -> pl.DataFrame:
    """Return the rows of a partition with the names of the result."""
    exact = [match.on] if columns.like[match.on].dtype.kind in "mM" else []
    renamed = columns.open_rows(partition, exact)
    schema = renamed.collect_schema()
    # The codes of categories differ between partitions and sides.
    coded = [key for key in match.by if isinstance(schema[key], (pl.Categorical, pl.Enum))]
    return renamed.with_columns(pl.col(key).cast(pl.String) for key in coded).collect()


def _sort_right_side(tables: list[pl.DataFrame], match: AsofMatch, limit: int | None) -> SortedSide:
    """Prepare the right side; a HyperplaneError if its size was unknown and is too large."""
    rows = concat_tables(tables)
    size = int(rows.estimated_size())
    if limit is not None and size > limit:
        raise HyperplaneError(
            f"the right side of join_asof has {round_bytes(size)} in memory, expected at most "
            f"{round_bytes(limit)} without by; {_LARGE_ADVICE}"
        )
    return asof.sort_side(rows, match)


@name_partition_in_errors
def _join_partition(
    partition: Any,
    number: int,
    right: SortedSide,
    columns: SideColumns,
    match: AsofMatch,
    like: pd.DataFrame,
) -> TypedTable:
    """Join a partition of the left side to the right side."""
    rows = _read_rows(partition, columns, match)
    return TypedTable(asof.join_asof(rows, right, match).select(like.columns), like)


def _join_pieces(
    left: list[Any],
    left_number: int | None,
    right: list[Any],
    right_number: int | None,
    match: AsofMatch,
    like: pd.DataFrame,
) -> TypedTable:
    """Join the rows of both sides that one task receives."""
    prepared = asof.sort_side(concat_pieces(right, right_number), match)
    rows = concat_pieces(left, left_number)
    return TypedTable(asof.join_asof(rows, prepared, match).select(like.columns), like)


def _to_pandas(build: Any, *arguments: Any) -> pd.DataFrame:
    """Return the rows of a task as a pandas frame."""
    table: TypedTable = build(*arguments)
    return table.to_pandas()
