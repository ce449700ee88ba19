"""Time zones of columns: Polars has no zones with a fixed offset."""

from __future__ import annotations

from typing import Any

import pandas as pd
import polars as pl


def is_named_zone(zone: Any) -> bool:
    """Return whether a time zone has a name, other than a fixed offset."""
    name = getattr(zone, "key", None) or getattr(zone, "zone", None) or str(zone)
    return bool(name) and not name.startswith(("+", "-", "UTC+", "UTC-", "pytz.FixedOffset"))


def convert_to_declared_zones(table: pl.DataFrame, declared: pd.DataFrame) -> pl.DataFrame:
    """Convert times to the declared time zones, so that partitions can be concatenated."""
    wanted = {str(name): _get_dtype_zone(dtype) for name, dtype in declared.dtypes.items()}
    zones = {
        name: "UTC" if not is_named_zone(zone) else str(zone)
        for name, zone in wanted.items()
        if zone is not None
    }
    return table.with_columns(
        pl.col(name).dt.convert_time_zone(zone)
        for name, zone in zones.items()
        if get_column_zone(table.get_column(name)) not in (None, zone)
    )


def _get_dtype_zone(dtype: Any) -> Any:
    """Return the time zone of a pandas type."""
    return getattr(getattr(dtype, "pyarrow_dtype", dtype), "tz", None)


def get_column_zone(column: pl.Series) -> str | None:
    """Return the time zone of a Polars column; None if it has none, or holds no times."""
    return column.dtype.time_zone if isinstance(column.dtype, pl.Datetime) else None
