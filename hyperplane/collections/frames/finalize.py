"""From partial tables to the frame that pandas would have made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from dask.delayed import Delayed
from dask.tokenize import tokenize

from hyperplane.collections.frames.aggregates import ZERO_WHEN_EMPTY, OutputColumn
from hyperplane.collections.frames.column_names import has_escaped, unescape_columns
from hyperplane.collections.frames.convert import allow_missing, column_to_pandas
from hyperplane.collections.frames.kernels import polars_kernel as kernel
from hyperplane.collections.frames.kernels.states import finalize_state
from hyperplane.collections.frames.task_graph import make_tasks
from hyperplane.collections.frames.time_bins import BIN, INSTANT, LAST_INSTANT, TimeWindows
from hyperplane.errors import DataError

if TYPE_CHECKING:
    from hyperplane.collections.frames.grouping import Grouping

#: Number of a window among all.
WINDOW = "__window__"


def build_result(
    tables: list[pl.DataFrame],
    cells: pl.DataFrame | None,
    grouping: Grouping,
    several: bool = False,
) -> pd.DataFrame:
    """Combine the last tables, put cells into windows, and make pandas of it.

    Parameters
    ----------
    several : bool
        Whether the result has more partitions than this one: whole numbers of which some are
        missing are then nullable, since pandas makes floats of floats beside whole numbers.
    """
    states = grouping.aggregation.states
    table = tables[0] if len(tables) == 1 else kernel.merge_partials(tables, grouping.keys, states)
    keys, labels = list(grouping.by), None
    if grouping.windows:
        known = table if cells is None else cells
        numbers, labels = assign_windows(known, grouping.windows, grouping.like)
        table = table.join(numbers, on=BIN, how="left")
        keys = [*keys, WINDOW]
        if not grouping.windows.exact:
            table = kernel.merge_partials([table], keys, states)
    outputs = grouping.aggregation.outputs
    values = [finalize_state(out).alias(f"__out_{i}__") for i, out in enumerate(outputs)]
    table = table.select(*keys, *values, pl.lit(True).alias("__with_rows__"))
    rows = select_result_rows(table, grouping.by, labels)
    table = rows.join(table, on=keys, how="left", maintain_order="left")
    with_rows = table.get_column("__with_rows__").fill_null(value=False)
    columns = [
        _build_column(table.get_column(f"__out_{i}__"), out, several, with_rows)
        for i, out in enumerate(outputs)
    ]
    made = pd.DataFrame(dict(enumerate(columns)), copy=False)
    made.columns = grouping.aggregation.labels
    if grouping.aggregation.nested and labels is not None:
        labels = drop_freq(labels)
    return set_result_index(made, rows, labels, grouping)


def build_collection(results: Sequence[Delayed], like: pd.DataFrame, name: str) -> dd.DataFrame:
    """The frames that tasks make, as one collection; escaped names are those of pandas again."""
    if has_escaped(like):
        results = make_tasks(
            f"{name}-names", tokenize(results), unescape_columns, [[r] for r in results]
        )
        like = unescape_columns(like)
    # Dask would otherwise make text of all objects, of dates too.
    with dask.config.set({"dataframe.convert-string": False}):
        made = dd.from_delayed(results, meta=like, verify_meta=False, prefix=name)
    return cast("dd.DataFrame", made)


def build_empty_result(grouping: Grouping) -> pd.DataFrame:
    """The result's columns and types, without rows."""
    columns = [pd.Series([], dtype=out.dtype) for out in grouping.aggregation.outputs]
    made = pd.DataFrame(dict(enumerate(columns)))
    made.columns = grouping.aggregation.labels
    made.index = build_empty_index(grouping)
    return made


class SupportsGrouping(Protocol):
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
    def windows(self) -> TimeWindows | None:
        """Windows of time beside them."""
        ...


def select_result_rows(
    table: pl.DataFrame, by: Sequence[str], labels: pd.DatetimeIndex | None
) -> pl.DataFrame:
    """The keys of the result's rows: groups that occur, in order; without keys every window."""
    if labels is not None and not by:
        return pl.DataFrame({WINDOW: np.arange(len(labels), dtype="int64")})
    keys = [*by, *([WINDOW] if labels is not None else [])]
    return table.select(keys).drop_nulls().unique().sort(keys)


def set_result_index(
    made: pd.DataFrame, rows: pl.DataFrame, labels: pd.DatetimeIndex | None, how: SupportsGrouping
) -> pd.DataFrame:
    """Give a frame the index that pandas gives it."""
    levels = [_build_level(rows.get_column(key), how.like[key].dtype) for key in how.by]
    if labels is not None:
        levels.append(labels[rows.get_column(WINDOW).to_numpy()] if levels else labels)
    made.index = _combine_levels(levels)
    categories = [isinstance(how.like[key].dtype, pd.CategoricalDtype) for key in how.by]
    return made.sort_index() if any(categories) else made  # by their order, not by their text


def _build_level(values: pl.Series, dtype: Any) -> pd.Index[Any]:
    name = values.name
    if values.dtype.is_float():
        # Zero has one sign: an index would take two for two labels. To add 0.0 is not enough,
        # since Polars leaves that out.
        one_zero = pl.when(values == 0).then(0.0).otherwise(values).cast(values.dtype)
        values = pl.select(one_zero.alias("values")).to_series()
    made = column_to_pandas(values, index_dtype(dtype))
    # Of objects pandas looks at the values, and finds text, numbers or times.
    made = made.to_list() if dtype == np.dtype(object) else made
    return pd.Index(made, name=name)


def index_dtype(dtype: Any) -> Any:
    """The type of keys in an index: pandas has none of floats of 16 bits."""
    if dtype == np.dtype("float16"):
        return np.dtype("float32")
    if isinstance(dtype, pd.ArrowDtype) and pa.types.is_float16(dtype.pyarrow_dtype):
        return pd.ArrowDtype(pa.float32())
    return dtype


def build_empty_index(how: SupportsGrouping) -> pd.Index[Any]:
    """The index of a result without rows."""
    levels: list[Any] = [
        pd.Index(how.like[key].iloc[:0].astype(index_dtype(how.like[key].dtype)), name=key)
        for key in how.by
    ]
    if how.windows:
        time = how.windows.time
        levels.append(pd.DatetimeIndex(how.like[time].iloc[:0], name=time))
    return _combine_levels(levels)


def drop_freq(labels: pd.DatetimeIndex) -> pd.DatetimeIndex:
    """The same labels; only ``agg`` with one function for each column keeps the frequency."""
    return pd.DatetimeIndex(labels, freq=None)  # type: ignore[arg-type]


def _combine_levels(levels: list[pd.Index[Any]]) -> pd.Index[Any]:
    return levels[0] if len(levels) == 1 else pd.MultiIndex.from_arrays(levels)


def assign_windows(
    table: pl.DataFrame, windows: TimeWindows, like: pd.DataFrame
) -> tuple[pl.DataFrame, pd.DatetimeIndex]:
    """The number of each cell's window, and the labels of all windows, as pandas puts them."""
    instant = INSTANT if windows.keeps_instants else BIN
    cells = table.drop_nulls(BIN).group_by(BIN).agg(pl.col(instant).min().alias("at")).sort("at")
    times = like[windows.time].iloc[:0]
    # Polars has no seconds: a millisecond after an edge must not fall back on it.
    at = cells.get_column("at")
    if windows.keeps_instants and len(at):  # pandas ends windows by the last time of all
        at = pl.concat([at, table.select(pl.col(LAST_INSTANT).max()).to_series().alias("at")])
    stamps = pd.DatetimeIndex(at.to_numpy()).ceil(times.dt.unit)
    stamps = stamps.as_unit(times.dt.unit)
    if times.dt.tz is not None:
        stamps = stamps.tz_localize("UTC").tz_convert(times.dt.tz)
        _check_first_midnight(stamps[:1], windows)
    sizes = pd.Series(1, index=stamps).groupby(windows.grouper()).size()
    numbers = np.repeat(np.arange(len(sizes)), sizes.to_numpy())[: cells.height]
    labels = pd.DatetimeIndex(sizes.index)
    labels.name = windows.time
    return pl.DataFrame({BIN: cells.get_column(BIN), WINDOW: numbers}), labels


def _check_first_midnight(first: pd.DatetimeIndex, windows: TimeWindows) -> None:
    """Cells fit into windows that begin at any midnight since 1970; older clocks may differ."""
    since = first.normalize() - pd.Timestamp(0, tz="UTC")
    if not windows.keeps_instants and (since % pd.Timedelta(windows.bin_width, "ns")).any():
        raise DataError(
            windows.time,
            f"begins at {first[0]}, when clocks of this zone were of a kind that windows of "
            f"{windows.every} cannot follow; leave times before 1970 out, or convert to UTC",
        )


def _build_column(values: pl.Series, out: OutputColumn, several: bool, with_rows: pl.Series) -> Any:
    """One column of the result, with the type that pandas gives it; which groups have rows."""
    if out.function in ZERO_WHEN_EMPTY:
        values = values.fill_null(pl.lit(0).cast(values.dtype))
    if isinstance(out.dtype, np.dtype) and out.dtype.kind == "b" and values.null_count():
        if (values.is_null() & with_rows).any():  # the data has missing values, unlike the type
            return pd.Series(values.to_list(), dtype=object)
        return values.cast(pl.Float64).to_numpy()
    dtype = allow_missing(values, out.dtype) if several else out.dtype
    made = column_to_pandas(values.alias(out.column), dtype)  # which errors name
    if out.function in ("min", "max") and out.dtype == np.dtype(object):
        return pd.Series(made.to_numpy())  # pandas finds text among objects here, and only here
    return made
