"""Find time zones whose offsets are not whole minutes, which Arrow does not support."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

from hyperplane.core.errors import DataError

_MINUTE = dt.timedelta(minutes=1)


def check_zones(frame: Any, form: str) -> None:
    """Raise for times whose zone offset has seconds, which Arrow rejects or rounds silently.

    Raises
    ------
    DataError
        For the first such column or index level.
    """
    for place, name in enumerate(frame.columns):
        values = frame.iloc[:, place]
        zone = _odd_zone(values)
        if zone is not None:
            times = f"df[{name!r}].dt.tz_convert('UTC')"
            others = f"pd.to_datetime(df[{name!r}], utc=True)"
            advice = f"df[{name!r}] = {times if getattr(values.dtype, 'tz', None) else others}"
            raise DataError(str(name), _wrong(zone, form, advice))
    for level in range(frame.index.nlevels):
        zone = _odd_zone(frame.index.get_level_values(level))
        if zone is not None:
            name = frame.index.names[level]
            which = f", level={level}" if frame.index.nlevels > 1 else ""
            advice = f"df.tz_convert('UTC'{which}) on each partition"
            raise DataError("index" if name is None else str(name), _wrong(zone, form, advice))


def _wrong(zone: dt.tzinfo, form: str, advice: str) -> str:
    """Return the message for a zone."""
    wrong = f"has times of the zone {zone}, but {form} only supports offsets of whole minutes"
    return f"{wrong}; convert them first, for example with {advice}"


def _odd_zone(values: Any) -> dt.tzinfo | None:
    """Return the first zone of values whose offset is not whole minutes; None if there is none."""
    for zone in _zones(values):
        offset = _fixed_offset(zone)
        if offset is not None and offset % _MINUTE:
            return zone
    return None


def _fixed_offset(zone: dt.tzinfo) -> dt.timedelta | None:
    """Return the offset of a zone; None if it depends on the time, as in named zones."""
    try:
        return zone.utcoffset(None)
    except Exception:  # noqa: BLE001 - user-defined zones may require a time
        return None


def _zones(values: Any) -> Iterator[dt.tzinfo]:
    """Yield the zones of values, of their categories, or of intervals."""
    dtype: Any = values.dtype
    while True:
        inner = getattr(dtype, "categories", None)
        inner = getattr(dtype, "subtype", None) if inner is None else inner.dtype
        if inner is None:
            break
        dtype = inner
    zone = getattr(dtype, "tz", None)
    if zone is not None:
        yield zone
    elif dtype == "object" and isinstance(_first(values), dt.datetime):
        zones = (one.tzinfo for one in values if isinstance(one, dt.datetime))
        yield from (zone for zone in zones if zone is not None)


def _first(values: Any) -> Any:
    """Return the first value that is not missing."""
    import pandas as pd

    return next((one for one in values if one is not None and one is not pd.NaT), None)
