"""From partial tables to the frame that pandas would have made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import polars as pl

from hyperplane.collections.frames.aggregates import ZERO_WHEN_EMPTY, Output
from hyperplane.collections.frames.cells import CELL, INSTANT, Windows
from hyperplane.collections.frames.convert import column_to_pandas
from hyperplane.collections.frames.kernels import polars_kernel as kernel

if TYPE_CHECKING:
    from hyperplane.collections.frames.grouped import Grouping

_WINDOW = "__window__"


def assemble(
    tables: list[pl.DataFrame], cells: pl.DataFrame | None, grouping: Grouping
) -> pd.DataFrame:
    """Combine the last tables, put cells into windows, and make pandas of it."""
    states = grouping.aggregation.states
    table = tables[0] if len(tables) == 1 else kernel.merge(tables, grouping.keys, states)
    keys, labels = list(grouping.by), None
    if grouping.windows:
        known = table if cells is None else cells
        numbers, labels = _placed(known, grouping.windows, grouping.like)
        table = table.join(numbers, on=CELL, how="left")
        keys = [*keys, _WINDOW]
        if not grouping.windows.exact:
            table = kernel.merge([table], keys, states)
    outputs = grouping.aggregation.outputs
    values = [kernel.value(out).alias(f"__out_{i}__") for i, out in enumerate(outputs)]
    table = table.select(*keys, *values)
    if labels is not None and not grouping.by:
        every = pl.DataFrame({_WINDOW: np.arange(len(labels), dtype="int64")})
        table = every.join(table, on=_WINDOW, how="left", maintain_order="left")
    else:
        table = table.sort(keys)
    columns = [
        _column(table.get_column(f"__out_{i}__"), out) for i, out in enumerate(outputs)
    ]
    return _framed(columns, _index(table, labels, grouping), grouping)


def empty(grouping: Grouping) -> pd.DataFrame:
    """The result's columns and types, without rows."""
    columns = [pd.Series([], dtype=out.dtype) for out in grouping.aggregation.outputs]
    index = [pd.Index(grouping.like[key].iloc[:0], name=key) for key in grouping.by]
    if grouping.windows:
        time = grouping.windows.time
        index.append(pd.DatetimeIndex(grouping.like[time].iloc[:0], name=time))
    return _framed(columns, _joined(index), grouping)


def _framed(columns: list[Any], index: pd.Index[Any], grouping: Grouping) -> pd.DataFrame:
    made = pd.DataFrame(dict(enumerate(columns)), copy=False)
    made.index = index
    made.columns = grouping.aggregation.labels
    categories = [isinstance(grouping.like[key].dtype, pd.CategoricalDtype) for key in grouping.by]
    return made.sort_index() if any(categories) else made  # by their order, not by their text


def _index(
    table: pl.DataFrame, labels: pd.DatetimeIndex | None, grouping: Grouping
) -> pd.Index[Any]:
    levels = [
        pd.Index(column_to_pandas(table.get_column(key), grouping.like[key].dtype), name=key)
        for key in grouping.by
    ]
    if labels is not None:
        if not levels:
            return _without_freq(labels) if grouping.aggregation.nested else labels
        levels.append(labels[table.get_column(_WINDOW).to_numpy()])
    return _joined(levels)


def _without_freq(labels: pd.DatetimeIndex) -> pd.DatetimeIndex:
    """The same labels; pandas loses the frequency where it puts several functions together."""
    labels = labels.copy()
    labels.freq = None
    return labels


def _joined(levels: list[pd.Index[Any]]) -> pd.Index[Any]:
    return levels[0] if len(levels) == 1 else pd.MultiIndex.from_arrays(levels)


def _placed(
    table: pl.DataFrame, windows: Windows, like: pd.DataFrame
) -> tuple[pl.DataFrame, pd.DatetimeIndex]:
    """The number of each cell's window, and the labels of all windows, as pandas puts them."""
    instant = INSTANT if windows.instants else CELL
    cells = table.group_by(CELL).agg(pl.col(instant).min().alias("at")).sort("at")
    times = like[windows.time].iloc[:0]
    stamps = pd.DatetimeIndex(cells.get_column("at").to_numpy())
    if times.dt.tz is not None:
        stamps = stamps.tz_localize("UTC").tz_convert(times.dt.tz)
    stamps = stamps.as_unit(times.dt.unit)
    sizes = pd.Series(1, index=stamps).groupby(windows.grouper()).size()
    numbers = np.repeat(np.arange(len(sizes)), sizes.to_numpy())
    labels = pd.DatetimeIndex(sizes.index)
    labels.name = windows.time
    return pl.DataFrame({CELL: cells.get_column(CELL), _WINDOW: numbers}), labels


def _column(values: pl.Series, out: Output) -> Any:
    """One column of the result, with the type that pandas gives it."""
    if out.function in ZERO_WHEN_EMPTY:
        values = values.fill_null(pl.lit(0).cast(values.dtype))
    if out.function == "sum" and isinstance(out.dtype, np.dtype) and out.dtype.kind in "iu":
        wide = values.to_numpy()
        narrow = wide.astype(out.dtype)
        # pandas keeps a small type only while the sums fit in it.
        return narrow if (narrow == wide).all() else wide
    if isinstance(out.dtype, np.dtype) and out.dtype.kind == "b" and values.null_count():
        return values.cast(pl.Float64).to_numpy()
    return column_to_pandas(values, out.dtype)
