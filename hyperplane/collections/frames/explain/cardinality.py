"""Detection of columns with very many distinct values, without computing."""

from __future__ import annotations

from typing import Any

import pandas as pd

from hyperplane.collections.frames.explain.sizes import SizeEstimator, get_pandas_frame
from hyperplane.core.dask_internals.frames import (
    IO,
    Assign,
    BaseSetIndexSortValues,
    ClearDivisions,
    DropnaFrame,
    DropnaSeries,
    Filter,
    FromPandas,
    Loc,
    LocBase,
    LocUnknown,
    Partitions,
    Projection,
    ReadParquet,
    Repartition,
    ShuffleBase,
)

#: Minimum groups for which a result should have several partitions.
MANY_GROUPS = 100_000
#: Rows of a pandas frame that are sampled to count distinct values.
SAMPLED_ROWS = 200_000

#: Steps that do not change the values of a column.
_VALUE_PRESERVING = (
    Projection,
    Filter,
    DropnaFrame,
    DropnaSeries,
    ClearDivisions,
    Partitions,
    LocBase,
    LocUnknown,
    Loc,
    Repartition,
    ShuffleBase,
    BaseSetIndexSortValues,
)


def describe_high_cardinality(sizes: SizeEstimator, expr: Any, column: Any) -> str | None:
    """Return the reason to expect many distinct values in a column, or None if there is none."""
    categories = _count_categories(expr, column)
    if categories is not None:
        return f"{column!r} has {categories} categories" if categories >= MANY_GROUPS else None
    source, filtered = _find_source_column(expr, column)
    if filtered:  # the remaining rows may have few values
        return None
    if isinstance(source, FromPandas):
        frame = get_pandas_frame(source)
        values = frame[column] if frame.ndim == 2 else frame
        count = int(values.iloc[:: max(1, len(values) // SAMPLED_ROWS)].nunique())
        return f"{column!r} has at least {count} distinct values" if count >= MANY_GROUPS else None
    if isinstance(source, ReadParquet):
        footers = sizes.footers(source)
        if footers is not None and column in footers.high_cardinality:
            return f"{column!r} likely has very many distinct values (too many for a dictionary)"
    return None


def _count_categories(expr: Any, column: Any) -> int | None:
    """Return the number of categories: 0 if unknown, None if the column is not categorical."""
    meta = expr._meta
    if meta.ndim == 2 and column not in meta.columns:
        return None
    values = meta[column] if meta.ndim == 2 else meta
    dtype = getattr(values, "dtype", None)
    if not isinstance(dtype, pd.CategoricalDtype):
        return None
    unknown = dtype.categories is not None and "__UNKNOWN_CATEGORIES__" in dtype.categories
    return 0 if unknown else len(dtype.categories)


def _find_source_column(expr: Any, column: Any) -> tuple[Any, bool]:
    """Return the source of an unchanged column, or None, and whether rows were filtered."""
    filtered = False
    while not isinstance(expr, IO):
        is_replaced = isinstance(expr, Assign) and column in expr.keys
        is_unchanged = isinstance(expr, Assign) and not is_replaced
        if (
            not (is_unchanged or isinstance(expr, _VALUE_PRESERVING))
            or column not in expr.frame.columns
        ):
            return None, filtered
        filtered = filtered or isinstance(expr, Filter | LocBase | Partitions)
        expr = expr.frame
    if isinstance(expr, ReadParquet) and expr.filters:
        filtered = True
    return expr, filtered
