"""Time column of a collection, which may be its index."""

from __future__ import annotations

from typing import Any

import dask.dataframe as dd

from hyperplane.collections.frames.arguments import has_column
from hyperplane.core.errors import Fault, check

#: Name of the time column if the index has no name.
DEFAULT_NAME = "time"


def ensure_time_column(df: dd.DataFrame, time: Any) -> tuple[dd.DataFrame, Any]:
    """Return the collection with its times in a column, and the name of that column.

    Parameters
    ----------
    time : str or None
        A column, the name of the index, or None for the index.

    Raises
    ------
    RequestError
        When the index is meant and a column has the same name.
    """
    index = df._meta.index
    named = isinstance(time, str) and time == index.name
    if has_column(df._meta, time) or not (time is None or named):
        return df, time
    name = index.name if isinstance(index.name, str) else DEFAULT_NAME
    if name in df._meta.columns:
        advice = f"write time={name!r} for the column, or rename the index: "
        advice += "df.rename_axis(index='at')"
        allowed = f"an index with another name than any column, but {name!r} is a column too"
        check([Fault("time", "None", allowed, advice)])
    if index.name != name:
        df = df.rename_axis(index=name)
    return df.reset_index(), name
