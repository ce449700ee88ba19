"""Whether Polars can join two sides: whether it returns all of their values unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from hyperplane.formats.pandas_frames.time_zones import is_named_zone

#: Units of times that Polars has; seconds have a larger range than its milliseconds.
_UNITS = ("ms", "us", "ns")


def can_join_tables(left: pd.DataFrame, right: pd.DataFrame, keys: Sequence[str]) -> bool:
    """Return whether tables of Polars have the values of both sides, and equal keys.

    ``left`` and ``right`` are empty, with the declared types. Objects, categories, periods and
    intervals have no type of their values in Polars, 16-bit floats and times in seconds another
    one, and floats of Arrow two kinds of missing values.
    """
    for side in (left, right):
        if not side.columns.is_unique or not all(isinstance(name, str) for name in side.columns):
            return False
        if not all(_is_exact(dtype) for dtype in side.dtypes):
            return False
    return all(_have_equal_values(left[key].dtype, right[key].dtype) for key in keys)


def _have_equal_values(one: Any, other: Any) -> bool:
    """Return whether two types are equal except that one may be nullable."""
    if one == other:
        return True
    if any(isinstance(dtype, pd.ArrowDtype) for dtype in (one, other)):
        return False
    numbers = [getattr(dtype, "numpy_dtype", dtype) for dtype in (one, other)]
    return all(isinstance(dtype, np.dtype) for dtype in numbers) and numbers[0] == numbers[1]


def _is_exact(dtype: Any) -> bool:
    """Return whether all values of a type are the same in Polars and when they return."""
    if isinstance(dtype, pd.StringDtype):
        return True
    if isinstance(dtype, pd.DatetimeTZDtype):
        return dtype.unit in _UNITS and is_named_zone(dtype.tz)
    if isinstance(dtype, pd.ArrowDtype):
        return _is_exact_in_arrow(dtype.pyarrow_dtype)
    numbers = getattr(dtype, "numpy_dtype", dtype)  # of nullable types
    if not isinstance(numbers, np.dtype):
        return False
    if numbers.kind in "mM":
        return np.datetime_data(numbers)[0] in _UNITS
    return numbers.kind in "biu" or (numbers.kind == "f" and numbers.itemsize in (4, 8))


def _is_exact_in_arrow(kind: pa.DataType) -> bool:
    types = pa.types
    exact = (types.is_integer, types.is_boolean, types.is_string, types.is_large_string)
    return any(is_kind(kind) for is_kind in exact) or bool(types.is_date32(kind))
