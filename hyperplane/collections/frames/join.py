"""``join``: broadcast joins with small right sides, and shuffle joins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa

from hyperplane.collections.frames import filter_pushdown
from hyperplane.collections.frames.arguments import (
    collect_faults,
    find_column_faults,
    find_key_faults,
    list_names,
)
from hyperplane.collections.frames.joined_partition import How, JoinedPartition
from hyperplane.collections.frames.shuffle_join import make_nullable, shuffle_join
from hyperplane.collections.frames.source_collection import Frame, as_collection
from hyperplane.core.argument_checks import is_one_of
from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.public_calls import check_call, warn_caller
from hyperplane.formats.pandas_frames.column_names import escape
from hyperplane.formats.reader import make_collection

#: Maximum bytes of a right side that every worker process reads.
MAX_SMALL_SIDE = 250 * 10**6


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

    A right side of up to 250 MB (250·10^6 bytes) in memory is read once by each worker process, and
    no rows are shuffled. (Dask itself decides by the numbers of partitions and would often shuffle
    both sides.) If the result is filtered and passed to other helpers of this module, they read
    only the needed columns of both sides. Both sides are shuffled if the right side is larger, if
    the types of keys differ, or if a side is not from :func:`read`; a right side of one partition
    is not shuffled, but joined to each partition of the left side.

    Parameters
    ----------
    left, right : dask.dataframe.DataFrame, URL or list of URLs
        The rows. URLs are read with :func:`read`.
    on : str or list of str
        Columns of both sides.
    how : {"inner", "left"}
        Keep only rows with a match, or all rows of the left side.
    suffixes : (str, str)
        Suffixes for other columns that both sides have; one of them may be ``""``.

    Returns
    -------
    dask.dataframe.DataFrame
        Lazy. Integer and boolean columns of the right side have a nullable type after a left join.

    Raises
    ------
    RequestError
        With every invalid argument.
    DataError
        When it is computed, if values of a key have no common type. It has ``column``.

    Examples
    --------
    >>> import pandas as pd, dask.dataframe as dd
    >>> flights = dd.from_pandas(pd.DataFrame({"carrier": ["UA", "AA"]}), npartitions=2)
    >>> names = dd.from_pandas(
    ...     pd.DataFrame({"carrier": ["AA", "UA"], "name": ["American", "United"]}), npartitions=1
    ... )
    >>> join(flights, names, "carrier").compute()["name"].to_list()
    ['United', 'American']
    """
    with collect_faults() as faults:
        with faults.collect():
            left = _as_side(left, "left")
        with faults.collect():
            right = _as_side(right, "right")
    keys = list_names(on)
    with collect_faults() as faults:
        for side, frame in (("left", left), ("right", right)):
            with faults.collect(), _name_side_in_faults(side):
                faults += [
                    replace(fault, allowed=f"a column of {side}: {fault.allowed}")
                    for fault in find_column_faults(frame._meta, on=keys)
                ]
                faults += find_key_faults(frame._meta, "on", keys)
        if not keys:
            faults.append(Fault("on", repr(on), "at least one column"))
        if not is_one_of(how, ("inner", "left")):
            faults.append(
                Fault(
                    "how", repr(how)[:80], "'inner' or 'left'", "for others use left.merge(right)"
                )
            )
        if not _are_suffixes(suffixes):
            allowed = "two strings, such as ('_x', '_y')"
            faults.append(Fault("suffixes", repr(suffixes)[:80], allowed))
        if not faults:
            faults += _find_key_type_faults(left._meta, right._meta, keys)
        if not faults:
            faults += _find_name_clash_faults(left._meta, right._meta, keys, suffixes)
    sides = filter_pushdown.extract_filters(left.expr), filter_pushdown.extract_filters(right.expr)
    # The shuffle join is done by pandas, which does not interpret names such as "*" as patterns.
    if (
        None in sides
        or any(escape(name) != name for name in [*left.columns, *right.columns])
        or not all(_is_comparable(left._meta[key].dtype, right._meta[key].dtype) for key in keys)
    ):
        return _join_by_shuffle(left, right, keys, how, suffixes)
    (root, left_where), (right_root, right_where) = sides  # type: ignore[misc]
    right_partitions = tuple(right_root.iterables[0])
    sizes = [part.nbytes for part in right_partitions]
    if None in sizes or sum(sizes) > MAX_SMALL_SIDE:
        return _join_by_shuffle(left, right, keys, how, suffixes)
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
    parts = [
        JoinedPartition(part, right_partitions, left_where, right_where, tuple(keys), how, *names)
        for part in root.iterables[0]
    ]
    return make_collection(parts, like, "join")


def _join_by_shuffle(
    left: dd.DataFrame, right: dd.DataFrame, keys: list[str], how: How, suffixes: tuple[str, str]
) -> dd.DataFrame:
    """Join collections of any size and origin with a shuffle."""
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


def _as_side(df: Frame, side: str) -> dd.DataFrame:
    """Convert one side to a collection; faults name the side."""
    if isinstance(df, dd.Series):
        given, allowed = "a Dask series", "a Dask dataframe, a URL or URLs"
        check([Fault(side, given, allowed, f"write {side}.to_frame()")])
    with _name_side_in_faults(side):
        return as_collection(df)


@contextmanager
def _name_side_in_faults(side: str) -> Iterator[None]:
    """Name the side in faults: in place of the argument ``df``, before other arguments."""
    try:
        yield
    except RequestError as error:
        faults = [
            replace(fault, where=side if fault.where == "df" else f"{side}, {fault.where}")
            for fault in error.faults
        ]
        raise RequestError(faults) from error.__cause__


def _find_key_type_faults(left: pd.DataFrame, right: pd.DataFrame, keys: list[str]) -> list[Fault]:
    """Return a fault for each key whose types pandas cannot join; objects are not checked."""
    faults = []
    for key in keys:
        types = left[key].dtype, right[key].dtype
        if any(dtype == np.dtype(object) for dtype in types):
            continue
        try:
            left[[key]].iloc[:0].merge(right[[key]].iloc[:0], on=key)
        except ValueError:
            given = f"{key!r}, {types[0]} on the left and {types[1]} on the right"
            advice = f"convert one side, as with right.assign({key}=right[{key!r}].astype(...))"
            allowed = "columns whose types can be compared"
            faults.append(Fault("on", given, allowed, advice))
    return faults


def _are_suffixes(suffixes: Any) -> bool:
    """Return whether a value is a tuple or list of two strings."""
    return (
        isinstance(suffixes, (tuple, list))
        and len(suffixes) == 2
        and all(isinstance(suffix, str) for suffix in suffixes)
    )


def _find_name_clash_faults(
    left: pd.DataFrame, right: pd.DataFrame, keys: list[str], suffixes: tuple[str, str]
) -> list[Fault]:
    """Return a fault if two columns of the result would have the same name."""
    names = [
        name + suffix * (name in other.columns)
        for side, other, suffix in ((left, right, suffixes[0]), (right, left, suffixes[1]))
        for name in side.columns
        if name not in keys
    ]
    repeated = sorted({name for name in [*keys, *names] if [*keys, *names].count(name) > 1})
    if not repeated:
        return []
    given = f"{suffixes!r}, which makes two columns {', '.join(map(repr, repeated[:5]))}"
    return [Fault("suffixes", given, "two strings that make all column names unique")]


def _is_same_type(one: Any, other: Any) -> bool:
    """Return whether two key types are the same, or both categories, which are joined by value."""
    categories = isinstance(one, pd.CategoricalDtype) and isinstance(other, pd.CategoricalDtype)
    return categories or bool(one == other)


def _is_comparable(one: Any, other: Any) -> bool:
    """Return whether two key types are equal except that one may be nullable."""
    return bool(getattr(one, "numpy_dtype", one) == getattr(other, "numpy_dtype", other))
