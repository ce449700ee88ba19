"""Cells of time: pieces so small that each lies whole in one window, wherever the windows begin.

Where pandas puts the edges of its windows depends on the first time of the whole data: windows of
``7h`` begin at the midnight before it. A task knows only its own rows, so it groups by cells that
need no such knowledge, and pandas itself sorts the cells into windows at the end, when the first
time is known. For the usual widths (a day, an hour, 15 minutes) a cell is a window.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa

from hyperplane.collections.flags import is_one_of
from hyperplane.collections.frames.arguments import has_column
from hyperplane.errors import Fault, check

Side = Literal["left", "right"]
DAY = 86_400 * 10**9
#: Characters that the text of a width may have.
_MAX_LENGTH = 100
#: Column of partial tables that holds the cell.
BIN = "__cell__"
#: Column of partial tables that holds an instant of the cell, where the cell itself is local.
INSTANT = "__instant__"
#: Column of partial tables that holds the last such instant.
LAST_INSTANT = "__last__"
#: Column with the place of each row in the whole data, where first and last depend on it.
ROW_NUMBER = "__row__"
#: Names of frequencies that pandas no longer knows, and those that it has for them now.
_RENAMED_ALIASES = {
    **{"H": "h", "T": "min", "S": "s", "L": "ms", "U": "us", "N": "ns", "M": "ME", "Q": "QE"},
    **{"Y": "YE", "A": "YE", "AS": "YS", "BH": "bh", "BM": "BME", "BQ": "BQE", "BY": "BYE"},
    **{"BA": "BYE", "BAS": "BYS", "SM": "SME", "CBM": "CBME"},
    **{"w": "W", "wk": "W", "week": "W", "weeks": "W", "m": "min", "month": "MS", "months": "MS"},
    **{"quarter": "QS", "quarters": "QS", "year": "YS", "years": "YS"},
}
#: Words for widths that mean one thing only. Weeks and longer ones have several beginnings.
_WIDTH_WORDS = {
    **{"d": "D", "day": "D", "days": "D", "hr": "h", "hrs": "h", "hour": "h", "hours": "h"},
    **dict.fromkeys(("min", "mins", "minute", "minutes"), "min"),
    **dict.fromkeys(("sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("msec", "msecs", "millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("usec", "usecs", "microsecond", "microseconds"), "us"),
    **{"nanosecond": "ns", "nanoseconds": "ns"},
}
_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_EXAMPLE = pd.DatetimeIndex(["2024-01-01 00:00", "2024-01-01 01:00"])


@dataclass(frozen=True)
class TimeWindows:
    """The windows that were asked for, and the cells that they are made of.

    Parameters
    ----------
    time : str
        Column of the times.
    every : str
        Width, as a frequency of pandas.
    closed, label : {"left", "right"} or None
        As in pandas.Grouper.
    width : int
        Nanoseconds of a cell.
    exact : bool
        Whether each cell is a whole window. Where it is not, instants on the edge between two
        cells make a cell of their own: only pandas knows to which side they belong.
    zone : str or None
        Time zone whose calendar days the cells follow; None where instants will do.
    shift : int
        Nanoseconds that the calendar's days are ahead of UTC, for zones of a fixed offset.
    reach : int
        Nanoseconds that no window is longer than.
    instants : bool
        Whether tables keep an instant of each cell beside it: of a day of some zone, the cell
        itself is no instant.
    """

    time: str
    every: str
    closed: Side | None
    label: Side | None
    bin_width: int
    exact: bool
    zone: str | None
    utc_offset: int
    max_width: int
    keeps_instants: bool = False

    def grouper(self) -> pd.Grouper:
        """What pandas would group by; its values are the index."""
        return pd.Grouper(freq=self.every, closed=self.closed, label=self.label)


def parse_windows(
    like: pd.DataFrame, time: str, every: str, closed: Any, label: Any
) -> TimeWindows:
    """Check the arguments of a time window against a frame, and choose the cells.

    Raises
    ------
    RequestError
        With all that is wrong.
    """
    dtype: Any = like[time].dtype if has_column(like, time) else None
    faults = [
        Fault(name, repr(side)[:80], "'left', 'right' or None for the default of pandas")
        for name, side in (("closed", closed), ("label", label))
        if not is_one_of(side, ("left", "right", None))
    ]
    is_date = isinstance(dtype, pd.ArrowDtype) and pa.types.is_date(dtype.pyarrow_dtype)
    if is_date:
        advice = f"make times of them: df[{time!r}].astype('datetime64[us]')"
        faults.append(Fault("time", f"{time!r} of type {dtype}", "a column of times", advice))
    elif dtype is not None and not pd.api.types.is_datetime64_any_dtype(dtype):
        advice = (
            f"write df = hyperplane.dataframe.to_datetime(df, {time!r}) first, for text with its "
            "format= or dayfirst=True where the day comes before the month"
        )
        faults.append(Fault("time", f"{time!r} of type {dtype}", "a column of times", advice))
    given, every = every, normalize_width(every)
    offset = _parse_offset(every)
    if offset is None:
        allowed = "a frequency of pandas, such as '15min', '1h', '1D', 'W' or 'MS'"
        faults.append(Fault("every", repr(given)[:80], allowed, _suggest_alias(given)))
    width = None if offset is None else _get_fixed_width(offset)
    if width is not None and dtype is not None and not faults:
        faults += _find_unit_faults(time, dtype, given, width)
    check(faults)
    zone = _get_zone(dtype)
    if width is not None and not (zone and isinstance(offset, pd.offsets.Day)):
        step = math.gcd(width, _get_midnight_step(zone))
        return TimeWindows(time, every, closed, label, step, step == width, None, 0, width)
    fixed = _get_fixed_offset(zone)
    exact = isinstance(offset, pd.offsets.Day) and offset.n == 1
    named = None if zone is None or fixed is not None else str(zone)
    aware = zone is not None
    return TimeWindows(
        time,
        every,
        closed,
        label,
        DAY,
        exact,
        named,
        fixed or 0,
        _measure_longest_width(offset),
        aware,
    )


def _find_unit_faults(time: str, dtype: Any, every: str, width: int) -> list[Fault]:
    """A fault when edges of windows would lie between two times that the column can hold."""
    unit = _get_unit(dtype)
    if width % _NANOSECONDS[unit] == 0:
        return []
    allowed = f"a whole number of {unit}: {time!r} is of type {dtype}"
    finer = str(dtype).replace(f"[{unit}", "[ns")
    advice = f"make its times finer first: df[{time!r}].astype({finer!r})"
    return [Fault("every", repr(every), allowed, advice)]


def _get_unit(dtype: Any) -> str:
    return str(
        dtype.pyarrow_dtype.unit
        if isinstance(dtype, pd.ArrowDtype)
        else np.datetime_data(dtype.base)[0]
    )


def normalize_width(every: Any) -> Any:
    """A width in words as a frequency of pandas; anything else as it is.

    Examples
    --------
    >>> in_letters("1day"), in_letters("2 hours"), in_letters("15min")
    ('1D', '2h', '15min')
    """
    parts = re.fullmatch(r"\s*(\d*)\s*([A-Za-z]+)\s*", every) if isinstance(every, str) else None
    word = parts and _WIDTH_WORDS.get(parts[2].lower() if len(parts[2]) > 1 else parts[2])
    return f"{parts[1]}{word}" if parts and word else every


def _parse_offset(every: Any) -> Any:
    # What pandas does with a text takes time that grows with the square of its length.
    if isinstance(every, str) and len(every) > _MAX_LENGTH:
        return None
    try:
        offset: Any = pd.tseries.frequencies.to_offset(every)
        if offset is not None and _get_fixed_width(offset) is None:
            pd.Series(1, index=_EXAMPLE).groupby(pd.Grouper(freq=offset)).size()
    except (ValueError, TypeError, AttributeError, ArithmeticError):
        return None
    if offset is None or offset.n <= 0:
        return None
    if _get_fixed_width(offset) is None:  # of the calendar: hours of business would divide the days
        steps = pd.date_range("2023-12-31", periods=30, freq=offset)
        return offset if (steps == steps.normalize()).all() else None
    return offset


def _suggest_alias(every: Any) -> str:
    """Advice for what older releases of pandas called a frequency."""
    parts = re.fullmatch(r"\s*(\d*)\s*([A-Za-z]+)(-[A-Za-z]+)?\s*", str(every))
    name = parts and _RENAMED_ALIASES.get(parts[2])
    if not parts or not name:
        return ""
    month = ""
    if parts[2] == "M":
        month = ", or 'MS' to name months by their first day"
    elif parts[2] == "m":
        month = f", or {parts[1] + 'MS'!r} for months"
    return f"write {parts[1] + name + (parts[3] or '')!r}{month}"


def _get_fixed_width(offset: Any) -> int | None:
    """Nanoseconds of a width that is always the same."""
    if isinstance(offset, pd.offsets.Day):
        return int(offset.n) * DAY
    if isinstance(offset, pd.offsets.Tick):
        return pd.Timedelta(offset).as_unit("ns").value
    return None


def _measure_longest_width(offset: Any) -> int:
    """Nanoseconds between two edges, rounded up: measured over some steps of the calendar."""
    start = pd.Timestamp("2023-12-31")
    steps = pd.date_range(start, periods=30, freq=offset)
    longest = (steps[1:] - steps[:-1]).max()
    return pd.Timedelta(longest + pd.Timedelta(days=10)).as_unit("ns").value


def _get_zone(dtype: Any) -> tzinfo | None:
    if isinstance(dtype, pd.ArrowDtype):
        values: Any = pd.Series([], dtype=dtype)
        return values.dt.tz
    return getattr(dtype, "tz", None)


def _get_fixed_offset(zone: tzinfo | None) -> int | None:
    """Nanoseconds ahead of UTC, for a zone that has no name and no rules."""
    offset = None if zone is None else zone.utcoffset(None)
    return None if offset is None else int(offset.total_seconds()) * 10**9


@lru_cache
def _get_midnight_step(zone: tzinfo | None) -> int:
    """Nanoseconds of which every local midnight since 1970 is a multiple, counted in UTC."""
    if zone is None:
        return DAY
    fixed = _get_fixed_offset(zone)
    if fixed is not None:
        return math.gcd(DAY, fixed)
    offsets = {
        datetime(year, month, 1, tzinfo=UTC).astimezone(zone).utcoffset()
        for year in range(1970, 2040)
        for month in range(1, 13)
    }
    seconds = [int(offset.total_seconds()) for offset in offsets if offset is not None]
    return math.gcd(86_400, *seconds) * 10**9
