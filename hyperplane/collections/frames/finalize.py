"""Conversion of merged partial tables to the frame that pandas would return."""

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
from hyperplane.collections.frames.kernels import polars_kernel as kernel
from hyperplane.collections.frames.kernels.partial_states import finalize_state
from hyperplane.collections.frames.kernels.table_files import concat_pieces
from hyperplane.collections.frames.task_graph import make_tasks
from hyperplane.collections.frames.time_bins import BIN, INSTANT, LAST_INSTANT, TimeWindows
from hyperplane.core.errors import DataError
from hyperplane.formats.pandas_frames.column_names import has_escaped, unescape_columns
from hyperplane.formats.pandas_frames.to_pandas import allow_missing, column_to_pandas
from hyperplane.formats.pandas_frames.typed_table import TypedTable

if TYPE_CHECKING:
    from hyperplane.collections.frames.grouping import Grouping

#: Column with the number of a window.
WINDOW = "__window__"
#: Column with the results of a function, by its position.
_OUTPUT = "__out_{}__"


def build_result(
    tables: list[Any],
    number: int | None,
    bins: pl.DataFrame | None,
    grouping: Grouping,
    several_partitions: bool = False,
) -> pd.DataFrame:
    """Merge the remaining tables of a result partition, and convert them to pandas.

    ``tables`` and ``number`` are the arguments of :func:`concat_pieces`. Time bins are assigned to
    windows. ``bins`` are those of all partitions of the result; None if the tables have all of
    them. If the result has several partitions, integers with missing values are nullable, because
    pandas would concatenate floats and integers to floats.
    """
    table = _merge_pieces(tables, number, grouping)
    keys, labels = list(grouping.by), None
    if grouping.windows:
        source_table = table if bins is None else bins
        numbers, labels = assign_windows(source_table, grouping.windows, grouping.like)
        table = table.join(numbers, on=BIN, how="left")
        keys = [*keys, WINDOW]
        if not grouping.windows.exact:
            table = kernel.merge_partials([table], keys, grouping.aggregation.states)
    outputs = grouping.aggregation.outputs
    table = table.select(*keys, *_finalize_states(outputs), pl.lit(True).alias("__with_rows__"))
    if labels is None:  # each row is a group
        table = table.drop_nulls(keys).sort(keys)
        rows = table.select(keys)
    else:
        rows = select_result_rows(table, grouping.by, labels)
        table = rows.join(table, on=keys, how="left", maintain_order="left")
    with_rows = table.get_column("__with_rows__").fill_null(value=False)
    columns = [
        _build_column(table.get_column(_OUTPUT.format(i)), output, several_partitions, with_rows)
        for i, output in enumerate(outputs)
    ]
    result = pd.DataFrame(dict(enumerate(columns)), copy=False)
    result.columns = grouping.aggregation.labels
    if grouping.aggregation.nested and labels is not None:
        labels = drop_freq(labels)
    return set_result_index(result, rows, labels, grouping)


def build_table(
    tables: list[Any], number: int | None, like: pd.DataFrame, grouping: Grouping
) -> TypedTable:
    """Return the groups of :func:`build_result`, with the keys as first columns.

    ``like`` has the names and types of the columns, which :func:`has_plain_types` accepts.
    """
    table = _merge_pieces(tables, number, grouping)
    keys, outputs = list(grouping.by), grouping.aggregation.outputs
    table = table.drop_nulls(keys).select(*keys, *_finalize_states(outputs))
    rows = table.sort(keys).with_columns(
        pl.col(_OUTPUT.format(i)).fill_null(0)
        for i, output in enumerate(outputs)
        if output.function in ZERO_WHEN_EMPTY
    )
    columns = zip(rows.iter_columns(), like.columns, strict=True)
    return TypedTable(pl.DataFrame([column.alias(name) for column, name in columns]), like)


def has_plain_types(grouping: Grouping) -> bool:
    """Return whether keys and functions have types that are not changed in an index of pandas."""
    keys = [grouping.like[key].dtype for key in grouping.by]
    values = [output.dtype for output in grouping.aggregation.outputs]
    return all(_is_plain(dtype, "iuM") for dtype in keys) and all(
        _is_plain(dtype, "iufM") for dtype in values
    )


def _is_plain(dtype: Any, kinds: str) -> bool:
    return isinstance(dtype, pd.StringDtype) or (
        isinstance(dtype, np.dtype) and dtype.kind in kinds and dtype != np.dtype("float16")
    )


def _merge_pieces(tables: list[Any], number: int | None, grouping: Grouping) -> pl.DataFrame:
    """Merge the tables of a result partition, the arguments of :func:`concat_pieces`."""
    table = concat_pieces(tables, number)
    if len(tables) == 1:
        return table
    return kernel.merge_partials([table], grouping.keys, grouping.aggregation.states)


def _finalize_states(outputs: Sequence[OutputColumn]) -> list[pl.Expr]:
    """Return the expressions of the results of the functions."""
    return [finalize_state(output).alias(_OUTPUT.format(i)) for i, output in enumerate(outputs)]


def build_collection(results: Sequence[Delayed], like: pd.DataFrame, name: str) -> dd.DataFrame:
    """Return the collection whose partitions are the results; column names are unescaped."""
    if has_escaped(like):
        results = make_tasks(
            f"{name}-names", tokenize(results), unescape_columns, [[r] for r in results]
        )
        like = unescape_columns(like)
    # Otherwise Dask converts all objects, including dates, to strings.
    with dask.config.set({"dataframe.convert-string": False}):
        result = dd.from_delayed(results, meta=like, verify_meta=False, prefix=name)
    return cast("dd.DataFrame", result)


def build_empty_result(grouping: Grouping) -> pd.DataFrame:
    """Return the empty frame with the columns and types of the result."""
    columns = [pd.Series([], dtype=output.dtype) for output in grouping.aggregation.outputs]
    result = pd.DataFrame(dict(enumerate(columns)))
    result.columns = grouping.aggregation.labels
    result.index = build_empty_index(grouping)
    return result


class SupportsGrouping(Protocol):
    """Interface that :class:`Grouping` and ``WindowCountSpec`` share."""

    @property
    def like(self) -> pd.DataFrame:
        """Empty frame with the types of the columns."""
        ...

    @property
    def by(self) -> tuple[str, ...]:
        """Key columns."""
        ...

    @property
    def windows(self) -> TimeWindows | None:
        """Time windows besides the key columns."""
        ...


def select_result_rows(
    table: pl.DataFrame, by: Sequence[str], labels: pd.DatetimeIndex | None
) -> pl.DataFrame:
    """Return the keys of the result: sorted groups with rows; without keys, every window."""
    if labels is not None and not by:
        return pl.DataFrame({WINDOW: np.arange(len(labels), dtype="int64")})
    keys = [*by, *([WINDOW] if labels is not None else [])]
    return table.select(keys).drop_nulls().unique().sort(keys)


def set_result_index(
    result: pd.DataFrame,
    rows: pl.DataFrame,
    labels: pd.DatetimeIndex | None,
    grouping: SupportsGrouping,
) -> pd.DataFrame:
    """Set the index that pandas would set: the keys, then the labels of the windows."""
    levels = [_build_level(rows.get_column(key), grouping.like[key].dtype) for key in grouping.by]
    if labels is not None:
        levels.append(labels[rows.get_column(WINDOW).to_numpy()] if levels else labels)
    result.index = _combine_levels(levels)
    is_category = [isinstance(grouping.like[key].dtype, pd.CategoricalDtype) for key in grouping.by]
    return result.sort_index() if any(is_category) else result  # in the order of the categories


def _build_level(values: pl.Series, dtype: Any) -> pd.Index[Any]:
    """Build one level of the index from a key column."""
    name = values.name
    if values.dtype.is_float():
        # An index has separate labels for 0.0 and -0.0. Adding 0.0 would make them equal, but
        # Polars optimizes the addition away.
        unsigned_zeros = pl.when(values == 0).then(0.0).otherwise(values).cast(values.dtype)
        values = pl.select(unsigned_zeros.alias("values")).to_series()
    result = column_to_pandas(values, index_dtype(dtype))
    # For objects pandas infers strings, numbers or times from the values.
    result = result.to_list() if dtype == np.dtype(object) else result
    return pd.Index(result, name=name)


def index_dtype(dtype: Any) -> Any:
    """Return the type of keys in an index; pandas has no index of 16-bit floats."""
    if dtype == np.dtype("float16"):
        return np.dtype("float32")
    if isinstance(dtype, pd.ArrowDtype) and pa.types.is_float16(dtype.pyarrow_dtype):
        return pd.ArrowDtype(pa.float32())
    return dtype


def build_empty_index(grouping: SupportsGrouping) -> pd.Index[Any]:
    """Return the index of a result without rows."""
    levels: list[Any] = [
        pd.Index(
            grouping.like[key].iloc[:0].astype(index_dtype(grouping.like[key].dtype)), name=key
        )
        for key in grouping.by
    ]
    if grouping.windows:
        time = grouping.windows.time
        levels.append(pd.DatetimeIndex(grouping.like[time].iloc[:0], name=time))
    return _combine_levels(levels)


def drop_freq(labels: pd.DatetimeIndex) -> pd.DatetimeIndex:
    """Remove the frequency; in pandas only ``agg`` with one function per column keeps it."""
    return pd.DatetimeIndex(labels, freq=None)  # type: ignore[arg-type]


def _combine_levels(levels: list[pd.Index[Any]]) -> pd.Index[Any]:
    return levels[0] if len(levels) == 1 else pd.MultiIndex.from_arrays(levels)


def assign_windows(
    table: pl.DataFrame, windows: TimeWindows, like: pd.DataFrame
) -> tuple[pl.DataFrame, pd.DatetimeIndex]:
    """Return the window number of each bin and the labels of all windows, found by pandas."""
    instant = INSTANT if windows.keeps_instants else BIN
    bins = table.drop_nulls(BIN).group_by(BIN).agg(pl.col(instant).min().alias("at")).sort("at")
    times = like[windows.time].iloc[:0]
    # Polars has no times in seconds, so bins may have a finer unit than the column. Round up:
    # rounding down would move a bin that begins a millisecond after an edge onto the edge.
    at = bins.get_column("at")
    if windows.keeps_instants and len(at):  # the last time determines the last window
        at = pl.concat([at, table.select(pl.col(LAST_INSTANT).max()).to_series().alias("at")])
    stamps = pd.DatetimeIndex(at.to_numpy()).ceil(times.dt.unit)
    stamps = stamps.as_unit(times.dt.unit)
    if times.dt.tz is not None:
        stamps = stamps.tz_localize("UTC").tz_convert(times.dt.tz)
        _check_first_midnight(stamps[:1], windows)
    sizes = pd.Series(1, index=stamps).groupby(windows.grouper()).size()
    numbers = np.repeat(np.arange(len(sizes)), sizes.to_numpy())[: bins.height]
    labels = pd.DatetimeIndex(sizes.index)
    if labels.freq is not None:
        # The frequency of the call, although the grouper may have hours in place of days;
        # pandas-stubs lack the setter.
        every = pd.tseries.frequencies.to_offset(windows.every)
        labels.freq = every  # type: ignore[misc]
    labels.name = windows.time
    return pl.DataFrame({BIN: bins.get_column(BIN), WINDOW: numbers}), labels


def _check_first_midnight(first: pd.DatetimeIndex, windows: TimeWindows) -> None:
    """Raise DataError if windows begin at a midnight that is not the edge of a bin.

    The width of a bin divides the times of all local midnights since 1970; before 1970 time zones
    had other UTC offsets.
    """
    since = first.normalize() - pd.Timestamp(0, tz="UTC")
    if not windows.keeps_instants and (since % pd.Timedelta(windows.bin_width, "ns")).any():
        raise DataError(
            windows.time,
            f"begins at {first[0]}, when this time zone had a UTC offset that windows of "
            f"{windows.every} do not support; drop times before 1970, or convert to UTC",
        )


def _build_column(
    values: pl.Series, output: OutputColumn, several_partitions: bool, with_rows: pl.Series
) -> Any:
    """Build one column of the result; ``with_rows`` is a mask of the groups that have rows."""
    if output.function in ZERO_WHEN_EMPTY:
        values = values.fill_null(pl.lit(0).cast(values.dtype))
    if isinstance(output.dtype, np.dtype) and output.dtype.kind == "b" and values.null_count():
        if (values.is_null() & with_rows).any():  # the declared type has no missing values
            return pd.Series(values.to_list(), dtype=object)
        return values.cast(pl.Float64).to_numpy()
    dtype = allow_missing(values, output.dtype) if several_partitions else output.dtype
    result = column_to_pandas(values.alias(output.column), dtype)  # errors name this column
    if output.function in ("min", "max") and output.dtype == np.dtype(object):
        return pd.Series(result.to_numpy())  # pandas infers strings from objects for min and max
    return result
