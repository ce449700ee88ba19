"""The column of times of a collection, also where the times are its index."""

from __future__ import annotations

from typing import Any

import dask.dataframe as dd

from hyperplane.collections.frames.arguments import has_column
from hyperplane.errors import Fault, check

#: Name of the times of an index that has none.
DEFAULT_NAME = "time"


def ensure_time_column(df: dd.DataFrame, time: Any) -> tuple[dd.DataFrame, Any]:
    """The collection with its times in a column, and the name of that column.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The rows.
    time : str or None
        A column; or the name of the index; or None for the index whatever its name.

    Raises
    ------
    RequestError
        When the index is asked for and a column has its name.
    """
    index = df._meta.index
    named = isinstance(time, str) and time == index.name
    if has_column(df._meta, time) or not (time is None or named):
        return df, time
    name = index.name if isinstance(index.name, str) else DEFAULT_NAME
    if name in df._meta.columns:
        advice = f"write time={name!r} for the column, or give the index another name: "
        advice += "df.rename_axis(index='at')"
        check([Fault("time", "None", f"an index whose name is no column: {name!r} is", advice)])
    if index.name != name:
        df = df.rename_axis(index=name)
    return df.reset_index(), name
