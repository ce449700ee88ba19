"""Conversion of a column of text or numbers to times in UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from hyperplane.core.errors import DataError

#: pandas 2 converts text, and all numbers but nullable integers, in nanoseconds, which begin in the
#: year 1677 and end in 2262.
_IS_PANDAS_2 = pd.__version__.startswith("2.")
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
#: A UTC offset after a time of day; without a time of day, "-2026" is the year of a date.
_OFFSET = r"(?:\d:\d\d(?:[.,]\d+)?|T\d{4,6}(?:[.,]\d+)?)\s*(?:Z|[+-]\d\d:?(?:\d\d)?)$"
#: Dates of three numbers, with the year last or first. pandas silently swaps month and day of a
#: value that is not a date in the requested order; these patterns find such values.
_YEAR_LAST = (
    r"(?<!\d)(?P<first>\d{1,2})(?P<by>[./\- ])(?P<second>\d{1,2})(?P=by)(?:\d{4}|\d{2})(?!\d)"
)
_BEGINS_WITH_YEAR = r"^\s*\d{4}[./\- ]\d{1,2}[./\- ]\d"
_YEAR_FIRST = r"(?<!\d)\d{4}(?P<by>[./\- ])(?P<month>\d{1,2})(?P=by)\d{1,2}(?!\d)"


def get_result_unit(unit: str | None) -> str:
    """Return the time unit of numbers in a unit, or of text."""
    return "ns" if unit == "ns" else "us"


def parse_numbers(values: pd.Series[Any], unit: str) -> pd.Series[Any]:
    """Convert numbers to times in UTC, each independent of the others."""
    # No overload of to_datetime has all these arguments.
    convert: Any = partial(pd.to_datetime, unit=unit, errors="coerce", utc=True)
    dtype: Any = values.dtype
    arrow = dtype.pyarrow_dtype if isinstance(dtype, pd.ArrowDtype) else pa.null()
    # Arrow does not compare integers beyond 2**53 with floats.
    if dtype.kind == "u":  # before version 3.1, pandas reads larger ones as negative
        values = values.astype("UInt64")
        values = values.mask(values >= 2**63).astype("Int64")
    elif pa.types.is_integer(arrow) or (_IS_PANDAS_2 and dtype.kind == "i"):
        values = values.astype("Int64")
    elif pa.types.is_float16(arrow):  # pandas 2 does not compare these
        values = values.astype("Float32")
    # If one number is infinite, pandas considers other numbers out of bounds, too.
    finite = values.where(~values.isin([float("inf"), float("-inf")]))
    if not pd.api.types.is_float_dtype(finite.dtype):
        return _set_unit(convert(finite), get_result_unit(unit))
    # If one number is a fraction, pandas converts all of them to nanoseconds.
    numbers = finite.to_numpy("float64", na_value=float("nan"))
    fractions = pd.Series(numbers % 1 > 0, finite.index)
    whole = finite.mask(fractions)
    if _IS_PANDAS_2:
        whole = pd.Series(numbers, finite.index).mask(fractions | (abs(numbers) >= 2**63))
        whole = whole.astype("Int64")
    times = _set_unit(convert(whole), get_result_unit(unit))
    if fractions.any():
        times[fractions] = _set_unit(convert(finite[fractions]), get_result_unit(unit))
    return times


def _set_unit(times: Any, unit: str) -> Any:
    """Return times in a unit; times out of its bounds become missing, as in pandas 3.1."""
    factor = _PER_SECOND[unit] // _PER_SECOND[times.dt.unit]
    if factor > 1:  # pandas 3.0 raises OutOfBoundsDatetime for all of them
        ticks = times.astype("int64")
        times = times.where(ticks.abs() <= np.iinfo("int64").max // factor)
    return times.dt.as_unit(unit).copy()  # pandas 2 warns if the result itself is changed


def parse_text(
    text: pd.Series[Any], time_format: str | None, dayfirst: bool, column: str, utc: bool
) -> pd.Series[Any]:
    """Parse text to times in UTC; times without an offset are taken as UTC."""
    if not utc:
        offsets = (
            text[text.str.contains(_OFFSET, na=False)] if time_format is None else text.iloc[:0]
        )
        if len(offsets):
            raise DataError(
                column,
                f"{len(offsets):,} values have an offset from UTC, such as {offsets.iloc[0]!r}; "
                "write utc=True for times in UTC",
            )
    convert: Any = pd.to_datetime
    times = convert(text, format=time_format or "ISO8601", errors="coerce", utc=True)
    if _IS_PANDAS_2 and utc and time_format is None:
        # With the format ISO8601 it gives text without an offset the offset of the text before.
        times = convert(text.where(times.notna()), format="mixed", errors="coerce", utc=True)
    unparsed = times.isna() & text.notna()
    if not unparsed.any() or (time_format is not None and not _IS_PANDAS_2):
        return times
    unparsed_text = text[unparsed]
    others = times[unparsed]
    if time_format is None:
        others = _parse_mixed(unparsed_text, dayfirst)
    # In nanoseconds the range of years would be too small for some values.
    times, others = _set_unit(times, "us"), _set_unit(others, "us")
    if _IS_PANDAS_2:
        others = others.fillna(_parse_distant_years(unparsed_text, time_format, dayfirst))
    if time_format is None:
        others[
            has_swapped_day_and_month(unparsed_text, dayfirst) | _has_month_above_12(unparsed_text)
        ] = pd.NaT
    times[unparsed] = others
    return times


def _parse_mixed(text: pd.Series[Any], dayfirst: bool) -> pd.Series[Any]:
    """Parse text in several formats to times in UTC; after a year at the beginning is the month."""
    convert: Any = partial(pd.to_datetime, format="mixed", errors="coerce", utc=True)
    times = _set_unit(convert(text, dayfirst=dayfirst), "us")
    begins = text.str.contains(_BEGINS_WITH_YEAR, na=False)
    if dayfirst and begins.any():
        times[begins] = _set_unit(convert(text[begins]), "us").array
    return times


def _parse_distant_years(
    text: pd.Series[Any], time_format: str | None, dayfirst: bool
) -> pd.Series[Any]:
    """Parse text to times in UTC that nanoseconds cannot represent; others are missing."""

    def parse(value: str) -> Any:
        try:
            if time_format is None:
                first = dayfirst and not re.match(_BEGINS_WITH_YEAR, value)
                return pd.DatetimeIndex([value], dtype="datetime64[us, UTC]", dayfirst=first)[0]
            time = datetime.strptime(value, time_format)
            return pd.Timestamp(time if time.tzinfo else time.replace(tzinfo=UTC)).tz_convert("UTC")
        except (ValueError, OverflowError):
            return pd.NaT

    codes, values = pd.factorize(text)
    times = pd.Series([parse(value) for value in values], dtype="datetime64[us, UTC]")
    is_distant = (times.dt.year < 1678) | (times.dt.year > 2261)
    return times.where(is_distant).take(codes).set_axis(text.index)


def has_swapped_day_and_month(text: pd.Series[Any], dayfirst: bool) -> pd.Series[Any]:
    """Return a mask of texts that are dates only with day and month swapped."""
    numbers = text.astype(object).str.extract(_YEAR_LAST)
    return pd.to_numeric(numbers["second" if dayfirst else "first"]) > 12


def _has_month_above_12(text: pd.Series[Any]) -> pd.Series[Any]:
    """Return a mask of texts in which a number above 12 follows the year, in place of the month."""
    return pd.to_numeric(text.astype(object).str.extract(_YEAR_FIRST)["month"]) > 12
