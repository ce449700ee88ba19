"""Cast of partitions to the declared types of their collection, without loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa

from hyperplane.collections.frames.source_collection import select_columns
from hyperplane.core.column_cast import cast_column
from hyperplane.core.errors import DataError

#: Integers beyond this absolute value are not all exact as float64.
_MAX_EXACT_FLOAT = 2**53


def cast_to_declared(frame: pd.DataFrame, like: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Cast a partition to the declared types, as Dask's shuffle does, but without loss.

    A DataError is raised if a column is missing or not unique, if the cast changes a value, or if a
    key declared as float is an integer that a float may not represent.
    """
    name: Any
    result = select_columns(frame, list(like.columns)).copy(deep=False)
    for name, declared in like.dtypes.items():
        values = result[name]
        is_category = isinstance(values.dtype, pd.CategoricalDtype)
        if declared == np.dtype(object) and (is_category or _is_beyond_floats(values)):
            # Concatenated with floats of another partition, integers would become floats; Dask
            # concatenates categories only with categories.
            result[name] = values.astype(object)
        if values.dtype == declared or declared == np.dtype(object):
            continue
        if isinstance(declared, pd.CategoricalDtype) and not dd.utils.has_known_categories(
            like[name]
        ):
            continue
        result[name] = _cast_column(values, declared, str(name), name in keys)
    return result


def _is_beyond_floats(values: pd.Series[Any]) -> bool:
    """Return whether a column has integers that are not exact as float64."""
    if not pd.api.types.is_integer_dtype(values.dtype):
        return False
    return bool(((values > _MAX_EXACT_FLOAT) | (values < -_MAX_EXACT_FLOAT)).any())


def _cast_column(values: pd.Series[Any], declared: Any, name: str, is_key: bool) -> pd.Series[Any]:
    """Cast a column to its declared type; raise DataError if a value changes."""
    present = values.notna()
    try:
        converted = cast_column(values, declared)
        restored = converted[present].astype(object)
        is_lost = np.array(
            [
                not _is_equal(a, b)
                for a, b in zip(values[present].astype(object), restored, strict=True)
            ],
            dtype=bool,
        )
        if is_key and pd.api.types.is_float_dtype(declared):
            is_lost |= [
                isinstance(value, int) and abs(value) >= _MAX_EXACT_FLOAT
                for value in values[present].tolist()
            ]
        if not is_lost.any() and converted.notna().equals(present):
            return converted
    except (ArithmeticError, NotImplementedError, TypeError, ValueError, pa.ArrowException):
        is_lost = np.ones(int(present.sum()), dtype=bool)
    changed = values[present][is_lost] if is_lost.any() else values
    shown = f"{changed.iloc[0]!r:.60}" if len(changed) else "values"
    raise DataError(
        name,
        f"holds {shown} of type {values.dtype}, but the declared type is {declared}; convert all "
        "partitions to one type, for example with astype(...)",
    )


def _is_equal(one: Any, other: Any) -> bool:
    """Return whether two values are equal; a boolean equals no number, a number no other value."""
    numbers = (bool, int, float)
    one = one.item() if isinstance(one, np.generic) and hasattr(one, "item") else one
    other = other.item() if isinstance(other, np.generic) and hasattr(other, "item") else other
    if isinstance(one, numbers) != isinstance(other, numbers):
        return False
    if isinstance(one, bool) != isinstance(other, bool):
        return False  # True == 1 in Python, but not in a column
    return bool(one == other)
