"""Flatten columns of several levels, as ``agg`` with lists of functions returns them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from hyperplane.core.public_calls import warn_caller


def flatten_columns(obj: Any) -> Any:
    """Return a dataframe with its column levels joined by ``_``; any other object unchanged.

    Empty levels are left out. Of the formats only Parquet could hold several levels, and Dask,
    Polars, and Arrow would read other names.

    Examples
    --------
    >>> import warnings
    >>> import pandas as pd
    >>> columns = pd.MultiIndex.from_tuples([("t", ""), ("v", "sum"), ("v", "mean")])
    >>> with warnings.catch_warnings(action="ignore"):
    ...     list(flatten_columns(pd.DataFrame([[1, 2, 3]], columns=columns)).columns)
    ['t', 'v_sum', 'v_mean']
    """
    columns: Any = getattr(obj, "columns", None)
    if getattr(columns, "nlevels", 1) < 2:
        return obj
    names = [flatten_name(name) for name in columns]
    changed = [(old, new) for old, new in zip(columns, names, strict=True) if "" not in old]
    if changed:
        examples = ", ".join(f"{old!r} as {new!r}" for old, new in changed[:2])
        more = f" and {len(changed) - 2} more" if len(changed) > 2 else ""
        warn_caller(f"columns of several levels are saved with joined names: {examples}{more}")
    result = obj.copy(deep=False) if type(obj).__module__.startswith("pandas") else obj.copy()
    result.columns = names
    return result


def flatten_name(name: Sequence[Hashable]) -> str:
    """Return the levels of a column's name as one string."""
    return "_".join(text for text in map(str, name) if text)
