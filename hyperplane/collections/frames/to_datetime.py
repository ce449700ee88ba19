"""``to_datetime``: conversion of text and numbers to times, partition by partition."""

from __future__ import annotations

import re
from functools import partial
from typing import Any, Literal

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa

from hyperplane.collections.frames import filter_pushdown
from hyperplane.collections.frames.arguments import collect_faults, find_column_faults, has_column
from hyperplane.collections.frames.source_collection import Frame, as_collection
from hyperplane.collections.frames.task_errors import run_in_partition
from hyperplane.collections.frames.time_parsing import (
    get_result_unit,
    has_swapped_day_and_month,
    parse_numbers,
    parse_text,
)
from hyperplane.core.argument_checks import find_flag_faults, is_one_of
from hyperplane.core.column_cast import cast_column
from hyperplane.core.dask_internals.frames import Assign, new_collection
from hyperplane.core.errors import DataError, Fault
from hyperplane.core.public_calls import check_call
from hyperplane.formats.pandas_frames.categories import decode_categories

#: Time units, the coarsest first.
_UNITS = ("s", "ms", "us", "ns")
#: Maximum number of values in an error.
_MAX_SHOWN = 5


@check_call
def to_datetime(
    df: Frame,
    column: str,
    format: str | None = None,  # noqa: A002
    errors: Literal["raise", "coerce"] = "raise",
    *,
    utc: bool = False,
    unit: Literal["s", "ms", "us", "ns"] | None = None,
    dayfirst: bool = False,
) -> dd.DataFrame:
    """Convert a column of text or numbers to times.

    Without a format each value is parsed separately, as ISO 8601 or else in any format that pandas
    recognizes, so that the result does not depend on other values or on partitions. 1/2/2026 is
    January 2, or February 1 with ``dayfirst=True``. Day and month are never swapped: 13/2/2026
    is a time only with ``dayfirst=True``, while pandas returns February 13 in both cases. A
    column of times keeps its unit, and its time zone unless ``utc`` is True.

    Parameters
    ----------
    df : dask.dataframe.DataFrame, URL or list of URLs
        The rows. URLs are read with :func:`read`.
    column : str
        The column to convert. It keeps its name and position.
    format : str, optional
        As for ``strptime``, such as ``"%d.%m.%Y %H:%M"``. All values must have this format.
        Parsing with a format is about ten times faster.
    errors : {"raise", "coerce"}
        Raise an error for values that are not times, or make them missing.
    utc : bool
        Return times in UTC; required if values have UTC offsets, such as ``+02:00``. Times of
        another zone are converted, times without a zone are taken as UTC.
    unit : {"s", "ms", "us", "ns"}, optional
        Unit of numbers, counted since 1970-01-01; not together with ``format``.
    dayfirst : bool
        Whether 1/2/2026 is February 1.

    Returns
    -------
    dask.dataframe.DataFrame
        Lazy, with the column of type ``datetime64[us]`` or ``datetime64[us, UTC]``; text with
        more digits is truncated to microseconds. Numbers with ``unit="ns"`` become
        ``datetime64[ns]``, a column of times keeps its type and unit, and Arrow dates become
        ``datetime64[s]``, as in Dask.

    Raises
    ------
    RequestError
        With every invalid argument.
    DataError
        When it is computed, with examples of the values that are not times. It has ``column``.

    Examples
    --------
    >>> import pandas as pd, dask.dataframe as dd
    >>> log = pd.DataFrame({"at": ["2026-01-31 10:00", "01/02/2026", None]})
    >>> df = dd.from_pandas(log, npartitions=1)
    >>> to_datetime(df, "at", dayfirst=True).compute()["at"].dt.date.to_list()
    [datetime.date(2026, 1, 31), datetime.date(2026, 2, 1), NaT]
    """
    df = as_collection(df)
    like = df._meta
    with collect_faults() as faults:
        faults += find_column_faults(like, column=[column]) + find_flag_faults(
            utc=utc, dayfirst=dayfirst
        )
        if not is_one_of(errors, ("raise", "coerce")):
            faults.append(Fault("errors", repr(errors)[:80], "'raise' or 'coerce'"))
        if not is_one_of(unit, (None, *_UNITS)):
            faults.append(Fault("unit", repr(unit)[:80], f"one of {', '.join(_UNITS)}"))
        time_format: Any = format
        if not isinstance(time_format, str | None):
            allowed = "text such as '%d.%m.%Y', or None"
            faults.append(Fault("format", repr(time_format)[:80], allowed))
        elif format is not None and utc is False and re.search(r"(?<!%)(?:%%)*%:?[zZ]", format):
            advice = "write utc=True for times in UTC"
            faults.append(Fault("format", repr(format), "a format without %z and %Z", advice))
        if has_column(like, column):
            faults += _find_type_faults(like[column].dtype, column, format, unit)
    column_dtype = like[column].dtype
    time_dtype: Any = (
        column_dtype.categories.dtype
        if isinstance(column_dtype, pd.CategoricalDtype)
        else column_dtype
    )
    if pd.api.types.is_datetime64_any_dtype(time_dtype):
        times_source = (
            df
            if time_dtype is column_dtype
            else _assign_column(df, column, df[column].astype(time_dtype))
        )
        if (
            not utc
            and not _is_date(time_dtype)
            and filter_pushdown.extract_filters(times_source.expr) is not None
        ):
            return times_source  # readers of files guarantee the declared types
        meta = _dates_to_times(times_source._meta[column].iloc[:0])
        meta = convert_to_utc(meta) if utc else meta
        normalize = partial(
            run_in_partition, normalize_times, column=column, utc=utc, like=meta.dtype
        )
        times = times_source[column].map_partitions(normalize, meta=meta, enforce_metadata=False)
        return _assign_column(df, column, times)
    parse = partial(
        run_in_partition,
        parse_partition,
        column=column,
        time_format=format,
        errors=errors,
        utc=utc,
        unit=unit,
        dayfirst=dayfirst,
    )
    result_unit = get_result_unit(unit)
    meta = pd.Series(
        dtype=f"datetime64[{result_unit}, UTC]" if utc else f"datetime64[{result_unit}]",
        name=column,
    )
    times = df[column].map_partitions(parse, meta=meta, enforce_metadata=False)
    return _assign_column(df, column, times)


def _assign_column(df: dd.DataFrame, column: str, values: dd.Series) -> dd.DataFrame:
    """Replace a column of a collection; ``df.assign`` cannot assign a column named ``self``."""
    return new_collection(Assign(df.expr, column, values.expr))


def _find_type_faults(
    dtype: Any, column: str, time_format: str | None, unit: str | None
) -> list[Fault]:
    is_number = pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_bool_dtype(dtype)
    if is_number and unit is None and time_format is None:
        allowed = f"one of {', '.join(_UNITS)} for numbers: {column!r} is of type {dtype}"
        return [Fault("unit", "None", allowed)]
    if unit is not None and time_format is not None:
        allowed = f"None with format={time_format!r}"
        return [Fault("unit", repr(unit), allowed, "leave one of them out")]
    if not is_number and unit is not None:
        return [Fault("unit", repr(unit), f"None: {column!r} is of type {dtype}, not a number")]
    if pd.api.types.is_bool_dtype(dtype) or pd.api.types.is_timedelta64_dtype(dtype):
        return [Fault("column", f"{column!r} of type {dtype}", "text, numbers or times")]
    return []


def normalize_times(values: Any, column: str, utc: bool, like: Any) -> Any:
    """Convert a partition of times to the declared type, in another unit if that loses digits.

    A DataError is raised if the values are not times, or if only they or only the declared type
    have a time zone.
    """
    if isinstance(values.dtype, pd.CategoricalDtype):
        values = decode_categories(values).set_axis(values.index)
    if values.isna().all():
        has_unit = pd.api.types.is_datetime64_any_dtype(values.dtype) and not _is_date(values.dtype)
        units = [pd.Series(dtype=like).dt.unit, *([values.dt.unit] if has_unit else [])]
        dtype = _replace_unit(like, min(units, key=_UNITS.index))
        return pd.Series(None, values.index, dtype=dtype, name=values.name)
    if not pd.api.types.is_datetime64_any_dtype(values.dtype):
        first = values[values.notna()].iloc[0]
        raise DataError(
            column,
            f"holds {first!r:.60} of type {values.dtype}, but the declared type is a type of "
            "times; convert the column to object before, so that text is parsed",
        )
    values = _dates_to_times(values)
    if utc:
        return _convert_unit(convert_to_utc(values), like)
    zone, declared_zone = values.dt.tz, pd.Series(dtype=like).dt.tz
    if (zone is None) != (declared_zone is None):
        zone_text = "without a time zone" if zone is None else f"in {zone}"
        declared_text = "has no time zone" if declared_zone is None else f"is in {declared_zone}"
        raise DataError(
            column,
            f"holds times {zone_text}, such as {values.dropna().iloc[0]!s:.60}, but the declared "
            f"type {declared_text}; write utc=True for times in UTC",
        )
    in_declared_zone = zone is None or str(zone) == str(declared_zone)
    return _convert_unit(values if in_declared_zone else values.dt.tz_convert(declared_zone), like)


def _convert_unit(times: Any, like: Any) -> Any:
    """Convert times to a type, in the coarsest unit that keeps every digit.

    The units tried are the declared one, microseconds and that of the times, but none that is
    coarser than the declared one or finer than that of the times: finer units have a smaller range,
    and pandas concatenates partitions in the finest unit.
    """
    if times.dtype == like:
        return times
    finest, declared_unit = times.dt.unit, pd.Series(dtype=like).dt.unit
    units = [unit for unit in _UNITS if unit in (finest, declared_unit, "us")]
    coarsest = min(finest, declared_unit, key=_UNITS.index)
    for unit in units[units.index(coarsest) : units.index(finest)]:
        try:
            converted = cast_column(times, _replace_unit(like, unit))
        except pa.ArrowException:  # Arrow refuses to truncate
            continue
        if cast_column(converted, times.dtype).equals(times):
            return converted
    return cast_column(times, _replace_unit(like, finest))


def _replace_unit(dtype: Any, unit: str) -> str:
    """Return the name of a type of times with another unit."""
    return re.sub(r"\[(?:s|ms|us|ns)\b", f"[{unit}", str(dtype), count=1)


def _is_date(dtype: Any) -> bool:
    """Return whether a type is an Arrow date; pandas counts these among times."""
    return isinstance(dtype, pd.ArrowDtype) and pa.types.is_date(dtype.pyarrow_dtype)


def _dates_to_times(values: Any) -> Any:
    """Convert Arrow dates to times at midnight; return other values unchanged."""
    return values.astype("datetime64[s]") if _is_date(values.dtype) else values


def convert_to_utc(times: Any) -> Any:
    """Convert times to UTC; times without a zone are taken as UTC."""
    return times.dt.tz_localize("UTC") if times.dt.tz is None else times.dt.tz_convert("UTC")


def parse_partition(
    values: Any,
    column: str,
    time_format: str | None,
    errors: str,
    utc: bool,
    unit: str | None,
    dayfirst: bool,
) -> pd.Series[Any]:
    """Parse the values of one partition; a DataError has examples of values that are not times."""
    if isinstance(values.dtype, pd.CategoricalDtype):
        values = decode_categories(values).set_axis(values.index)
    if unit is not None:
        times: Any = parse_numbers(values, unit)
    elif pd.api.types.is_datetime64_any_dtype(values.dtype):
        if values.dt.tz is not None and not utc:  # possible for unknown categories only
            message = f"holds times in {values.dt.tz}; write utc=True for times in UTC"
            raise DataError(column, message)
        times = convert_to_utc(values)
    else:
        text = _mask_bytes(values).astype("str")
        text = text.where(values.notna())
        times = parse_text(text, time_format, dayfirst, column, utc)
    invalid = values[times.isna() & values.notna()]
    if len(invalid) and errors == "raise":
        shown = ", ".join(
            repr(value) for value in invalid.drop_duplicates().head(_MAX_SHOWN).tolist()
        )
        kind = f"not times in the format {time_format!r}" if time_format else "not times"
        advice = "give their format=, or errors='coerce' to make them missing"
        text = _mask_bytes(invalid).astype("str")
        if unit is None and time_format is None and has_swapped_day_and_month(text, dayfirst).all():
            kind = f"not times with the {'day' if dayfirst else 'month'} first"
            advice = f"write dayfirst={not dayfirst}, or the format= of all values"
        raise DataError(
            column,
            f"{len(invalid):,} of {len(values):,} values of a partition are {kind}, such as "
            f"{shown}; {advice}",
        )
    times = times.dt.tz_convert("UTC").dt.as_unit(get_result_unit(unit))
    return times.rename(column) if utc else times.dt.tz_localize(None).rename(column)


def _mask_bytes(values: pd.Series[Any]) -> Any:
    """Make bytes missing: they are not times, and would be decoded as text otherwise."""
    dtype: Any = values.dtype
    if isinstance(dtype, pd.ArrowDtype) and pa.types.is_binary(dtype.pyarrow_dtype):
        return pd.Series(None, values.index, dtype=object)
    is_object = dtype == np.dtype(object)
    if not is_object or pd.api.types.infer_dtype(values, skipna=True) not in (
        "bytes",
        "mixed",
    ):
        return values
    return values.mask(values.map(lambda value: isinstance(value, (bytes, bytearray))))
