"""Choice of the pandas type that represents every value of a Polars column exactly.

The declared type of a column (Dask's ``meta``) is a hint: its values may have other types. The
declared type is kept if it represents every value, and otherwise replaced by the type of the
values. Each partition of a result chooses separately, so all possible choices must also
concatenate without loss.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

from hyperplane.core.units import MAX_EXACT_FLOAT

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def choose_dtype(column: pl.Series, declared: Any) -> Any:
    """Return the declared type, or another one if it does not represent every value."""
    if isinstance(declared, pd.SparseDtype):
        inner = choose_dtype(column, declared.subtype)
        return declared if inner == declared.subtype else inner
    arrow_type = pa.int64() if isinstance(declared, pd.PeriodDtype) else get_arrow_type(declared)
    if column.null_count() == len(column):
        return declared
    objects = not isinstance(declared, np.dtype) or declared.kind == "O"
    if (arrow_type is None and objects) or (arrow_type is not None and _fits(column, arrow_type)):
        return declared
    if _is_beyond_unit(column, arrow_type):
        return np.dtype(object)
    own = _choose_own_dtype(column, declared)
    if own == np.dtype(bool) and isinstance(declared, np.dtype) and declared.kind in "iufc":
        return pd.BooleanDtype()  # pandas.concat of bool and numbers would turn True into 1
    if column.dtype.is_integer() and _concatenates_as_floats(own, arrow_type):
        return own if is_exact_as_float(column) else np.dtype(object)
    return own


def _concatenates_as_floats(own: Any, arrow_type: pa.DataType | None) -> bool:
    """Return whether concatenation with a partition of the declared type gives floats.

    Any result may have such a partition: one without values.
    """
    types = own if isinstance(own, np.dtype) else get_arrow_type(own), arrow_type
    if arrow_type is None or not (
        pa.types.is_integer(arrow_type) or pa.types.is_floating(arrow_type)
    ):
        return False
    numbers = [each.to_pandas_dtype() if isinstance(each, pa.DataType) else each for each in types]
    return np.result_type(*numbers).kind == "f"


def is_exact_as_float(column: pl.Series) -> bool:
    """Return whether all integers of a column are exact as float64."""
    minimum: Any = column.min()
    maximum: Any = column.max()
    return minimum is None or bool(minimum >= -MAX_EXACT_FLOAT and maximum <= MAX_EXACT_FLOAT)


def get_arrow_type(dtype: Any) -> pa.DataType | None:
    """Return the Arrow type of a pandas type; None for objects and for types Arrow lacks."""
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


def _fits(column: pl.Series, arrow_type: pa.DataType) -> bool:
    """Return whether an Arrow type represents every value of a column exactly."""
    kind, types = column.dtype, pa.types
    if types.is_dictionary(arrow_type):
        return _fits(column, arrow_type.value_type)
    if types.is_integer(arrow_type):
        signed = kind.is_signed_integer() == types.is_signed_integer(arrow_type)
        return kind.is_integer() and signed and _is_in_range(column, arrow_type)
    if types.is_floating(arrow_type):
        return kind.is_float() and _is_exact_in_width(column, arrow_type.bit_width)
    if types.is_boolean(arrow_type):
        return kind == pl.Boolean
    if (
        types.is_string(arrow_type)
        or types.is_large_string(arrow_type)
        or types.is_string_view(arrow_type)
    ):
        return kind in (pl.String, pl.Categorical, pl.Enum)
    if types.is_timestamp(arrow_type):
        return (
            isinstance(kind, pl.Datetime)
            and (kind.time_zone is None) == (arrow_type.tz is None)
            and _is_in_unit(column, kind.time_unit, arrow_type.unit)
        ) or (kind == pl.Date and arrow_type.tz is None)
    if types.is_duration(arrow_type):
        return isinstance(kind, pl.Duration) and _is_in_unit(
            column, kind.time_unit, arrow_type.unit
        )
    try:
        arrow = column.to_arrow()
        if _get_type_family(arrow.type) != _get_type_family(arrow_type):
            return False  # Arrow would cast 2 to 2 us after midnight, and text to bytes
        return bool(arrow.cast(arrow_type).cast(arrow.type).equals(arrow))
    except pa.ArrowException:
        return False


def _get_type_family(kind: pa.DataType) -> str:
    """Return the family of an Arrow type; numbers and text are both "other"."""
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


def _is_in_range(column: pl.Series, arrow_type: pa.DataType) -> bool:
    range_ = np.iinfo(arrow_type.to_pandas_dtype())
    minimum: Any = column.min()
    maximum: Any = column.max()
    return bool(range_.min <= minimum and maximum <= range_.max)


def _is_exact_in_width(column: pl.Series, width: int) -> bool:
    widths: dict[Any, int] = {pl.Float64: 64, pl.Float32: 32}
    own = widths.get(column.dtype.base_type(), 16)
    if own <= width:
        return True
    narrow = column.to_numpy().astype(f"float{width}").astype("float64")
    return bool(np.array_equal(narrow, column.cast(pl.Float64).to_numpy(), equal_nan=True))


def _is_in_unit(column: pl.Series, own: str, declared: str) -> bool:
    """Return whether times have the declared unit; Polars stores seconds as milliseconds."""
    if own != "ms" or declared != "s":
        return own == declared
    return not bool((column.cast(pl.Int64) % 1000 != 0).any())


def _is_beyond_unit(column: pl.Series, arrow_type: pa.DataType | None) -> bool:
    """Return whether times or durations are out of the range of the declared unit.

    pandas concatenates times in the finest unit of all partitions, and a partition without values
    has the declared unit.
    """
    if not isinstance(arrow_type, (pa.TimestampType, pa.DurationType)):
        return False
    if not isinstance(column.dtype, (pl.Datetime, pl.Duration)):
        return False
    factor = _PER_SECOND[arrow_type.unit] // _PER_SECOND[column.dtype.time_unit]
    ticks = column.to_physical()
    minimum: Any = ticks.min()
    maximum: Any = ticks.max()
    return factor > 1 and not -(2**63) < minimum * factor <= maximum * factor < 2**63


def _choose_own_dtype(column: pl.Series, declared: Any) -> Any:
    """Return the type of the values: an Arrow or nullable type if the declared type is one."""
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
        # Floats here would turn the integers of other partitions into floats.
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
    """Return the type for Int128, which Polars uses for signed and unsigned integers together."""
    return np.dtype("int64") if _is_in_range(column, pa.int64()) else np.dtype(object)


def nullable_dtype(numbers: np.dtype[Any]) -> Any:
    """Return the nullable pandas type for a NumPy type of numbers or booleans."""
    if numbers.kind == "b":
        return pd.BooleanDtype()
    name = numbers.name
    name = name.replace("uint", "UInt") if numbers.kind == "u" else name.title()
    return pd.api.types.pandas_dtype(name)
