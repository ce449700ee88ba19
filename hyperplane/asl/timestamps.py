"""Timestamps of RFC 3339, as the language allows them: capital T, and Z or an offset."""

from __future__ import annotations

import datetime as dt
import re

_FORM = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})"
)


def parse_timestamp(text: object) -> dt.datetime | None:
    """The time that a timestamp names.

    Parameters
    ----------
    text : str
        As ``"2026-03-14T01:59:00.5Z"`` or ``"2026-03-14T03:59:00+02:00"``; of a fraction of a
        second, six digits count.

    Returns
    -------
    datetime or None
        In UTC; None for anything that is no such timestamp.

    Examples
    --------
    >>> parse_timestamp("2026-03-14T03:59:00+02:00").isoformat()
    '2026-03-14T01:59:00+00:00'
    >>> parse_timestamp("2026-03-14") is None
    True
    """
    found = _FORM.fullmatch(text) if isinstance(text, str) else None
    if not found:
        return None
    seconds, fraction, zone = found.groups()
    digits = (fraction or "").ljust(6, "0")[:6]
    zone = "+00:00" if zone == "Z" else zone
    try:
        return dt.datetime.fromisoformat(f"{seconds}.{digits}{zone}").astimezone(dt.UTC)
    except (ValueError, OverflowError):
        return None


def format_timestamp(time: dt.datetime) -> str:
    """A time as the context object shows it, to the millisecond.

    Examples
    --------
    >>> format_timestamp(dt.datetime(2026, 3, 14, 1, 59, tzinfo=dt.timezone.utc))
    '2026-03-14T01:59:00.000Z'
    """
    utc = time.astimezone(dt.UTC)
    return utc.isoformat(timespec="milliseconds").replace("+00:00", "Z")
