"""Joins to a table that is small enough to be everywhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

from hyperplane.collections.flags import is_one_of
from hyperplane.collections.frames import filter_pushdown
from hyperplane.collections.frames.arguments import (
    collect_faults,
    find_column_faults,
    find_key_faults,
    list_names,
)
from hyperplane.collections.frames.column_names import escape
from hyperplane.collections.frames.partitions import Bounds, ScannablePartition
from hyperplane.collections.frames.shuffle_join import make_nullable, shuffle_join
from hyperplane.collections.frames.source_collection import Frame, as_collection
from hyperplane.collections.frames.sources.reader import of_parts
from hyperplane.errors import Fault, RequestError, check
from hyperplane.public_calls import check_call, warn_caller

How = Literal["inner", "left"]
#: A right side up to this size goes to every task; it is read there, beside the task's own rows.
MAX_SMALL_SIDE = 250 * 10**6


@dataclass(frozen=True, repr=False)
class JoinedPartition:
    """The rows of one part, each with what a small table has for it."""

    left: ScannablePartition
    right: tuple[ScannablePartition, ...]
    left_where: Any
    right_where: Any
    on: tuple[str, ...]
    how: How
    left_names: tuple[tuple[str, str], ...]
    right_names: tuple[tuple[str, str], ...]

    @property
    def rows(self) -> int | None:
        """Not known before the join."""
        return None

    @property
    def nbytes(self) -> int | None:
        """As much as the left side at least."""
        return self.left.nbytes

    @property
    def urls(self) -> Any:
        """Files that are read, for messages."""
        parts: Any = (self.left, *self.right)
        return list(dict.fromkeys(url for part in parts for url in part.urls))

    def scan(self, where: pl.Expr | None = None) -> pl.LazyFrame:
        """The joined rows, in the order of the left side."""
        left = self.left.scan(self.left_where)
        right = pl.concat([part.scan(self.right_where) for part in self.right])
        rows = left.select(pl.col(old).alias(new) for old, new in self.left_names).join(
            right.select(pl.col(old).alias(new) for old, new in self.right_names),
            on=list(self.on),
            how=self.how,
            nulls_equal=True,  # as pandas.merge has it
            maintain_order="left_right",
        )
        return rows if where is None else rows.filter(where)

    def bounds(self, column: str) -> Bounds | None:
        """Those of the left side: a join adds no new values to its columns."""
        old = {new: old for old, new in self.left_names}.get(column)
        return None if old is None else self.left.bounds(old)

    def __repr__(self) -> str:
        return f"JoinedPart({self.left!r})"

    def __dask_tokenize__(self) -> Any:
        wheres = [None if where is None else str(where) for where in self._wheres]
        return (self.left, self.right, wheres, self.on, self.how, self.left_names, self.right_names)

    @property
    def _wheres(self) -> tuple[Any, Any]:
        return self.left_where, self.right_where


@check_call
def join(
    left: Frame,
    right: Frame,
    on: str | Sequence[str],
    how: How = "inner",
    *,
    suffixes: tuple[str, str] = ("_x", "_y"),
) -> dd.DataFrame:
    """Join to a table, as ``left.merge(right, on=on, how=how)`` does.

    A right side of up to 250 MB in memory is read by every task beside its own rows, and nothing
    moves: Dask itself decides by numbers of partitions and would often move both sides. The
    result can be filtered and given to the other helpers of this module; they then read only the
    columns that they need, from both sides. Where the right side is larger, keys differ in type, or
    either side does not come from :func:`read`, Dask's shuffle brings equal keys together.

    Parameters
    ----------
    left, right : dask.dataframe.DataFrame, URL or list of URLs
        The rows. URLs are read with :func:`read`.
    on : str or list of str
        Columns of both sides.
    how : {"inner", "left"}
        Only rows with a partner, or all of the left side.
    suffixes : (str, str)
        Added to other columns that both sides have; one of them may be ``""``.

    Returns
    -------
    dask.dataframe.DataFrame
        Lazy. Whole numbers that may be missing, as after a left join, are of a nullable type.

    Raises
    ------
    RequestError
        With all that is wrong.

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
                Fault("how", repr(how)[:80], "'inner' or 'left'", "others: left.merge(right)")
            )
        if not faults:
            faults += _find_key_type_faults(left._meta, right._meta, keys)
        if not faults:
            faults += _find_suffix_faults(left._meta, right._meta, keys, suffixes)
    named = [*left.columns, *right.columns]
    sides = filter_pushdown.extract_filters(left.expr), filter_pushdown.extract_filters(right.expr)
    # Names that Polars takes for patterns go by way of pandas.
    if (
        None in sides
        or any(escape(name) != name for name in named)
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
    return of_parts(parts, like, "join")


def _join_by_shuffle(
    left: dd.DataFrame, right: dd.DataFrame, keys: list[str], how: How, suffixes: tuple[str, str]
) -> dd.DataFrame:
    """A join of sides that are not small tables of one origin."""
    types = [(left[key].dtype, right[key].dtype) for key in keys]
    kinds = [f"{key!r}: {one} and {other}" for key, (one, other) in zip(keys, types, strict=True)]
    if not all(_is_same_type(*pair) for pair in types):
        # As Dask's own merge warns.
        text = f"merge column data type mismatches: {', '.join(kinds)}; cast them to one type"
        warn_caller(text)
    try:
        return shuffle_join(left, right, keys, how, suffixes)
    except (TypeError, ValueError, NotImplementedError, pa.ArrowException) as error:
        advice = "make keys of one type on both sides, as with astype(...)"
        raise RequestError(
            [Fault("on", ", ".join(kinds), "types that pandas can join", advice)]
        ) from error


def _as_side(df: Frame, side: str) -> dd.DataFrame:
    """One of the two, as a collection; faults say which of them it is."""
    if isinstance(df, dd.Series):
        asked, allowed = "a Dask series", "a Dask dataframe, a URL or URLs"
        check([Fault(side, asked, allowed, f"write {side}.to_frame()")])
    with _name_side_in_faults(side):
        return as_collection(df)


@contextmanager
def _name_side_in_faults(side: str) -> Iterator[None]:
    """Say in faults of a collection which of the two it is."""
    try:
        yield
    except RequestError as error:
        where = {"df": side}
        faults = [
            replace(fault, where=where.get(fault.where, f"{side}, {fault.where}"))
            for fault in error.faults
        ]
        raise RequestError(faults) from error.__cause__


def _find_key_type_faults(left: pd.DataFrame, right: pd.DataFrame, keys: list[str]) -> list[Fault]:
    """A fault for each key whose types pandas does not compare; of objects only values tell."""
    faults = []
    for key in keys:
        types = left[key].dtype, right[key].dtype
        if any(dtype == np.dtype(object) for dtype in types):
            continue
        try:
            left[[key]].iloc[:0].merge(right[[key]].iloc[:0], on=key)
        except ValueError:
            asked = f"{key!r}, {types[0]} on the left and {types[1]} on the right"
            advice = f"make them one, as with right.assign({key}=right[{key!r}].astype(...))"
            faults.append(Fault("on", asked, "columns of types that can be equal", advice))
    return faults


def _find_suffix_faults(
    left: pd.DataFrame, right: pd.DataFrame, keys: list[str], suffixes: Any
) -> list[Fault]:
    """A fault when suffixes are no two texts, or two columns would have one name."""
    allowed = "two texts, such as ('_x', '_y')"
    if (
        not isinstance(suffixes, (tuple, list))
        or len(suffixes) != 2
        or not all(isinstance(suffix, str) for suffix in suffixes)
    ):
        return [Fault("suffixes", repr(suffixes)[:80], allowed)]
    names = [
        name + suffix * (name in other.columns)
        for side, other, suffix in ((left, right, suffixes[0]), (right, left, suffixes[1]))
        for name in side.columns
        if name not in keys
    ]
    twice = sorted({name for name in [*keys, *names] if [*keys, *names].count(name) > 1})
    if not twice:
        return []
    asked = f"{suffixes!r}, which makes two columns {', '.join(map(repr, twice[:5]))}"
    return [Fault("suffixes", asked, "two texts that keep the names apart")]


def _is_same_type(one: Any, other: Any) -> bool:
    """Whether there is nothing to cast: categories, known or not, are compared by value."""
    categories = isinstance(one, pd.CategoricalDtype) and isinstance(other, pd.CategoricalDtype)
    return categories or bool(one == other)


def _is_comparable(one: Any, other: Any) -> bool:
    """Whether keys of two types can be compared as they are, missing values or none."""
    return bool(getattr(one, "numpy_dtype", one) == getattr(other, "numpy_dtype", other))
