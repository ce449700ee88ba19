"""Conversion of pandas frames to Polars."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

from hyperplane.core.errors import DataError
from hyperplane.formats.pandas_frames.categories import (
    decode_categories,
    is_stored_as_codes,
    is_text,
)
from hyperplane.formats.pandas_frames.lossless_dtypes import get_arrow_type
from hyperplane.formats.pandas_frames.object_columns import objects_to_arrow
from hyperplane.formats.pandas_frames.time_zones import convert_to_declared_zones, is_named_zone
from hyperplane.formats.polars_frames import as_polars


def from_pandas(frame: pd.DataFrame, declared: pd.DataFrame | None = None) -> pl.DataFrame:
    """Convert a pandas frame to Polars: NaN and NaT become null, the index is dropped.

    Parameters
    ----------
    frame : pandas.DataFrame
        The rows; column names are strings.
    declared : pandas.DataFrame, optional
        The same columns with the declared types of the collection. A column of another type
        keeps its type; for types such as periods, which Polars holds as numbers, it is an error.

    Raises
    ------
    DataError
        If the values of a column have no common type, or no representation in Polars.
    """
    types: pd.Series[Any] = frame.dtypes
    frame = frame.copy(deep=False)
    for position, (name, dtype) in enumerate(types.items()):
        wanted: Any = dtype if declared is None else declared.dtypes[name]  # type: ignore[call-overload]
        values = frame.iloc[:, position]
        prepared = _prepare_column(values, dtype, wanted, str(name))
        if prepared is not values:
            frame.isetitem(position, prepared.array)  # an array: pandas would align a series
    converted = as_polars(pa.Table.from_pandas(frame, preserve_index=False))
    categories = [
        name for name, dtype in converted.schema.items() if isinstance(dtype, pl.Categorical)
    ]
    # Columns of Arrow types may hold NaN and null; NaN of NumPy columns is null already.
    arrow = [name for name, dtype in frame.dtypes.items() if isinstance(dtype, pd.ArrowDtype)]
    floats = [str(name) for name in arrow if converted.schema[str(name)].is_float()]
    result = converted.with_columns(
        *(pl.col(name).fill_nan(None) for name in floats),
        # The codes of a category differ between partitions.
        *(pl.col(name).cast(pl.String) for name in categories),
    )
    if declared is None:
        return result
    for name, dtype in declared.dtypes.items():
        own: Any = dtype.categories.dtype if isinstance(dtype, pd.CategoricalDtype) else dtype
        wanted = get_arrow_type(own)
        is_time = wanted is not None and pa.types.is_timestamp(wanted)
        if result.schema[str(name)] == pl.Date and result.height and is_time:
            first = result.get_column(str(name)).drop_nulls().first()
            advice = "convert it with dask.dataframe.to_datetime"
            message = f"holds {first!r}, a date, but the declared type is {dtype}; {advice}"
            raise DataError(str(name), message)
    return convert_to_declared_zones(result, declared)


def _prepare_column(values: Any, dtype: Any, declared: Any, name: str) -> Any:
    """Convert a column to a type that Arrow passes to Polars unchanged."""
    if dtype != declared and _has_only_missing_values(values, dtype, declared):
        return pd.Series([None] * len(values), dtype=pd.ArrowDtype(pa.null()))
    if dtype != declared and (needs_declared_dtype(dtype) or needs_declared_dtype(declared)):
        first = values[values.notna()].iloc[0]
        raise DataError(
            name,
            f"holds {first!r:.60} of type {dtype}, but the declared type is {declared}; convert "
            "all partitions to one type, for example with astype(...)",
        )
    if isinstance(dtype, pd.SparseDtype):
        dense = pd.Series(np.asarray(values.array), dtype=dtype.subtype)
        return _prepare_column(dense, dtype.subtype, dtype.subtype, name)
    if isinstance(dtype, pd.PeriodDtype):
        return pd.Series(pd.arrays.IntegerArray(values.array.asi8, values.isna().to_numpy()))
    if isinstance(dtype, pd.CategoricalDtype) and is_stored_as_codes(dtype):
        if list(dtype.categories) != list(declared.categories):  # equal types, in another order
            values = values.cat.set_categories(declared.categories)
        codes = values.cat.codes.to_numpy().astype("int64")
        return pd.Series(pd.arrays.IntegerArray(codes, codes < 0))
    if isinstance(dtype, pd.CategoricalDtype) and not is_text(dtype.categories.dtype):
        return _prepare_column(
            decode_categories(values), dtype.categories.dtype, dtype.categories.dtype, name
        )
    if isinstance(dtype, pd.DatetimeTZDtype) and not is_named_zone(dtype.tz):
        # Polars does not support time zones with a fixed offset.
        return values.dt.tz_convert("UTC")
    if isinstance(dtype, pd.ArrowDtype):
        return _prepare_arrow_column(values, dtype.pyarrow_dtype, name)
    if dtype == np.dtype("float16"):
        return values.astype("float32")
    if dtype == np.dtype(object):
        array = objects_to_arrow(values, name)
        return _prepare_arrow_column(
            pd.Series(pd.arrays.ArrowExtensionArray(array)), array.type, name
        )
    if isinstance(dtype, np.dtype) and dtype.kind not in "biufmM":
        raise DataError(
            name,
            f"is of type {dtype}, which Arrow does not support; convert it first, for "
            "example complex numbers with .real and .imag",
        )
    return values


def _has_only_missing_values(values: Any, dtype: Any, declared: Any) -> bool:
    """Return whether all values are missing, so that the declared type can be used.

    The type of a partition without values is arbitrary: pandas uses floats for missing text,
    booleans and times. Missing floats are kept if the declared type is another type of numbers,
    since the two have a common type.
    """
    special = needs_declared_dtype(dtype) or needs_declared_dtype(declared)
    if not special and len(values) and all(map(_is_number, (dtype, declared))):
        return False
    return bool(values.isna().all())


def _is_number(dtype: Any) -> bool:
    return pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_bool_dtype(dtype)


def _prepare_arrow_column(values: pd.Series[Any], kind: pa.DataType, name: str) -> Any:
    """Cast Arrow types that Polars does not support; other columns are returned unchanged."""
    types = pa.types
    if types.is_timestamp(kind) and kind.tz is not None and not is_named_zone(kind.tz):
        return values.dt.tz_convert("UTC")
    if types.is_float16(kind):
        return values.astype(pd.ArrowDtype(pa.float32()))
    if types.is_date64(kind):
        # Polars converts date64 to times.
        try:
            return values.astype(pd.ArrowDtype(pa.date32()))
        except pa.ArrowException as error:
            message = (
                f"holds a date of type {kind} with a time of day; convert it first, for example "
                "with astype('datetime64[ms]')"
            )
            raise DataError(name, message) from error
    if types.is_decimal256(kind):
        try:
            return values.astype(pd.ArrowDtype(pa.decimal128(38, kind.scale)))
        except pa.ArrowException as error:
            message = (
                f"holds a {kind} value of more than 38 digits, the maximum of Polars; "
                "convert it first, for example with astype('float64')"
            )
            raise DataError(name, message) from error
    return values


def needs_declared_dtype(dtype: Any) -> bool:
    """Return whether values have a meaning only with their pandas type, such as periods."""
    if isinstance(dtype, pd.CategoricalDtype):
        return is_stored_as_codes(dtype)
    ours = (pd.ArrowDtype, pd.StringDtype, pd.DatetimeTZDtype)
    return isinstance(dtype, pd.api.extensions.ExtensionDtype) and not (
        isinstance(dtype, ours) or hasattr(dtype, "numpy_dtype")
    )
