"""Aggregations over windows of time."""

from __future__ import annotations

from collections.abc import Sequence

import dask.dataframe as dd

from hyperplane.collections.frames.aggregates import AggSpec, understand, unknown_column
from hyperplane.collections.frames.cells import ROW, Side, windows
from hyperplane.collections.frames.grouped import Grouping, grouped
from hyperplane.collections.frames.source import Frame, collection
from hyperplane.errors import Fault, RequestError, check


def window_agg(
    df: Frame,
    time: str,
    every: str,
    agg: AggSpec,
    by: str | Sequence[str] | None = None,
    *,
    closed: Side | None = "right",
    label: Side | None = "right",
    split_out: int = 1,
) -> dd.DataFrame:
    """..."""
    df = collection(df)
    like = df._meta
    names = [by] if isinstance(by, str) else list(by or [])
    faults: list[Fault] = [
        unknown_column(like, name, where)
        for where, name in [("time", time), *(("by", key) for key in names)]
        if name not in like.columns
    ]
    cells = aggregation = None
    try:
        cells = windows(like, time, every, closed, label)
    except RequestError as error:
        faults.extend(error.faults)
    # pandas sorts by time for windows alone; with keys beside them, rows stay in their order.
    order = None if cells and cells.exact else ROW
    try:
        aggregation = understand(like, agg, order=order if names else time)
    except RequestError as error:
        faults.extend(error.faults)
    check(faults)
    used = list(dict.fromkeys([time, *names, *aggregation.columns]))
    grouping = Grouping(like[used].iloc[:0], tuple(names), cells, aggregation)
    return grouped(df, grouping, split_out, "window-agg")
