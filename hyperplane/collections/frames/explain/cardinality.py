"""Detection of columns with very many distinct values, without computing."""

from __future__ import annotations

from typing import Any

import pandas as pd

from hyperplane.collections.frames.explain.sizes import SizeEstimator, get_pandas_frame
from hyperplane.collections.frames.source_columns import find_source_column
from hyperplane.core.dask_internals.frames import FromPandas, ReadParquet

#: Minimum groups for which a result should have several partitions.
MANY_GROUPS = 100_000
#: Rows of a pandas frame that are sampled to count distinct values.
SAMPLED_ROWS = 200_000


def describe_high_cardinality(sizes: SizeEstimator, expr: Any, column: Any) -> str | None:
    """Return the reason to expect many distinct values in a column, or None if there is none."""
    categories = _count_categories(expr, column)
    if categories is not None:
        return f"{column!r} has {categories} categories" if categories >= MANY_GROUPS else None
    found = find_source_column(expr, column)
    if found is None or not found.has_all_rows:  # the remaining rows may have few values
        return None
    source, name = found.source, found.name
    if isinstance(source, FromPandas):
        frame = get_pandas_frame(source)
        values = frame[name] if frame.ndim == 2 else frame
        count = int(values.iloc[:: max(1, len(values) // SAMPLED_ROWS)].nunique())
        return f"{column!r} has at least {count} distinct values" if count >= MANY_GROUPS else None
    if isinstance(source, ReadParquet):
        footers = sizes.footers(source)
        if footers is not None and name in footers.high_cardinality:
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
