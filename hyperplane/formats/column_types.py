"""Conversion of column types between Arrow (files), Polars and pandas.

The types never depend on the values of a partition, so that all partitions agree.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

Decimals = Literal["float", "exact"]

#: UTC offsets with minutes, for which Polars panics.
_OFFSET = re.compile(r"[+-]\d\d:?(?!00)\d\d")
_UNITS = ("ms", "us", "ns")
_NULLABLE = {
    pl.Int8: "Int8",
    pl.Int16: "Int16",
    pl.Int32: "Int32",
    pl.Int64: "Int64",
    pl.UInt8: "UInt8",
    pl.UInt16: "UInt16",
    pl.UInt32: "UInt32",
    pl.UInt64: "UInt64",
    pl.Boolean: "boolean",
}


def to_polars(kind: pa.DataType, decimals: Decimals) -> pl.DataType:
    """Return the Polars type of the data set for an Arrow type of a file.

    Raises
    ------
    ValueError, pyarrow.ArrowException, polars.exceptions.PolarsError
        If Polars does not support the type.

    Examples
    --------
    >>> to_polars(pa.decimal128(15, 2), "float"), to_polars(pa.date32(), "float")
    (Float64, Datetime(time_unit='ms', time_zone=None))
    """
    if is_uuid(kind):
        return pl.String()
    if isinstance(kind, pa.BaseExtensionType):
        return to_polars(kind.storage_type, decimals)
    if pa.types.is_dictionary(kind):
        return to_polars(kind.value_type, decimals)
    if pa.types.is_date(kind):
        return pl.Datetime("ms")
    if pa.types.is_timestamp(kind) and _OFFSET.fullmatch(kind.tz or ""):
        raise ValueError(f"{kind.tz} is an offset, not a time zone: save the times in UTC")
    if pa.types.is_interval(kind):
        raise ValueError(
            "Polars has no intervals of months and days: use dask.dataframe.read_parquet"
        )
    if pa.types.is_float16(kind):
        return pl.Float32()
    if pa.types.is_null(kind):
        return pl.String()
    if pa.types.is_decimal(kind):
        if kind.precision > 38:
            raise ValueError("at most 38 digits of a decimal: save fewer, or floats")
        return pl.Float64() if decimals == "float" else pl.Decimal(kind.precision, kind.scale)
    return from_arrow(kind)


def is_time_zone(name: str | None) -> bool:
    """Return whether Polars has the time zone of a type of Arrow: None, a name, or whole hours.

    Examples
    --------
    >>> [is_time_zone(name) for name in (None, "Europe/Rome", "+05:00", "+05:30", "Nowhere")]
    [True, True, True, False, False]
    """
    if name is None or _OFFSET.fullmatch(name):
        return name is None
    try:
        pl.Series(dtype=pl.Datetime(time_zone=name))
    except pl.exceptions.PolarsError:
        return False
    return True


def is_pandas_extension(kind: pa.DataType) -> bool:
    """Whether the type is a period or an interval of pandas."""
    return getattr(kind, "extension_name", "") in ("pandas.period", "pandas.interval")


def is_uuid(kind: pa.DataType) -> bool:
    """Whether the type is Arrow's UUID, which Polars reads as bytes."""
    return getattr(kind, "extension_name", "") == "arrow.uuid"


def from_arrow(kind: pa.DataType) -> pl.DataType:
    """Return the default Polars type of an Arrow type."""
    return pl.DataFrame(pa.schema({"one": kind}).empty_table()).schema["one"]


def to_pandas_dtype(kind: pl.DataType, nullable: bool) -> Any:
    """Return the pandas dtype of a column; ``nullable`` matters for integers and booleans only.

    Examples
    --------
    >>> to_pandas_dtype(pl.Int32(), nullable=False), to_pandas_dtype(pl.Int32(), nullable=True)
    (dtype('int32'), Int32Dtype())
    """
    if type(kind) in _NULLABLE:
        name = _NULLABLE[type(kind)]
        numpy_name = "bool" if name == "boolean" else name.lower()
        return pd.api.types.pandas_dtype(name if nullable else numpy_name)
    if isinstance(kind, (pl.Float32, pl.Float64)):
        return np.dtype("float32" if isinstance(kind, pl.Float32) else "float64")
    if isinstance(kind, pl.String):
        return pd.StringDtype("pyarrow", na_value=np.nan)
    if isinstance(kind, pl.Datetime):
        if kind.time_zone is None:
            return np.dtype(f"datetime64[{kind.time_unit}]")
        return pd.DatetimeTZDtype(kind.time_unit, kind.time_zone)
    if isinstance(kind, pl.Duration):
        return np.dtype(f"timedelta64[{kind.time_unit}]")
    empty = pl.DataFrame(schema={"": kind}).to_arrow(compat_level=pl.CompatLevel.oldest())
    return pd.ArrowDtype(empty.schema.field(0).type)


def find_wider_type(left: pl.DataType, right: pl.DataType) -> pl.DataType | None:
    """Return a type that can represent the values of both types, or None.

    Examples
    --------
    >>> find_wider_type(pl.Int32(), pl.Int64()), find_wider_type(pl.Int64(), pl.Float32())
    (Int64, Float64)
    >>> find_wider_type(pl.Int64(), pl.String()) is None
    True
    """
    if left == right:
        return left
    if left.is_integer() and right.is_integer():
        return _find_wider_integer(left, right)
    if left.is_numeric() and right.is_numeric():
        if left.is_decimal() and right.is_decimal():
            return _find_wider_decimal(left, right)
        return pl.Float64()
    if isinstance(left, pl.Datetime) and isinstance(right, pl.Datetime):
        if left.time_zone != right.time_zone:
            return None
        return pl.Datetime(_find_finer_unit(left.time_unit, right.time_unit), left.time_zone)
    if isinstance(left, pl.Duration) and isinstance(right, pl.Duration):
        return pl.Duration(_find_finer_unit(left.time_unit, right.time_unit))
    return None


def merge_nested_types(left: pl.DataType, right: pl.DataType) -> pl.DataType | None:
    """Merge nested types that differ only where one is Null; None if they differ otherwise.

    Examples
    --------
    >>> merge_nested_types(pl.List(pl.Null()), pl.List(pl.Int64()))  # one file has only empty lists
    List(Int64)
    >>> merge_nested_types(pl.List(pl.Int32()), pl.List(pl.Int64())) is None
    True
    """
    if left == right or isinstance(right, pl.Null):
        return left
    if isinstance(left, pl.Null):
        return right
    if isinstance(left, pl.List) and isinstance(right, pl.List):
        inner = merge_nested_types(_instantiate(left.inner), _instantiate(right.inner))
        return None if inner is None else pl.List(inner)
    if isinstance(left, pl.Struct) and isinstance(right, pl.Struct):
        if [field.name for field in left.fields] != [field.name for field in right.fields]:
            return None
        fields = {
            a.name: merge_nested_types(_instantiate(a.dtype), _instantiate(b.dtype))
            for a, b in zip(left.fields, right.fields, strict=True)
        }
        known = {name: kind for name, kind in fields.items() if kind is not None}
        return pl.Struct(known) if len(known) == len(fields) else None
    return None


def _instantiate(kind: Any) -> pl.DataType:
    return kind() if isinstance(kind, type) else kind


def _find_wider_integer(left: pl.DataType, right: pl.DataType) -> pl.DataType:
    name = str(np.promote_types(str(left).lower(), str(right).lower()))
    return pl.Float64() if name == "float64" else from_arrow(pa.from_numpy_dtype(name))


def _find_wider_decimal(left: Any, right: Any) -> pl.DataType | None:
    scale = max(left.scale, right.scale)
    whole = max(left.precision - left.scale, right.precision - right.scale)
    return pl.Decimal(whole + scale, scale) if whole + scale <= 38 else None


def _find_finer_unit(left: Any, right: Any) -> Any:
    return max(left, right, key=_UNITS.index)
