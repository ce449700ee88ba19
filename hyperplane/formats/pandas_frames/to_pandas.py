"""Conversion of Polars frames and columns to pandas, in the types of an example."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

from hyperplane.core.errors import DataError
from hyperplane.formats.pandas_frames.categories import has_known_categories, is_stored_as_codes
from hyperplane.formats.pandas_frames.column_names import unescape
from hyperplane.formats.pandas_frames.lossless_dtypes import (
    choose_dtype,
    get_arrow_type,
    is_exact_as_float,
    nullable_dtype,
)
from hyperplane.formats.pandas_frames.time_zones import get_column_zone

#: The types from pandas.Int8Dtype to pandas.UInt64Dtype, whose names are those of Polars.
_NULLABLE_INTEGERS = tuple(
    type(pd.api.types.pandas_dtype(f"{sign}Int{bits}"))
    for sign in ("", "U")
    for bits in (8, 16, 32, 64)
)


def to_pandas(frame: pl.DataFrame, like: pd.DataFrame) -> pd.DataFrame:
    """Convert a Polars frame to pandas, with the columns and types of an example.

    Parameters
    ----------
    frame : polars.DataFrame
        Has at least the columns of the example.
    like : pandas.DataFrame
        Columns and types; rows are ignored. A type that does not represent every value exactly is
        replaced by the type of the values, and a NumPy integer type by the nullable one if values
        are missing.

    Examples
    --------
    >>> like = pd.DataFrame({"user": pd.Series(dtype="str"), "n": pd.Series(dtype="int64")})
    >>> to_pandas(pl.DataFrame({"n": [1, 2], "user": ["a", None]}), like).dtypes.to_list()
    [<StringDtype(na_value=nan)>, dtype('int64')]
    """
    columns = (frame.get_column(str(name)) for name in like.columns)
    return columns_to_pandas(columns, like, frame.height)


def columns_to_pandas(
    columns: Iterable[pl.Series], like: pd.DataFrame, rows: int | None = None
) -> pd.DataFrame:
    """Convert the columns of an example, in their order, as :func:`to_pandas` does.

    ``rows`` is their length, by default that of the first column.
    """
    converted: dict[int, Any] = {}
    for position, (column, dtype) in enumerate(zip(columns, like.dtypes, strict=True)):
        rows = len(column) if rows is None else rows
        converted[position] = column_to_pandas(column, allow_missing(column, dtype))
    result = pd.DataFrame(converted, index=pd.RangeIndex(rows or 0), copy=False)
    result.columns = like.columns
    return result


def allow_missing(column: pl.Series, dtype: Any) -> Any:
    """Return the type, or the nullable type for integers of which some are missing."""
    whole = isinstance(dtype, np.dtype) and dtype.kind in "iu"
    missing = column.null_count() and (column.dtype.is_integer() or column.dtype == pl.Null)
    return nullable_dtype(dtype) if whole and missing else dtype


def column_to_pandas(column: pl.Series, dtype: Any) -> Any:
    """Convert a Polars column to a pandas type, or to another type if that is not lossless."""
    name, column = (
        column.name,
        column.alias("values"),
    )  # Polars would interpret a name such as ^x$ as a pattern
    if isinstance(dtype, pd.CategoricalDtype):
        return _to_categorical(column, dtype, name)
    is_temporal = getattr(dtype, "kind", "O") in "mM"
    dtype = choose_dtype(column, dtype)
    is_plain = get_arrow_type(dtype) is not None or getattr(dtype, "kind", "O") == "c"
    if column.dtype == pl.Null or (is_plain and column.null_count() == len(column)):
        column = pl.Series(column.name, [None] * len(column), dtype=pl.Null)
    if isinstance(dtype, pd.SparseDtype):
        return pd.arrays.SparseArray(column_to_pandas(column, dtype.subtype), dtype=dtype)
    if isinstance(dtype, pd.PeriodDtype):
        missing = column.is_null().to_numpy()
        ordinals = column.cast(pl.Int64).fill_null(0).to_numpy().copy()
        ordinals[missing] = np.iinfo(np.int64).min  # of NaT
        return pd.arrays.PeriodArray(ordinals, dtype=dtype)
    if isinstance(dtype, pd.DatetimeTZDtype):
        return _to_zoned_times(column, dtype)
    if isinstance(dtype, pd.StringDtype) and column.dtype != pl.String:
        column = column.cast(pl.String)
    if isinstance(dtype, _NULLABLE_INTEGERS) and str(column.dtype) == str(dtype):
        return _to_nullable_integers(column)
    if hasattr(dtype, "__from_arrow__"):
        arrow = column.to_arrow()
        # pandas stores large_string, so a cast to the short offsets of string would copy twice.
        is_text = isinstance(dtype, pd.StringDtype) and pa.types.is_large_string(arrow.type)
        wanted = arrow.type if is_text else get_arrow_type(dtype)
        return dtype.__from_arrow__(arrow if wanted is None else _cast(arrow, wanted))
    return _to_objects(column, is_temporal) if dtype.kind == "O" else _to_numpy(column, dtype)


def _to_nullable_integers(column: pl.Series) -> Any:
    """Convert integers, with one copy; Arrow would need two."""
    missing = np.zeros(len(column), bool)
    if column.null_count():
        missing = column.is_null().to_numpy(writable=True)
        column = column.fill_null(1)  # the value of pandas where an integer is missing
    return pd.arrays.IntegerArray(column.to_numpy(writable=True), missing)


def _cast(arrow: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Cast an Arrow array without loss; floats may be rounded to shorter floats."""
    if pa.types.is_floating(arrow.type) and pa.types.is_floating(wanted):
        return arrow.cast(wanted, safe=False)
    return arrow.cast(wanted)


def _to_zoned_times(column: pl.Series, dtype: pd.DatetimeTZDtype) -> Any:
    """Convert a column to times in a time zone."""
    instants = column
    if column.dtype == pl.Null:
        instants = column.cast(pl.Datetime("us"))
    elif get_column_zone(column) is not None:
        instants = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    index = pd.DatetimeIndex(instants.to_numpy()).as_unit(dtype.unit)
    return index.tz_localize("UTC").tz_convert(dtype.tz).array


def _to_categorical(column: pl.Series, dtype: pd.CategoricalDtype, name: str) -> Any:
    """Convert a column to categories; other values become categories, unless these are ordered."""
    if not has_known_categories(dtype):
        return pd.Categorical(column_to_pandas(column, np.dtype(object)))
    if is_stored_as_codes(dtype):
        return pd.Categorical.from_codes(column.fill_null(-1).to_numpy(), dtype=dtype)
    inner = dtype.categories.dtype
    fitting = choose_dtype(column, inner)
    values = column_to_pandas(column, inner)
    if fitting != inner and inner != np.dtype(object):
        # A partition without values has the declared type, and could not be concatenated with this.
        raise DataError(
            unescape(name),
            f"holds {column.drop_nulls().first()!r:.60}, but the declared type has categories of "
            f"type {inner}; convert all partitions to one type, for example with astype(...)",
        )
    result = pd.Categorical(values, dtype=dtype)
    if int((result.codes < 0).sum()) == column.null_count():
        return result
    others = column.drop_nulls().unique().sort()
    extra = [value for value in column_to_pandas(others, inner) if value not in dtype.categories]
    if dtype.ordered:
        raise DataError(
            unescape(name),
            f"holds {extra[0]!r:.60}, which is not one of the declared ordered categories; set "
            "them with .cat.set_categories(...)",
        )
    return pd.Categorical(values, categories=[*dtype.categories, *extra])


def _to_objects(column: pl.Series, is_temporal: bool = False) -> Any:
    """Convert a column to objects.

    Times and durations become ``pandas.Timestamp`` and ``Timedelta`` if they are in nanoseconds
    or if the declared type is temporal (``is_temporal``), else Python's own types.
    """
    values = np.empty(len(column), dtype=object)  # filled in place: NumPy would unpack lists
    unit = getattr(column.dtype, "time_unit", None)
    if unit == "ns" or (unit and is_temporal):
        values[:] = list(pd.Series(column_to_pandas(column, _get_temporal_dtype(column))))
    else:
        values[:] = column.to_list()
    values[column.is_null().to_numpy()] = np.nan
    return pd.Series(values, dtype=object)


def _get_temporal_dtype(column: pl.Series) -> Any:
    """Return the pandas type of a Polars column of times or durations."""
    unit = cast("pl.Datetime", column.dtype).time_unit
    if isinstance(column.dtype, pl.Duration):
        return np.dtype(f"timedelta64[{unit}]")
    zone = get_column_zone(column)
    return np.dtype(f"datetime64[{unit}]") if zone is None else pd.DatetimeTZDtype(unit, zone)


def _to_numpy(column: pl.Series, dtype: np.dtype[Any]) -> Any:
    """Convert a column to a NumPy type; to objects or floats if values are missing."""
    if dtype.kind == "b" and column.null_count():
        return _to_objects(column)
    if dtype.kind in "iu" and column.null_count():
        if not is_exact_as_float(column):
            return _to_objects(column)
        return column.cast(pl.Float64).to_numpy()
    if column.dtype == pl.Date:
        column = column.cast(pl.Datetime("ms"))
    if column.dtype == pl.Null and dtype.kind in "mM":
        return np.full(len(column), "NaT", dtype=dtype)
    if column.dtype == pl.Null:
        column = column.cast(pl.Float64)
    return column.to_numpy().astype(dtype, copy=False)
