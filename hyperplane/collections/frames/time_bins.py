"""Time bins: intervals that each lie within one window, wherever the windows begin.

The edges of pandas' windows depend on the first time of the whole data: windows of ``7h`` begin at
the midnight before that time. A task has only the rows of its partition, so it groups by bins,
which do not depend on other rows. The last task, which knows the first time, assigns bins to
windows with pandas. For common widths (a day, an hour, 15 minutes) a bin is a window.
"""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa

from hyperplane.collections.frames.arguments import has_column
from hyperplane.core.argument_checks import is_one_of
from hyperplane.core.errors import Fault, check

Side = Literal["left", "right"]
DAY = 86_400 * 10**9
_HOUR = 3_600 * 10**9
#: Maximum characters of a width.
_MAX_LENGTH = 100
#: Column of partial tables with the bin.
BIN = "__bin__"
#: Column of partial tables with the first instant in a bin, if bins are local days.
INSTANT = "__instant__"
#: Column of partial tables with the last instant in a bin, if bins are local days.
LAST_INSTANT = "__last__"
#: Column with the position of a row in the whole data, if ``first`` or ``last`` depend on it.
ROW_NUMBER = "__row__"
#: Frequency aliases that pandas has removed -> their replacements.
_RENAMED_ALIASES = {
    **{"H": "h", "T": "min", "S": "s", "L": "ms", "U": "us", "N": "ns", "M": "ME", "Q": "QE"},
    **{"Y": "YE", "A": "YE", "AS": "YS", "BH": "bh", "BM": "BME", "BQ": "BQE", "BY": "BYE"},
    **{"BA": "BYE", "BAS": "BYS", "SM": "SME", "CBM": "CBME"},
    **{"w": "W", "wk": "W", "week": "W", "weeks": "W", "m": "min", "month": "MS", "months": "MS"},
    **{"quarter": "QS", "quarters": "QS", "year": "YS", "years": "YS"},
}
#: Unambiguous words for widths. Words for weeks and longer units are not among them: such windows
#: could begin on several days.
_WIDTH_WORDS = {
    **{"d": "D", "day": "D", "days": "D", "hr": "h", "hrs": "h", "hour": "h", "hours": "h"},
    **dict.fromkeys(("min", "mins", "minute", "minutes"), "min"),
    **dict.fromkeys(("sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("msec", "msecs", "millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("usec", "usecs", "microsecond", "microseconds"), "us"),
    **{"nanosecond": "ns", "nanoseconds": "ns"},
}
_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
#: Times with which pandas tries a frequency.
_EXAMPLE = pd.DatetimeIndex(["2024-01-01 00:00", "2024-01-01 01:00"])


@dataclass(frozen=True)
class TimeWindows:
    """Time windows of a call and the bins that compose them."""

    #: Column of the times.
    time: str
    #: Width of a window, as a frequency of pandas.
    every: str
    #: Closed side and label of a window, as in pandas.Grouper.
    closed: Side | None
    label: Side | None
    #: Nanoseconds of a bin.
    bin_width: int
    #: Whether each bin is a whole window. Otherwise instants on the edge between two bins form a
    #: separate bin, because the closed side decides to which window they belong.
    exact: bool
    #: Time zone whose calendar days are the bins; None if bins are counted in UTC.
    zone: str | None
    #: Nanoseconds that local time is ahead of UTC, for zones with a fixed offset.
    utc_offset: int
    #: Upper bound of the nanoseconds of a window.
    max_width: int
    #: Whether tables keep the first and last instant of each bin, because bins are local days.
    keeps_instants: bool = False

    def grouper(self) -> pd.Grouper:
        """Return the grouper of pandas for these windows; days become hours if that is equal."""
        every: str = self.every
        offset: Any = pd.tseries.frequencies.to_offset(every)
        if isinstance(offset, pd.offsets.Day) and not self.keeps_instants:
            # With days closed on the right, pandas 3.0 begins with an additional, empty window.
            every = f"{offset.n * DAY // _HOUR}h"
        return pd.Grouper(freq=every, closed=self.closed, label=self.label)


def parse_windows(
    like: pd.DataFrame, time: str, every: str, closed: Any, label: Any
) -> TimeWindows:
    """Check the arguments of time windows against a frame and choose the bins."""
    dtype: Any = like[time].dtype if has_column(like, time) else None
    faults = [
        Fault(name, repr(side)[:80], "'left', 'right' or None for the pandas default")
        for name, side in (("closed", closed), ("label", label))
        if not is_one_of(side, ("left", "right", None))
    ]
    is_date = isinstance(dtype, pd.ArrowDtype) and pa.types.is_date(dtype.pyarrow_dtype)
    if is_date:
        advice = f"convert dates to times: df[{time!r}].astype('datetime64[us]')"
        faults.append(Fault("time", f"{time!r} of type {dtype}", "a column of times", advice))
    elif dtype is not None and not pd.api.types.is_datetime64_any_dtype(dtype):
        advice = (
            f"write df = hyperplane.dataframe.to_datetime(df, {time!r}) first, for text with "
            "format=..., or with dayfirst=True if the day comes before the month"
        )
        faults.append(Fault("time", f"{time!r} of type {dtype}", "a column of times", advice))
    given_width, every = every, normalize_width(every)
    offset = _parse_offset(every)
    if offset is None:
        allowed = "a frequency of pandas, such as '15min', '1h', '1D', 'W' or 'MS'"
        faults.append(Fault("every", repr(given_width)[:80], allowed, _suggest_alias(given_width)))
    width = None if offset is None else _get_fixed_width(offset)
    if width is not None and dtype is not None and not faults:
        faults += _find_unit_faults(time, dtype, given_width, width)
    check(faults)
    zone = _get_zone(dtype)
    if width is not None and not (zone and isinstance(offset, pd.offsets.Day)):
        step = math.gcd(width, _get_midnight_step(zone))
        return TimeWindows(time, every, closed, label, step, step == width, None, 0, width)
    fixed_offset = _get_fixed_offset(zone)
    exact = isinstance(offset, pd.offsets.Day) and offset.n == 1
    zone_name = None if zone is None or fixed_offset is not None else str(zone)
    is_zoned = zone is not None
    return TimeWindows(
        time,
        every,
        closed,
        label,
        DAY,
        exact,
        zone_name,
        fixed_offset or 0,
        _measure_longest_width(offset),
        is_zoned,
    )


def _find_unit_faults(time: str, dtype: Any, every: str, width: int) -> list[Fault]:
    """Return a fault if the edges of windows are finer than the time unit of the column."""
    unit = _get_unit(dtype)
    if width % _NANOSECONDS[unit] == 0:
        return []
    allowed = f"a whole number of {unit}: {time!r} is of type {dtype}"
    finer = str(dtype).replace(f"[{unit}", "[ns")
    advice = f"convert it to a finer unit first: df[{time!r}].astype({finer!r})"
    return [Fault("every", repr(every), allowed, advice)]


def _get_unit(dtype: Any) -> str:
    """Return the time unit of a NumPy or Arrow type of times."""
    return str(
        dtype.pyarrow_dtype.unit
        if isinstance(dtype, pd.ArrowDtype)
        else np.datetime_data(dtype.base)[0]
    )


def normalize_width(every: Any) -> Any:
    """Convert a width in words to a frequency of pandas; return other values unchanged.

    Examples
    --------
    >>> normalize_width("1day"), normalize_width("2 hours"), normalize_width("15min")
    ('1D', '2h', '15min')
    """
    match = re.fullmatch(r"\s*(\d*)\s*([A-Za-z]+)\s*", every) if isinstance(every, str) else None
    word = match and _WIDTH_WORDS.get(match[2].lower() if len(match[2]) > 1 else match[2])
    return f"{match[1]}{word}" if match and word else every


def _parse_offset(every: Any) -> Any:
    """Return the offset of pandas for a width; None if the width is not supported."""
    # pandas parses the text in quadratic time.
    if isinstance(every, str) and len(every) > _MAX_LENGTH:
        return None
    try:
        with warnings.catch_warnings():
            # Of pandas 2 about aliases that pandas 3 has removed, such as "15m" for 15 months.
            warnings.simplefilter("error", FutureWarning)
            offset: Any = pd.tseries.frequencies.to_offset(every)
        if offset is not None and _get_fixed_width(offset) is None:
            pd.Series(1, index=_EXAMPLE).groupby(pd.Grouper(freq=offset)).size()
    except (ValueError, TypeError, AttributeError, ArithmeticError, FutureWarning):
        return None
    if offset is None or offset.n <= 0:
        return None
    if _get_fixed_width(offset) is None:  # a calendar offset that may divide days: business hours
        steps = pd.date_range("2023-12-31", periods=30, freq=offset)
        return offset if (steps == steps.normalize()).all() else None
    return offset


def _suggest_alias(every: Any) -> str:
    """Return advice for a frequency alias of an older release of pandas; empty for others."""
    match = re.fullmatch(r"\s*(\d*)\s*([A-Za-z]+)(-[A-Za-z]+)?\s*", str(every))
    name = match and _RENAMED_ALIASES.get(match[2])
    if not match or not name:
        return ""
    month = ""
    if match[2] == "M":
        month = ", or 'MS' to name months by their first day"
    elif match[2] == "m":
        month = f", or {match[1] + 'MS'!r} for months"
    return f"write {match[1] + name + (match[3] or '')!r}{month}"


def _get_fixed_width(offset: Any) -> int | None:
    """Return the nanoseconds of a fixed width; None for calendar offsets such as months."""
    if isinstance(offset, pd.offsets.Day):
        return int(offset.n) * DAY
    if isinstance(offset, pd.offsets.Tick):
        return pd.Timedelta(offset).as_unit("ns").value
    return None


def _measure_longest_width(offset: Any) -> int:
    """Return an upper bound of the nanoseconds of a window, from 30 windows of a calendar."""
    start = pd.Timestamp("2023-12-31")
    steps = pd.date_range(start, periods=30, freq=offset)
    longest = (steps[1:] - steps[:-1]).max()
    return pd.Timedelta(longest + pd.Timedelta(days=10)).as_unit("ns").value


def _get_zone(dtype: Any) -> tzinfo | None:
    """Return the time zone of a type of times."""
    if isinstance(dtype, pd.ArrowDtype):
        values: Any = pd.Series([], dtype=dtype)
        return values.dt.tz
    return getattr(dtype, "tz", None)


def _get_fixed_offset(zone: tzinfo | None) -> int | None:
    """Return the nanoseconds ahead of UTC of a zone with a fixed offset; None for others."""
    offset = None if zone is None else zone.utcoffset(None)
    return None if offset is None else int(offset.total_seconds()) * 10**9


@lru_cache
def _get_midnight_step(zone: tzinfo | None) -> int:
    """Return the nanoseconds that divide the UTC time of every local midnight since 1970."""
    if zone is None:
        return DAY
    fixed_offset = _get_fixed_offset(zone)
    if fixed_offset is not None:
        return math.gcd(DAY, fixed_offset)
    offsets = {
        datetime(year, month, 1, tzinfo=UTC).astimezone(zone).utcoffset()
        for year in range(1970, 2040)
        for month in range(1, 13)
    }
    seconds = [int(offset.total_seconds()) for offset in offsets if offset is not None]
    return math.gcd(86_400, *seconds) * 10**9
