"""``join``: broadcast joins with small right sides, and shuffle joins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dask.dataframe as dd
import pandas as pd
import pyarrow as pa

from hyperplane.collections.frames import filter_pushdown, small_side
from hyperplane.collections.frames.arguments import collect_faults, list_names
from hyperplane.collections.frames.dask_parquet import replace_parquet_reads
from hyperplane.collections.frames.heavy_keys import PARTITION
from hyperplane.collections.frames.helper_steps import JOIN, KeyedTable, register_join
from hyperplane.collections.frames.join_arguments import (
    are_suffixes,
    find_key_type_faults,
    find_name_clash_faults,
    find_side_faults,
    open_sides,
)
from hyperplane.collections.frames.join_kinds import HOWS, SELECTING, How
from hyperplane.collections.frames.join_types import can_join_tables
from hyperplane.collections.frames.joined_partition import JoinedPartition
from hyperplane.collections.frames.shuffle_join import make_nullable, shuffle_join
from hyperplane.collections.frames.source_collection import Frame
from hyperplane.core.argument_checks import is_one_of
from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.public_calls import check_call, warn_caller
from hyperplane.formats.pandas_frames.column_names import escape
from hyperplane.formats.partition_sizes import estimate_columns, merge_neighbors
from hyperplane.formats.reader import make_collection

#: Files of Dask that are read together take at most an eighth of the maximum of the right side, as
#: each of their rows may have several matches. With a third, a join of 8 million rows peaked 200 to
#: 450 MB higher and took the same CPU time.
_PARTS_OF_SMALL_SIDE = 8


@check_call
def join(
    left: Frame,
    right: Frame,
    on: str | Sequence[str],
    how: How = "inner",
    *,
    suffixes: tuple[str, str] = ("_x", "_y"),
) -> dd.DataFrame:
    """Join two tables, like ``left.merge(right, on=on, how=how)``.

    A right side of up to 250 MB (250·10^6 bytes) in memory is read once by each worker process if
    both sides come from :func:`read`, and no rows are shuffled; one of up to 1 GB, if it takes at
    most a tenth of a thread's memory and all processes together read at most twice the bytes of
    both sides. On Linux, worker processes of one machine that need it at about the same time map
    the rows that one of them has read. If the result is filtered and passed to other helpers of
    this module, they read only the needed columns of both sides. Local files of
    ``dd.read_parquet`` are read in the same way, if a right side of these takes no more than a
    tenth of a thread's memory.

    Of other collections, a side that is known to be small is sent once to each worker process and
    joined there to the partitions of the other side: the right side, of an inner join also the
    left one. A right side of one partition always is. Otherwise rows of both sides with equal keys
    are exchanged, through compressed files if both sides take more than a quarter of the cluster's
    memory. The rows of a frequent key of either side are spread over several tasks. Objects,
    categories and other types that Polars does not have are joined by pandas after a shuffle of
    Dask, which spreads frequent keys of the left side, or of the side with more partitions of an
    inner join.

    Parameters
    ----------
    left, right : dask.dataframe.DataFrame, URL or list of URLs
        The rows. URLs are read with :func:`read`.
    on : str or list of str
        Columns of both sides.
    how : {"inner", "left", "semi", "anti"}
        Keep only rows with a match, or all rows of the left side, with the columns of both sides.
        ``"semi"`` and ``"anti"`` select rows of the left side, and return each of them once with
        the columns of the left side only: those with, or without, an equal key on the right.
    suffixes : (str, str)
        Suffixes for other columns that both sides have; one of them may be ``""``. They are not
        used by ``"semi"`` and ``"anti"``.

    Returns
    -------
    dask.dataframe.DataFrame
        Lazy. Integer and boolean columns of the right side have a nullable type after a left join.

        Rows are in the order of the left side, unless they are shuffled.

    Raises
    ------
    RequestError
        With every invalid argument.
    DataError
        When it is computed, if values of a key have no common type. It has ``column``.

    Notes
    -----
    Missing values of a key are equal to each other, as in ``merge`` of pandas: a row without a key
    has a match if the right side has a row without a key. (``isin`` of pandas finds missing values
    too, except those of nullable types.)

    Examples
    --------
    >>> import pandas as pd, dask.dataframe as dd
    >>> flights = dd.from_pandas(pd.DataFrame({"carrier": ["UA", "AA"]}), npartitions=2)
    >>> names = dd.from_pandas(
    ...     pd.DataFrame({"carrier": ["AA", "UA"], "name": ["American", "United"]}), npartitions=1
    ... )
    >>> join(flights, names, "carrier").compute()["name"].to_list()
    ['United', 'American']
    >>> late = dd.from_pandas(pd.DataFrame({"carrier": ["AA", "AA"]}), npartitions=1)
    >>> join(flights, late, "carrier", how="semi").compute()["carrier"].to_list()
    ['AA']
    >>> join(flights, late, "carrier", how="anti").compute()["carrier"].to_list()
    ['UA']
    """
    left, right = open_sides(left, right)
    keys = list_names(on)
    with collect_faults() as faults:
        faults += find_side_faults(left, right, "on", keys)
        if not keys:
            faults.append(Fault("on", repr(on), "at least one column"))
        if not is_one_of(how, HOWS):
            allowed = "'inner', 'left', 'semi' or 'anti'"
            advice = "for others use left.merge(right)"
            faults.append(Fault("how", repr(how)[:80], allowed, advice))
        if not are_suffixes(suffixes):
            allowed = "two strings, such as ('_x', '_y')"
            faults.append(Fault("suffixes", repr(suffixes)[:80], allowed))
        if not faults:
            faults += find_key_type_faults(left._meta, right._meta, keys)
        if not faults and how not in SELECTING:
            faults += find_name_clash_faults(left._meta, right._meta, keys, suffixes)
    if how in SELECTING:
        key_columns: dd.DataFrame = right[keys]
        right = key_columns
    limit = small_side.MAX_SMALL_SIDE
    is_read_by_dask = filter_pushdown.extract_filters(left.expr) is None
    if is_read_by_dask or filter_pushdown.extract_filters(right.expr) is None:
        limit = min(limit, small_side.get_max_small_side())
        left, right = replace_parquet_reads(left), replace_parquet_reads(right)
    sides = filter_pushdown.extract_filters(left.expr), filter_pushdown.extract_filters(right.expr)
    # The shuffle join is done by pandas, which does not interpret names such as "*" as patterns.
    if (
        None in sides
        or any(escape(name) != name for name in [*left.columns, *right.columns])
        or not all(_is_comparable(left._meta[key].dtype, right._meta[key].dtype) for key in keys)
    ):
        return _join_by_shuffle(left, right, keys, how, suffixes)
    (root, left_where), (right_root, right_where) = sides  # type: ignore[misc]
    left_partitions, right_partitions = (tuple(each.iterables[0]) for each in (root, right_root))
    size = _estimate_right_size(right_partitions, keys, how)
    if size is None or not (
        size <= limit or small_side.fits_in_few_processes(size, _add_sizes(left_partitions))
    ):
        return _join_by_shuffle(left, right, keys, how, suffixes)
    if how in SELECTING:
        like = left._meta.iloc[:0].reset_index(drop=True)
    else:
        like = left._meta.merge(right._meta, on=keys, how=how, suffixes=suffixes)
    overlapping = (set(left.columns) & set(right.columns)) - set(keys)
    names = [
        tuple((name, name + suffix if name in overlapping else name) for name in side.columns)
        for side, suffix in ((left, suffixes[0]), (right, suffixes[1]))
    ]
    if how == "left":
        like = like.astype(
            {new: make_nullable(like[new].dtype) for old, new in names[1] if old not in keys}
        )
    if is_read_by_dask:  # small files of Dask are read together, as those of URLs
        filtered = [] if left_where is None else left_where.meta.root_names()
        needed = {*left.columns, *filtered}
        left_partitions = merge_neighbors(left_partitions, needed, limit // _PARTS_OF_SMALL_SIDE)
    parts = [
        JoinedPartition(part, right_partitions, left_where, right_where, tuple(keys), how, *names)
        for part in left_partitions
    ]
    result = make_collection(parts, like, "join")
    tables = [KeyedTable(JOIN, side.expr, tuple(keys), 0) for side in (left, right)]
    register_join(result, tables, suffixes, common=keys, selects=how in SELECTING)
    return result


def _estimate_right_size(partitions: Sequence[Any], keys: Sequence[str], how: How) -> int | None:
    """Return the bytes of the columns of the right side that are kept; None if unknown."""
    if how in SELECTING:
        sizes = estimate_columns(partitions, keys)
        if sizes is not None:
            return sum(sizes)
    return _add_sizes(partitions)


def _add_sizes(partitions: Sequence[Any]) -> int | None:
    """Return the bytes of all columns of partitions; None if unknown."""
    sizes = [part.nbytes for part in partitions]
    return None if None in sizes else sum(sizes)


def _join_by_shuffle(
    left: dd.DataFrame, right: dd.DataFrame, keys: list[str], how: How, suffixes: tuple[str, str]
) -> dd.DataFrame:
    """Join collections of any size and origin with a shuffle."""
    advice = f"rename it, as with df.rename(columns={{{PARTITION!r}: 'partition'}})"
    check(
        [
            Fault(side, f"a column {PARTITION!r}", "other names, because Dask uses it", advice)
            for side, frame in (("left", left), ("right", right))
            if PARTITION in frame.columns
            and right.npartitions > 1
            and not can_join_tables(left._meta, right._meta, keys)
        ]
    )
    types = [(left[key].dtype, right[key].dtype) for key in keys]
    pairs = [f"{key!r}: {one} and {other}" for key, (one, other) in zip(keys, types, strict=True)]
    if not all(_is_same_type(*pair) for pair in types):
        # Dask's own merge has the same warning.
        text = f"merge column data type mismatches: {', '.join(pairs)}; cast them to one type"
        warn_caller(text)
    try:
        return shuffle_join(left, right, keys, how, suffixes)
    except (TypeError, ValueError, NotImplementedError, pa.ArrowException) as error:
        advice = "convert the keys of both sides to one type, for example with astype(...)"
        raise RequestError(
            [Fault("on", ", ".join(pairs), "types that pandas can join", advice)]
        ) from error


def _is_same_type(one: Any, other: Any) -> bool:
    """Return whether two key types are the same, or both categories, which are joined by value."""
    categories = isinstance(one, pd.CategoricalDtype) and isinstance(other, pd.CategoricalDtype)
    return categories or bool(one == other)


def _is_comparable(one: Any, other: Any) -> bool:
    """Return whether two key types are equal except that one may be nullable."""
    return bool(getattr(one, "numpy_dtype", one) == getattr(other, "numpy_dtype", other))
