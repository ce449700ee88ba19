"""``window_agg``: aggregation of time windows."""

from __future__ import annotations

from collections.abc import Sequence

import dask.dataframe as dd

from hyperplane.collections.frames.aggregates import AggSpec, parse_agg
from hyperplane.collections.frames.arguments import (
    collect_faults,
    ensure_time_column,
    find_column_faults,
    find_key_faults,
    find_window_split_faults,
    list_names,
)
from hyperplane.collections.frames.group_tasks import aggregate_groups
from hyperplane.collections.frames.grouping import Grouping
from hyperplane.collections.frames.source_collection import Frame, as_collection
from hyperplane.collections.frames.time_bins import ROW_NUMBER, Side, parse_windows
from hyperplane.core.public_calls import check_call


@check_call
def window_agg(
    df: Frame,
    time: str | None,
    every: str,
    agg: AggSpec,
    by: str | Sequence[str] | None = None,
    *,
    closed: Side | None = "right",
    label: Side | None = "right",
    split_out: int = 1,
) -> dd.DataFrame:
    """Aggregate time windows, like ``groupby(pd.Grouper(...)).agg(...)`` of pandas.

    The result equals that of pandas, including empty windows, time zones with daylight saving time,
    missing times and missing values. By default windows are closed on the right and labeled by
    their right edge. pandas closes and labels them on the left by default if the width is in days
    or shorter units, or in months, quarters and years that are named by their first day (``"MS"``,
    ``"QS"``, ``"YS"``): rows of March get the label April 1 here, and March 1 with ``closed=None,
    label=None``. With ``by`` the result is that of ``groupby([*by, pd.Grouper(...)])``, which has
    no empty windows.

    Parameters
    ----------
    df : dask.dataframe.DataFrame, URL or list of URLs
        The rows, in any order of time. URLs are read with :func:`read`.
    time : str or None
        Column of times, or the name of the index. None is the index; the index of the result is
        called ``time`` if it has no name.
    every : str
        Width of a window as a frequency of pandas: ``"15min"``, ``"1h"``, ``"1D"``, ``"W"``,
        ``"MS"``; days and shorter units also in words: ``"1day"``, ``"2 hours"``.
    agg : mapping
        Column -> function or list of functions. Functions are ``sum, mean, min, max, count, size,
        nunique, first, last, std, var, median``; all are exact. ``first`` and ``last`` follow the
        times without ``by``, and the order of the rows with ``by``, as in pandas.
    by : str or list of str, optional
        Columns to group by in addition to the windows.
    closed, label : {"right", "left"} or None
        The closed side of a window, and the edge that is its label. None is the pandas default
        for the frequency.
    split_out : int
        Number of partitions of the result; use more than one, which requires ``by``, if there are
        too many groups for one partition. Groups are then sorted within each partition only.

    Returns
    -------
    dask.dataframe.DataFrame
        Lazy. The index has the labels of the windows; with ``by``, the keys and the labels.

    Raises
    ------
    RequestError
        With every invalid argument: columns, types, functions, frequency.
    DataError
        When it is computed, if values of a column have no common type, or a type for which the
        function is not defined. It has ``column``.

    Notes
    -----
    Each task reads only the needed columns and returns one row per window, with the distinct values
    for ``nunique`` and all values for ``median``. These values are exchanged between workers. If
    the files have statistics of the times, distinct values are exchanged only for windows that may
    have rows in several partitions. :func:`group_agg` names the source of the formula for ``std``
    and ``var``.

    Examples
    --------
    >>> import pandas as pd, dask.dataframe as dd
    >>> times = pd.to_datetime(["2026-01-01 09:10", "2026-01-01 09:50", "2026-01-01 11:00"])
    >>> events = pd.DataFrame({"time": times, "user": [7, 7, 8], "items": [1, 2, 3]})
    >>> df = dd.from_pandas(events, npartitions=2)
    >>> window_agg(df, "time", "1h", {"user": "nunique", "items": "sum"}).compute()
                         user  items
    time
    2026-01-01 10:00:00     1      3
    2026-01-01 11:00:00     1      3
    """
    df = as_collection(df)
    keys = list_names(by)
    with collect_faults() as faults:
        with faults.collect():
            df, time = ensure_time_column(df, time)
        like = df._meta
        faults += find_column_faults(like, time=[] if faults else [time], by=keys)
        faults += find_key_faults(like, "by", keys)
        faults += find_window_split_faults(split_out, keys)
        with faults.collect():
            time_windows = parse_windows(like, time, every, closed, label)
        with faults.collect():
            # Without keys pandas sorts rows by time; with keys the rows keep their order, for which
            # windows of several bins need the row number.
            order_column = None if not faults and time_windows.exact else ROW_NUMBER
            aggregation = parse_agg(like, agg, order=order_column if keys else time)
    used = list(dict.fromkeys([time, *keys, *aggregation.columns]))
    grouping = Grouping.from_columns(like[used].iloc[:0], tuple(keys), time_windows, aggregation)
    return aggregate_groups(df, grouping, split_out, "window-agg")
