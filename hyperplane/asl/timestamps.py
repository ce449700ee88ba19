"""RFC 3339 timestamps in the form that the language allows: capital T, and Z or an offset."""

from __future__ import annotations

import datetime as dt
import re

_FORM = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})"
)


def parse_timestamp(text: object) -> dt.datetime | None:
    """Parse a timestamp into a datetime in UTC; None for other values.

    Fractions of a second are truncated to microseconds.

    Examples
    --------
    >>> parse_timestamp("2026-03-14T03:59:00+02:00").isoformat()
    '2026-03-14T01:59:00+00:00'
    >>> parse_timestamp("2026-03-14") is None
    True
    """
    match = _FORM.fullmatch(text) if isinstance(text, str) else None
    if not match:
        return None
    seconds, fraction, zone = match.groups()
    digits = (fraction or "").ljust(6, "0")[:6]
    zone = "+00:00" if zone == "Z" else zone
    try:
        return dt.datetime.fromisoformat(f"{seconds}.{digits}{zone}").astimezone(dt.UTC)
    except (ValueError, OverflowError):
        return None


def format_timestamp(time: dt.datetime) -> str:
    """Format a time in UTC with milliseconds, as in the context object.

    Examples
    --------
    >>> format_timestamp(dt.datetime(2026, 3, 14, 1, 59, tzinfo=dt.timezone.utc))
    '2026-03-14T01:59:00.000Z'
    """
    utc = time.astimezone(dt.UTC)
    return utc.isoformat(timespec="milliseconds").replace("+00:00", "Z")
