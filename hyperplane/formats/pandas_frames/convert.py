"""Conversion between pandas and Polars that keeps pandas column types."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

from hyperplane.core.errors import DataError
from hyperplane.formats.pandas_frames.column_names import unescape
from hyperplane.formats.pandas_frames.lossless_dtypes import (
    choose_dtype,
    get_arrow_type,
    is_exact_as_float,
    nullable_dtype,
)
from hyperplane.formats.pandas_frames.object_columns import objects_to_arrow
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
    return _convert_to_declared_zones(result, declared)


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
    if isinstance(dtype, pd.CategoricalDtype) and not _is_text(dtype.categories.dtype):
        return _prepare_column(
            decode_categories(values), dtype.categories.dtype, dtype.categories.dtype, name
        )
    if isinstance(dtype, pd.DatetimeTZDtype) and not _is_named_zone(dtype.tz):
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
    if types.is_timestamp(kind) and kind.tz is not None and not _is_named_zone(kind.tz):
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


def is_stored_as_codes(dtype: Any) -> bool:
    """Return whether categories are converted to codes: all but text, numbers and times."""
    if not has_known_categories(dtype):
        return False
    inner = dtype.categories.dtype
    return not _is_text(inner, dtype.categories) and get_arrow_type(inner) is None


def _is_text(inner: Any, categories: Any = ()) -> bool:
    if isinstance(inner, pd.StringDtype):
        return True
    return bool(inner == np.dtype(object)) and all(isinstance(each, str) for each in categories)


def decode_categories(values: pd.Series[Any]) -> Any:
    """Return the values of a categorical column, in the type of the categories."""
    inner = values.cat.categories
    codes = values.cat.codes.to_numpy()
    if isinstance(inner.dtype, np.dtype) and inner.dtype.kind in "biu" and (codes < 0).any():
        inner = inner.astype(nullable_dtype(inner.dtype))
    return pd.Series(inner.array.take(codes, allow_fill=True))


def _is_named_zone(zone: Any) -> bool:
    """Return whether a time zone has a name, other than a fixed offset."""
    name = getattr(zone, "key", None) or getattr(zone, "zone", None) or str(zone)
    return bool(name) and not name.startswith(("+", "-", "UTC+", "UTC-", "pytz.FixedOffset"))


def _convert_to_declared_zones(table: pl.DataFrame, declared: pd.DataFrame) -> pl.DataFrame:
    """Convert times to the declared time zones, so that partitions can be concatenated."""
    wanted = {str(name): _get_dtype_zone(dtype) for name, dtype in declared.dtypes.items()}
    zones = {
        name: "UTC" if not _is_named_zone(zone) else str(zone)
        for name, zone in wanted.items()
        if zone is not None
    }
    return table.with_columns(
        pl.col(name).dt.convert_time_zone(zone)
        for name, zone in zones.items()
        if _get_column_zone(table.get_column(name)) not in (None, zone)
    )


def _get_dtype_zone(dtype: Any) -> Any:
    """Return the time zone of a pandas type."""
    return getattr(getattr(dtype, "pyarrow_dtype", dtype), "tz", None)


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
    if hasattr(dtype, "__from_arrow__"):
        arrow = column.to_arrow()
        # pandas stores large_string, so a cast to the short offsets of string would copy twice.
        is_text = isinstance(dtype, pd.StringDtype) and pa.types.is_large_string(arrow.type)
        wanted = arrow.type if is_text else get_arrow_type(dtype)
        return dtype.__from_arrow__(arrow if wanted is None else _cast(arrow, wanted))
    return _to_objects(column, is_temporal) if dtype.kind == "O" else _to_numpy(column, dtype)


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
    elif _get_column_zone(column) is not None:
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


def has_known_categories(dtype: Any) -> bool:
    """Return whether the categories of a type are known; Dask has a marker for unknown ones."""
    # Imported late: processes that read one shard do not need dask.dataframe.
    from dask.dataframe.utils import UNKNOWN_CATEGORIES

    return dtype.categories is not None and UNKNOWN_CATEGORIES not in dtype.categories


def _get_column_zone(column: pl.Series) -> str | None:
    return column.dtype.time_zone if isinstance(column.dtype, pl.Datetime) else None


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
    zone = _get_column_zone(column)
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
