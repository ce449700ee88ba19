"""Casts of pandas columns that leave the given column unchanged."""

from __future__ import annotations

from typing import Any


def cast_column(column: Any, dtype: Any) -> Any:
    """Return a column in another type.

    When pandas 3.0 casts from a type of NumPy to one of Arrow, it replaces the missing times of the
    given column by 1970-01-01 (fixed in 3.1), so such a column is copied first.

    Examples
    --------
    >>> import pandas as pd
    >>> times = pd.Series([pd.NaT, pd.Timestamp("2026-01-01")])
    >>> cast_column(times, "timestamp[us][pyarrow]").isna().to_list()
    [True, False]
    >>> times.isna().to_list()
    [True, False]
    """
    import pandas as pd

    if getattr(column.dtype, "kind", "") == "M" and isinstance(
        pd.api.types.pandas_dtype(dtype), pd.ArrowDtype
    ):
        column = column.copy()
    return column.astype(dtype)
