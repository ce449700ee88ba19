"""Lossless conversion of columns of Python objects to Arrow arrays."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from hyperplane.core.errors import DataError
from hyperplane.formats.column_types import is_uuid

_ADVICE = "convert them to one type, for example with astype('str')"


def objects_to_arrow(values: pd.Series[Any], name: str) -> pa.Array:
    """Convert a column of objects to Arrow: missing values become null, UUIDs text.

    Raises
    ------
    DataError
        If no type represents all values exactly.
    """
    try:
        array = _infer_array(values)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise DataError(name, _describe_mixture(values)) from error
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    kind = array.type
    if is_uuid(kind):
        return pa.array([None if value is None else str(value) for value in array.to_pylist()])
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return _to_temporal_array(values, array, name)
    if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return array
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind):
        return array
    for value, back in zip(values, array.to_pylist(), strict=True):
        # Arrow converts text among bytes to bytes, tuples to lists, and adds keys to dicts.
        if back is not None and not _is_same_value(value, back):
            raise DataError(name, _describe_mixture(values))
    return array


def has_integers_and_floats(values: pd.Series[Any]) -> bool:
    """Return whether a column of objects has both integers and floats."""
    kinds = {type(value) for value in values if not _is_missing(value)}
    return any(issubclass(kind, (int, np.integer)) for kind in kinds) and any(
        issubclass(kind, (float, np.floating)) for kind in kinds
    )


def _infer_array(values: pd.Series[Any]) -> pa.Array:
    """Convert objects to the type that Arrow infers, or to uint64 if that overflows."""
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, OverflowError):
        if pd.api.types.infer_dtype(values, skipna=True) != "integer":
            raise
        return pa.array(values, type=pa.uint64(), from_pandas=True)


def _to_temporal_array(values: pd.Series[Any], array: pa.Array, name: str) -> pa.Array:
    """Convert times or durations of one kind and zone, with nanoseconds if a value has any."""
    present = [value for value in values if not _is_missing(value)]
    kind = datetime.datetime if pa.types.is_timestamp(array.type) else datetime.timedelta
    zones = {str(getattr(value, "tzinfo", None)) for value in present}
    numpy = [value for value in present if isinstance(value, (np.datetime64, np.timedelta64))]
    if numpy or len(zones) > 1 or not all(isinstance(value, kind) for value in present):
        raise DataError(name, _describe_mixture(values))
    if not any(getattr(value, "nanosecond", getattr(value, "nanoseconds", 0)) for value in present):
        return array
    fine = (
        pa.timestamp("ns", array.type.tz)
        if pa.types.is_timestamp(array.type)
        else pa.duration("ns")
    )
    try:
        return pa.array(values, type=fine, from_pandas=True)
    except (pa.ArrowException, OverflowError) as error:
        message = (
            "holds values with nanoseconds, and others outside of their range, which for times is "
            "1677 to 2262; round all to microseconds first"
        )
        raise DataError(name, message) from error


def _describe_mixture(values: pd.Series[Any]) -> str:
    """Return the error message for values without a common type, with two examples."""
    present = [value for value in values if not _is_missing(value)]
    first = present[0] if present else None
    other = next((value for value in present if type(value) is not type(first)), None)
    if other is None:
        other = next((value for value in present if value != first), first)
        return f"holds objects that Arrow has no common type for, such as {other!r:.60}; {_ADVICE}"
    shown = f"{first!r:.60} and {other!r:.60}"
    return f"holds values of different kinds, such as {shown}; {_ADVICE}"


def _is_same_value(value: Any, back: Any) -> bool:
    """Return whether the conversion to Arrow and back has kept a value."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, dict) and isinstance(back, dict):
        return value.keys() == back.keys() and all(
            _is_same_value(value[key], back[key]) for key in value
        )
    if isinstance(value, list) and isinstance(back, list):
        return len(value) == len(back) and all(map(_is_same_value, value, back))
    if _is_missing(value):
        return back is None
    number = isinstance(back, (int, float)) or type(back).__name__ == "Decimal"
    kinds = number or isinstance(value, type(back)) or type(value) is type(back)
    return kinds and isinstance(value, bool) == isinstance(back, bool) and bool(value == back)


def _is_missing(value: Any) -> bool:
    return value is None or (pd.api.types.is_scalar(value) and bool(pd.isna(value)))
