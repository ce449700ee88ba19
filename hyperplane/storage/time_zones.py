"""Time zones whose offsets Arrow has no form for: it knows whole minutes only."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

from hyperplane.errors import DataError

_MINUTE = dt.timedelta(minutes=1)


def check_zones(frame: Any, form: str) -> None:
    """Refuse times whose zone has seconds: Arrow refuses them, or drops fractions of a second.

    Parameters
    ----------
    frame : pandas.DataFrame
        With its index.
    form : str
        The format that it is written in, for the error.

    Raises
    ------
    DataError
        With the first column or index level of such times.
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
    said = f"has times of the zone {zone}, and {form} has offsets of whole minutes only"
    return f"{said}; convert them first, as with {advice}"


def _odd_zone(values: Any) -> dt.tzinfo | None:
    """The first zone of some values with an offset that is not a whole number of minutes."""
    for zone in _zones(values):
        offset = _fixed_offset(zone)
        if offset is not None and offset % _MINUTE:
            return zone
    return None


def _fixed_offset(zone: dt.tzinfo) -> dt.timedelta | None:
    """The offset of a zone at any time; None where it depends on the time, as of named zones."""
    try:
        return zone.utcoffset(None)
    except Exception:  # noqa: BLE001 - classes of users may expect a time
        return None


def _zones(values: Any) -> Iterator[dt.tzinfo]:
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
    """The first value that is not missing."""
    import pandas as pd

    return next((one for one in values if one is not None and one is not pd.NaT), None)
