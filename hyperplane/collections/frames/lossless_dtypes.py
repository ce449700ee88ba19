"""The type of pandas in which a column of Polars loses nothing.

What a collection declares of its columns is a hint: the values may be others. A declared type is
kept where it holds every value, and replaced by the column's own where it does not. Partitions
of a result decide each for itself, so whatever they choose must concatenate without loss, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

#: Whole numbers up to this one are the same as floats.
MAX_EXACT_FLOAT = 2**53
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def choose_dtype(column: pl.Series, declared: Any) -> Any:
    """The declared type, or another one where a value would not be itself in it."""
    if isinstance(declared, pd.SparseDtype):
        inner = choose_dtype(column, declared.subtype)
        return declared if inner == declared.subtype else inner
    wanted = pa.int64() if isinstance(declared, pd.PeriodDtype) else get_arrow_type(declared)
    if column.null_count() == len(column):
        return declared
    objects = not isinstance(declared, np.dtype) or declared.kind == "O"
    if (wanted is None and objects) or (wanted is not None and _fits(column, wanted)):
        return declared
    if _is_beyond_unit(column, wanted):
        return np.dtype(object)
    own = _choose_own_dtype(column, declared)
    if own == np.dtype(bool) and isinstance(declared, np.dtype) and declared.kind in "iufc":
        return pd.BooleanDtype()  # of bool beside numbers pandas.concat makes numbers, 1 of True
    if column.dtype.is_integer() and _concatenates_as_floats(own, wanted):
        return own if is_exact_as_float(column) else np.dtype(object)
    return own


def _concatenates_as_floats(own: Any, wanted: pa.DataType | None) -> bool:
    """Whether pandas makes floats of whole numbers beside a partition of the declared type.

    A partition without values is of that type.
    """
    types = own if isinstance(own, np.dtype) else get_arrow_type(own), wanted
    if wanted is None or not (pa.types.is_integer(wanted) or pa.types.is_floating(wanted)):
        return False
    numbers = [each.to_pandas_dtype() if isinstance(each, pa.DataType) else each for each in types]
    return np.result_type(*numbers).kind == "f"


def is_exact_as_float(column: pl.Series) -> bool:
    """Whether all whole numbers of a column are themselves as floats."""
    least: Any = column.min()
    most: Any = column.max()
    return least is None or bool(least >= -MAX_EXACT_FLOAT and most <= MAX_EXACT_FLOAT)


def get_arrow_type(dtype: Any) -> pa.DataType | None:
    """Arrow's type of the values of a pandas type; None for objects and types of their own."""
    if isinstance(dtype, pd.ArrowDtype):
        return dtype.pyarrow_dtype
    if isinstance(dtype, pd.StringDtype):
        return pa.string()
    if isinstance(dtype, pd.DatetimeTZDtype):
        return pa.timestamp(dtype.unit, "UTC")
    numbers = getattr(dtype, "numpy_dtype", dtype)
    if not isinstance(numbers, np.dtype) or numbers.kind not in "biufmM":
        return None
    return pa.from_numpy_dtype(numbers)


def _fits(column: pl.Series, wanted: pa.DataType) -> bool:
    """Whether every value of a column is itself in a type of Arrow."""
    kind, types = column.dtype, pa.types
    if types.is_dictionary(wanted):
        return _fits(column, wanted.value_type)
    if types.is_integer(wanted):
        signed = kind.is_signed_integer() == types.is_signed_integer(wanted)
        return kind.is_integer() and signed and _is_in_range(column, wanted)
    if types.is_floating(wanted):
        return kind.is_float() and _is_exact_in_width(column, wanted.bit_width)
    if types.is_boolean(wanted):
        return kind == pl.Boolean
    if types.is_string(wanted) or types.is_large_string(wanted) or types.is_string_view(wanted):
        return kind in (pl.String, pl.Categorical, pl.Enum)
    if types.is_timestamp(wanted):
        return (
            isinstance(kind, pl.Datetime)
            and (kind.time_zone is None) == (wanted.tz is None)
            and _is_in_unit(column, kind.time_unit, wanted.unit)
        ) or (kind == pl.Date and wanted.tz is None)
    if types.is_duration(wanted):
        return isinstance(kind, pl.Duration) and _is_in_unit(column, kind.time_unit, wanted.unit)
    try:
        arrow = column.to_arrow()
        if _get_type_family(arrow.type) != _get_type_family(wanted):
            return False  # Arrow casts 2 to two microseconds of a time of day, and text to bytes
        return bool(arrow.cast(wanted).cast(arrow.type).equals(arrow))
    except pa.ArrowException:
        return False


def _get_type_family(kind: pa.DataType) -> str:
    """What values of a type are, other than numbers and text."""
    types = pa.types
    for name, holds in (
        ("decimal", types.is_decimal),
        ("time", types.is_time),
        ("date", types.is_date),
        ("temporal", types.is_temporal),
        ("nested", types.is_nested),
    ):
        if holds(kind):
            return name
    binary = (types.is_binary, types.is_large_binary, types.is_fixed_size_binary)
    return "bytes" if any(holds(kind) for holds in binary) else "other"


def _is_in_range(column: pl.Series, wanted: pa.DataType) -> bool:
    range_ = np.iinfo(wanted.to_pandas_dtype())
    least: Any = column.min()
    most: Any = column.max()
    return bool(range_.min <= least and most <= range_.max)


def _is_exact_in_width(column: pl.Series, width: int) -> bool:
    widths: dict[Any, int] = {pl.Float64: 64, pl.Float32: 32}
    own = widths.get(column.dtype.base_type(), 16)
    if own <= width:
        return True
    narrow = column.to_numpy().astype(f"float{width}").astype("float64")
    return bool(np.array_equal(narrow, column.cast(pl.Float64).to_numpy(), equal_nan=True))


def _is_in_unit(column: pl.Series, own: str, wanted: str) -> bool:
    """Whether times are of the unit of a type. Of seconds Polars has none: they come in ms."""
    if own != "ms" or wanted != "s":
        return own == wanted
    return not bool((column.cast(pl.Int64) % 1000 != 0).any())


def _is_beyond_unit(column: pl.Series, wanted: pa.DataType | None) -> bool:
    """Whether times or durations are out of the range that a declared unit has.

    Pandas concatenates times in the finest unit of all partitions, and a partition without values
    is of the declared one.
    """
    if not isinstance(wanted, (pa.TimestampType, pa.DurationType)):
        return False
    if not isinstance(column.dtype, (pl.Datetime, pl.Duration)):
        return False
    factor = _PER_SECOND[wanted.unit] // _PER_SECOND[column.dtype.time_unit]
    ticks = column.to_physical()
    least: Any = ticks.min()
    most: Any = ticks.max()
    return factor > 1 and not -(2**63) < least * factor <= most * factor < 2**63


def _choose_own_dtype(column: pl.Series, declared: Any) -> Any:
    """A type that holds the values, of the same family as the declared one where it has them."""
    kind = column.dtype
    if kind == pl.Int128:
        return _choose_int128_dtype(column)
    arrow = column.clear().to_arrow(compat_level=pl.CompatLevel.oldest()).type
    if pa.types.is_large_string(arrow) or pa.types.is_string_view(arrow):
        arrow = pa.string()
    if isinstance(declared, pd.ArrowDtype):
        return pd.ArrowDtype(arrow)
    if kind == pl.String:
        missing = getattr(declared, "na_value", np.nan)
        return pd.StringDtype(na_value=pd.NA if missing is pd.NA else np.nan)
    if (kind.is_numeric() and not kind.is_decimal()) or kind == pl.Boolean:
        numbers = np.dtype(arrow.to_pandas_dtype())
        nullable = hasattr(declared, "numpy_dtype") or (
            isinstance(declared, pd.StringDtype) and declared.na_value is pd.NA
        )
        # Floats for missing whole numbers would make floats of those in other partitions.
        nullable |= bool(kind.is_integer() and column.null_count())
        return nullable_dtype(numbers) if nullable else numbers
    if isinstance(kind, pl.Datetime):
        unit = kind.time_unit
        if kind.time_zone:
            return pd.DatetimeTZDtype(unit, kind.time_zone)
        return np.dtype(f"datetime64[{unit}]")
    if isinstance(kind, pl.Duration):
        return np.dtype(f"timedelta64[{kind.time_unit}]")
    return np.dtype(object)


def _choose_int128_dtype(column: pl.Series) -> Any:
    """Numbers of signed and unsigned columns together."""
    return np.dtype("int64") if _is_in_range(column, pa.int64()) else np.dtype(object)


def nullable_dtype(numbers: np.dtype[Any]) -> Any:
    """The type of pandas for the same values and missing ones."""
    if numbers.kind == "b":
        return pd.BooleanDtype()
    name = numbers.name
    name = name.replace("uint", "UInt") if numbers.kind == "u" else name.title()
    return pd.api.types.pandas_dtype(name)
