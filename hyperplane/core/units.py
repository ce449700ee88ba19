"""Conversion and formatting of memory sizes, numbers and durations.

GB is 10**9 bytes everywhere in this package; ``GiB`` (and ``Gi``, as in Kubernetes) is 2**30
bytes. Internally, memory is a whole number of bytes, because sums of decimal gigabytes are not
exact: ``6 * 2.1 <= 12.6`` is false in Python.
"""

from __future__ import annotations

import datetime as dt
import math
import numbers
import operator
import re
import time
from collections.abc import Iterable
from typing import Any, SupportsIndex, cast

from dask.utils import parse_timedelta

GB = 10**9
#: All integers up to this absolute value are exact as float64.
MAX_EXACT_FLOAT = 2**53

_UNITS = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgtp", start=1):
    _UNITS[_letter] = _UNITS[_letter + "b"] = 1000**_power
    _UNITS[_letter + "i"] = _UNITS[_letter + "ib"] = 1024**_power

# A comma separates groups of three digits; "5,5GB" and "0,500GB" are decimal commas.
_QUANTITY = re.compile(
    r"\s*((?:[1-9][0-9]{0,2}(?:,[0-9]{3})+|[0-9][0-9_]*)(?:\.[0-9]*)?|\.[0-9]+)"
    r"(e[+-]?[0-9]+)?\s*([a-z]*)\s*"
)
#: Units of sizes, for messages.
UNITS_OF_SIZE = "B, kB, MB, GB, TB, PB, KiB, MiB, GiB, TiB, PiB"
#: Text that is likely a size with a wrong number or unit.
_LIKELY_QUANTITY = re.compile(
    r"\s*([+-]?)([0-9][0-9_.,]*|[.,][0-9]+)(?:e[+-]?[0-9]+)?\s*([a-z]?i?b?s?|bytes?)\s*",
    re.ASCII | re.IGNORECASE,
)
_DECIMAL_COMMA = re.compile(r"([0-9]*(?:\.[0-9]{3})*),([0-9]+)")

_TIME = re.compile(r"\s*((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-z]*)\s*", re.ASCII)
_TIMES = (numbers.Number, dt.timedelta)
#: Common units of time that Dask does not accept -> units that it accepts.
_UNITS_OF_TIME = {
    **{"sec": "s", "secs": "s", "min": "m", "mins": "m", "hr": "h", "hrs": "h"},
    **{"wk": "w", "wks": "w", "msec": "ms", "msecs": "ms", "usec": "us", "usecs": "us"},
}


def gb_to_bytes(gigabytes: float) -> int:
    """Convert gigabytes to bytes, rounded to the nearest byte.

    Examples
    --------
    >>> gb_to_bytes(2.4)
    2400000000
    """
    if isinstance(gigabytes, int):
        return gigabytes * GB
    number = float(gigabytes)  # the product of a NumPy float16 or float32 could be infinite
    # Numbers from 2**53 on have no decimals, and their product as a float could be infinite.
    return round(number * GB) if abs(number) < MAX_EXACT_FLOAT else int(number) * GB


def bytes_to_gb(size: int) -> float:
    """Convert bytes to gigabytes.

    Examples
    --------
    >>> bytes_to_gb(2_400_000_000)
    2.4
    """
    return size / GB


def parse_bytes(text: str) -> int:
    """Parse a memory size such as ``"100GB"``, ``"4Gi"`` or ``"1.5 TB"`` into bytes.

    The unit may be in upper or lower case and follow a space. Text without a unit is in bytes.
    A comma may only separate groups of three digits, as in ``"1,500GB"``.

    Raises
    ------
    ValueError
        If the text is not a memory size.

    Examples
    --------
    >>> parse_bytes("100GB")
    100000000000
    >>> parse_bytes("4Gi")
    4294967296
    """
    match = _QUANTITY.fullmatch(text.lower())
    if match is None or match[3] not in _UNITS:
        advice = advise_on_size(text)
        message = f"{text!r} is not a memory size such as '100GB' or '4GiB'"
        raise ValueError(f"{message}; {advice}" if advice else message)
    number = float(match[1].replace(",", "").replace("_", "") + (match[2] or ""))
    size = number * _UNITS[match[3]]
    if not math.isfinite(size):
        raise ValueError(f"{text!r} is not a finite memory size")
    return round(size)


def advise_on_size(text: str) -> str:
    """Return advice for text that is not a memory size; empty if it does not look like one.

    Examples
    --------
    >>> advise_on_size("5,5 GB"), advise_on_size("no/such/file")
    ('write 5.5 GB', '')
    >>> advise_on_size("1EB")
    'write one of the units B, kB, MB, GB, TB, PB, KiB, MiB, GiB, TiB, PiB'
    """
    found = _LIKELY_QUANTITY.fullmatch(text)
    if found is None:
        return ""
    if found[3].lower() not in _UNITS:
        return f"write one of the units {UNITS_OF_SIZE}"
    if found[1] == "-":
        return "write a size above 0"
    if "," not in found[2] or _QUANTITY.fullmatch(text.lower()):
        return ""
    decimal = _DECIMAL_COMMA.fullmatch(found[2])
    if decimal is None:
        return "write the number without commas"
    number = f"{decimal[1].replace('.', '') or '0'}.{decimal[2]}"
    return f"write {text.strip().replace(found[2], number)}"


def format_bytes(size: int) -> str:
    """Format bytes with a decimal unit.

    Examples
    --------
    >>> format_bytes(2_400_000_000)
    '2.4 GB'
    >>> format_bytes(800_000_000_000)
    '800 GB'
    >>> format_bytes(8_000_000_000_000)
    '8 TB'
    """
    for unit, factor in (("PB", 10**15), ("TB", 10**12), ("GB", 10**9), ("MB", 10**6)):
        if abs(size) >= factor:
            return f"{size / factor:.4g} {unit}"
    return f"{size / 1000:.4g} kB" if abs(size) >= 1000 else f"{size} B"


def round_bytes(size: int) -> str:
    """Format bytes with three digits.

    Examples
    --------
    >>> round_bytes(1_234_567_890)
    '1.23 GB'
    """
    digits = len(str(size)) - 3
    return format_bytes(round(size, -digits) if digits > 0 else size)


def format_number(value: float) -> str:
    """Format a number without trailing zeros.

    Examples
    --------
    >>> format_number(15.0), format_number(7.5), format_number(1 / 3)
    ('15', '7.5', '0.3333')
    """
    return f"{value:.4g}" if abs(value) < 9999.5 else f"{value:.0f}"


def is_boolean(value: object) -> bool:
    """Return whether a value is a bool of Python or NumPy, which callers refuse as a number."""
    return isinstance(value, bool) or str(getattr(value, "dtype", "")) == "bool"


def whole_number(value: object) -> int | None:
    """Convert an integer of Python or NumPy to ``int``; None for other values, including bool.

    Examples
    --------
    >>> whole_number(3), whole_number(2.5), whole_number(True)
    (3, None, None)
    """
    if isinstance(value, bool):
        return None
    try:
        return operator.index(cast("SupportsIndex", value))
    except TypeError:
        return None


def is_iterable(value: object) -> bool:
    """Return whether ``iter(value)`` works; a zero-dimensional array has ``__iter__`` but fails.

    Examples
    --------
    >>> is_iterable([]), is_iterable("text"), is_iterable(1)
    (True, True, False)
    """
    try:
        iter(cast("Iterable[Any]", value))
    except TypeError:
        return False
    return True


def plural(count: int, noun: str) -> str:
    """Format a count and its noun, in the plural unless the count is 1.

    Examples
    --------
    >>> plural(1, "node"), plural(2, "process")
    ('1 node', '2 processes')
    """
    ending = "" if count == 1 else ("es" if noun.endswith("s") else "s")
    return f"{count} {noun}{ending}"


def parse_seconds(value: Any) -> float:
    """Convert a number, a timedelta or text such as ``"30m"`` or ``"2 hours"`` to seconds.

    Units may be short or long, in upper or lower case, and follow a space.

    Raises
    ------
    ValueError
        For anything else, including text without digits (Dask reads ``"s"`` as 1 s) and numbers
        with ``_`` or non-ASCII digits.

    Examples
    --------
    >>> parse_seconds("1.5 hours"), parse_seconds("10 min"), parse_seconds("10m"), parse_seconds(90)
    (5400, 600, 600, 90)
    """
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    if (match is None and not isinstance(value, _TIMES)) or is_boolean(value):
        raise ValueError(f"not a duration: {value!r:.40}")
    try:
        return cast("float", parse_timedelta(to_dask_duration(value)))
    except (ValueError, LookupError, OverflowError):
        raise ValueError(f"not a duration: {value!r:.40}") from None


def to_dask_duration(value: Any) -> Any:
    """Rewrite a duration as text with a unit that Dask accepts; return other values unchanged.

    Examples
    --------
    >>> to_dask_duration("10 min"), to_dask_duration("2 hours"), to_dask_duration(5)
    ('10m', '2 hours', 5)
    """
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    unit = None if match is None else _UNITS_OF_TIME.get(match[2].lower())
    return value if match is None or unit is None else match[1] + unit


def in_seconds(value: Any) -> Any:
    """Convert text with a unit to seconds; return other values unchanged, for later checks.

    Examples
    --------
    >>> in_seconds("2 hours"), in_seconds(-1), in_seconds("soon"), in_seconds("1")
    (7200, -1, 'soon', '1')
    """
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    if match is None or not match[2]:
        return value
    try:
        return parse_seconds(value)
    except ValueError:
        return value


def format_local_time(seconds: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Format seconds since 1970 as a time in the time zone of this machine.

    For times of which the system has no date, such as 1e18 in a damaged store, that is the number.

    Examples
    --------
    >>> format_local_time(1e18), format_local_time(float("nan")), len(format_local_time(1.7e9))
    ('1e+18', 'nan', 19)
    """
    try:
        return time.strftime(form, time.localtime(seconds))
    except (ValueError, OverflowError, OSError):
        return f"{seconds:g}"


def format_duration(seconds: float) -> str:
    """Format a duration.

    Examples
    --------
    >>> format_duration(2.14), format_duration(75), format_duration(7500)
    ('2.1 s', '1 min 15 s', '2 h 5 min')
    """
    if not math.isfinite(seconds):  # of a damaged record
        return f"{seconds} s"
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {left} s"
