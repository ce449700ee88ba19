"""From partial tables to the frame that pandas would have made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd
import polars as pl

from hyperplane.collections.frames.aggregates import ZERO_WHEN_EMPTY, Output
from hyperplane.collections.frames.cells import CELL, INSTANT, Windows
from hyperplane.collections.frames.convert import column_to_pandas
from hyperplane.collections.frames.kernels import polars_kernel as kernel

if TYPE_CHECKING:
    from hyperplane.collections.frames.grouped import Grouping

#: Number of a window among all.
WINDOW = "__window__"


def assemble(
    tables: list[pl.DataFrame], cells: pl.DataFrame | None, grouping: Grouping
) -> pd.DataFrame:
    """Combine the last tables, put cells into windows, and make pandas of it."""
    states = grouping.aggregation.states
    table = tables[0] if len(tables) == 1 else kernel.merge(tables, grouping.keys, states)
    keys, labels = list(grouping.by), None
    if grouping.windows:
        known = table if cells is None else cells
        numbers, labels = placed(known, grouping.windows, grouping.like)
        table = table.join(numbers, on=CELL, how="left")
        keys = [*keys, WINDOW]
        if not grouping.windows.exact:
            table = kernel.merge([table], keys, states)
    outputs = grouping.aggregation.outputs
    values = [kernel.value(out).alias(f"__out_{i}__") for i, out in enumerate(outputs)]
    table = table.select(*keys, *values)
    rows = group_rows(table, grouping.by, labels)
    table = rows.join(table, on=keys, how="left", maintain_order="left")
    columns = [_column(table.get_column(f"__out_{i}__"), out) for i, out in enumerate(outputs)]
    made = pd.DataFrame(dict(enumerate(columns)), copy=False)
    made.columns = grouping.aggregation.labels
    if grouping.aggregation.nested and labels is not None:
        labels = without_freq(labels)
    return with_index(made, rows, labels, grouping)


def empty(grouping: Grouping) -> pd.DataFrame:
    """The result's columns and types, without rows."""
    columns = [pd.Series([], dtype=out.dtype) for out in grouping.aggregation.outputs]
    made = pd.DataFrame(dict(enumerate(columns)))
    made.columns = grouping.aggregation.labels
    made.index = empty_index(grouping)
    return made


class Grouped(Protocol):
    """What says how rows are grouped."""

    @property
    def like(self) -> pd.DataFrame:
        """Empty, with the types of the columns."""
        ...

    @property
    def by(self) -> tuple[str, ...]:
        """Key columns."""
        ...

    @property
    def windows(self) -> Windows | None:
        """Windows of time beside them."""
        ...


def group_rows(
    table: pl.DataFrame, by: Sequence[str], labels: pd.DatetimeIndex | None
) -> pl.DataFrame:
    """The keys of the result's rows: groups that occur, in order; without keys every window."""
    if labels is not None and not by:
        return pl.DataFrame({WINDOW: np.arange(len(labels), dtype="int64")})
    keys = [*by, *([WINDOW] if labels is not None else [])]
    return table.select(keys).drop_nulls().unique().sort(keys)


def with_index(
    made: pd.DataFrame, rows: pl.DataFrame, labels: pd.DatetimeIndex | None, how: Grouped
) -> pd.DataFrame:
    """Give a frame the index that pandas gives it."""
    levels = [
        pd.Index(column_to_pandas(rows.get_column(key), how.like[key].dtype), name=key)
        for key in how.by
    ]
    if labels is not None:
        levels.append(labels[rows.get_column(WINDOW).to_numpy()] if levels else labels)
    made.index = _joined(levels)
    categories = [isinstance(how.like[key].dtype, pd.CategoricalDtype) for key in how.by]
    return made.sort_index() if any(categories) else made  # by their order, not by their text


def empty_index(how: Grouped) -> pd.Index[Any]:
    """The index of a result without rows."""
    levels = [pd.Index(how.like[key].iloc[:0], name=key) for key in how.by]
    if how.windows:
        time = how.windows.time
        levels.append(pd.DatetimeIndex(how.like[time].iloc[:0], name=time))
    return _joined(levels)


def without_freq(labels: pd.DatetimeIndex) -> pd.DatetimeIndex:
    """The same labels; only ``agg`` with one function for each column keeps the frequency."""
    return pd.DatetimeIndex(labels, freq=None)  # type: ignore[arg-type]


def _joined(levels: list[pd.Index[Any]]) -> pd.Index[Any]:
    return levels[0] if len(levels) == 1 else pd.MultiIndex.from_arrays(levels)


def placed(
    table: pl.DataFrame, windows: Windows, like: pd.DataFrame
) -> tuple[pl.DataFrame, pd.DatetimeIndex]:
    """The number of each cell's window, and the labels of all windows, as pandas puts them."""
    instant = INSTANT if windows.instants else CELL
    cells = table.drop_nulls(CELL).group_by(CELL).agg(pl.col(instant).min().alias("at")).sort("at")
    times = like[windows.time].iloc[:0]
    stamps = pd.DatetimeIndex(cells.get_column("at").to_numpy())
    if times.dt.tz is not None:
        stamps = stamps.tz_localize("UTC").tz_convert(times.dt.tz)
    stamps = stamps.as_unit(times.dt.unit)
    sizes = pd.Series(1, index=stamps).groupby(windows.grouper()).size()
    numbers = np.repeat(np.arange(len(sizes)), sizes.to_numpy())
    labels = pd.DatetimeIndex(sizes.index)
    labels.name = windows.time
    return pl.DataFrame({CELL: cells.get_column(CELL), WINDOW: numbers}), labels


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
