"""``window_counts``: counts of values per time window, with a column for each value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
from dask.delayed import Delayed
from dask.tokenize import tokenize

from hyperplane.collections.frames import task_graph
from hyperplane.collections.frames.arguments import (
    collect_faults,
    ensure_time_column,
    find_column_faults,
    find_key_faults,
    has_column,
    list_names,
)
from hyperplane.collections.frames.count_targets import CountTarget, Values, make_count_targets
from hyperplane.collections.frames.finalize import (
    assign_windows,
    build_collection,
    build_empty_index,
    drop_freq,
    select_result_rows,
    set_result_index,
)
from hyperplane.collections.frames.helper_steps import WINDOW, KeyedTable, register_keys
from hyperplane.collections.frames.kernels import polars_kernel as kernel
from hyperplane.collections.frames.kernels.concatenate import TypeConflict
from hyperplane.collections.frames.source_collection import (
    Frame,
    as_collection,
    open_partition,
    select_source,
)
from hyperplane.collections.frames.task_errors import name_partition_in_errors
from hyperplane.collections.frames.time_bins import BIN, Side, TimeWindows, parse_windows
from hyperplane.core.argument_checks import find_count_faults
from hyperplane.core.errors import DataError, Fault
from hyperplane.core.public_calls import check_call
from hyperplane.formats.pandas_frames.column_names import (
    escape,
    escape_all,
    escape_columns,
    unescape,
    unescape_columns,
)
from hyperplane.formats.pandas_frames.object_columns import has_integers_and_floats

#: Kinds of numbers; equal values of different kinds would be different columns: x_1, x_1.0, x_True.
_NUMBER_KINDS: dict[str, Callable[[pl.DataType], bool]] = {
    "integers": lambda kind: kind.is_integer(),
    "floats": lambda kind: kind.is_float(),
    "booleans": lambda kind: kind == pl.Boolean,
}
#: End of the error for a column of objects with several of these kinds.
_TWO_NAMES = (
    "; equal values such as 1 and 1.0 would be two columns; convert the column to one type, for "
    "example with astype('float64')"
)


@dataclass(frozen=True)
class WindowCountSpec:
    """Windows, keys and targets of a call; column names are escaped."""

    like: pd.DataFrame
    by: tuple[str, ...]
    windows: TimeWindows
    targets: tuple[CountTarget, ...]

    @property
    def keys(self) -> list[str]:
        """Key columns of the partial tables."""
        return [*self.by, BIN]


@check_call
def window_counts(
    df: Frame,
    time: str | None,
    every: str,
    target: str | Sequence[str],
    by: str | Sequence[str] | None = None,
    *,
    closed: Side | None = "right",
    label: Side | None = "right",
    categories: Values | Mapping[str, Values] | None = None,
    top: int | None = None,
    max_values: int = 1000,
) -> dd.DataFrame | Delayed:
    """Count the values of columns in each time window, with one result column per value.

    The result is that of ``pd.get_dummies(df, columns=target)`` followed by
    ``groupby(pd.Grouper(...)).sum()``, without creating the table of zeros and ones.

    Parameters
    ----------
    df : dask.dataframe.DataFrame, URL or list of URLs
        The rows, in any order of time. URLs are read with :func:`read`.
    time : str or None
        Column of times, or the name of the index. None is the index; the index of the result is
        called ``time`` if it has no name.
    every : str
        Width of a window as a frequency of pandas, such as ``"1h"``.
    target : str or list of str
        Columns whose values are counted. Missing values are not counted.
    by : str or list of str, optional
        Columns to group by in addition to the windows.
    closed, label : {"right", "left"} or None
        As in :func:`window_agg`: right by default, also for ``"MS"``; None for the pandas default.
    categories : list, or mapping of target to list, optional
        The values that get a column, in this order; other values are not counted.
    top : int, optional
        Number of most frequent values of each target that get a column; among equally frequent
        values the smaller one is chosen.
    max_values : int
        Maximum number of distinct values of a target, from 1, unless ``top`` is given.

    Returns
    -------
    dask.dataframe.DataFrame or dask.delayed.Delayed
        Lazy, with integer columns ``<target>_<value>``. If the values of each target are known,
        from ``categories`` or from its category type, the result is a Dask dataframe. Otherwise it
        is a Delayed, whose ``compute()`` returns the pandas frame.

    Raises
    ------
    RequestError
        With every invalid argument.
    DataError
        When it is computed, if a target has more than ``max_values`` distinct values, a value
        that is not one of its declared categories, or objects of several kinds of numbers.

    Examples
    --------
    >>> import pandas as pd, dask.dataframe as dd
    >>> times = pd.to_datetime(["2026-01-01 09:10", "2026-01-01 09:50", "2026-01-01 11:00"])
    >>> events = pd.DataFrame({"time": times, "type": ["buy", "view", "view"]})
    >>> df = dd.from_pandas(events, npartitions=2)
    >>> window_counts(df, "time", "1h", "type").compute()
                         type_buy  type_view
    time
    2026-01-01 10:00:00         1          1
    2026-01-01 11:00:00         0          1
    """
    df = as_collection(df)
    targets, keys = list_names(target), list_names(by)
    with collect_faults() as faults:
        with faults.collect():
            df, time = ensure_time_column(df, time)
        like = df._meta
        times = [] if faults else [time]
        faults += find_column_faults(like, time=times, target=targets, by=keys)
        faults += find_key_faults(like, "by", keys) + find_key_faults(like, "target", targets)
        key_names = [name for name in keys if isinstance(name, str)]
        target_keys = [name for name in targets if has_column(like, name) and name in key_names]
        faults += [
            Fault("target", repr(name), "a column that is not in by") for name in target_keys
        ]
        if not targets:
            faults.append(Fault("target", repr(target), "at least one column"))
        faults += find_count_faults("max_values", max_values)
        faults += find_count_faults("top", top) if top is not None else []
        target_names = [name for name in targets if isinstance(name, str)]
        count_targets, target_faults = make_count_targets(
            like, target_names, categories, top, max_values
        )
        faults += target_faults
        with faults.collect():
            time_windows = parse_windows(like, time, every, closed, label)
    used = list(dict.fromkeys([time, *keys, *targets]))
    source = select_source(df, used)
    spec = WindowCountSpec(
        escape_columns(like[used].iloc[:0]),
        tuple(escape_all(keys)),
        replace(time_windows, time=escape(time_windows.time)),
        tuple(count_targets),
    )
    token = tokenize(source.token, spec)
    tables = task_graph.make_tasks(
        "window-counts-partial",
        token,
        count_partition,
        [
            [partition, number, source.where, spec]
            for number, partition in enumerate(source.partitions)
        ],
    )
    merge = partial(_merge_tables, keys=spec.keys, targets=spec.targets)
    merged = task_graph.reduce_tree("window-counts-merge", token, merge, tables)
    [result] = task_graph.make_tasks("window-counts", token, pivot_windows, [[merged, spec]])
    if any(count_target.known is None for count_target in count_targets):
        return result
    counts = build_collection([result], _build_empty_result(spec), "window-counts")
    register_keys(counts, KeyedTable(WINDOW, df.expr, tuple(keys), 0), keys)
    return counts


@name_partition_in_errors
def count_partition(
    partition: Any, number: int, where: pl.Expr | None, spec: WindowCountSpec
) -> list[pl.DataFrame]:
    """Count the values in a partition, one table for each target."""
    rows = open_partition(partition, spec.like, where, exact=[spec.windows.time])
    rows = kernel.add_bins(rows, spec.windows)
    if isinstance(partition, pd.DataFrame):
        for target in spec.targets:
            values = partition[unescape(target.name)]
            is_object = target.known is None and values.dtype == np.dtype(object)
            if is_object and has_integers_and_floats(values):
                problem = "holds objects of integers and floats"
                raise DataError(unescape(target.name), problem + _TWO_NAMES)
    tables = kernel.count_values(rows, spec.keys, [target.name for target in spec.targets])
    for table, target in zip(tables, spec.targets, strict=True):
        target.check(table)  # fails early, before the counts are merged
    return tables


def pivot_windows(tables: list[list[pl.DataFrame]], spec: WindowCountSpec) -> pd.DataFrame:
    """Assign bins to windows and values to columns, and convert the counts to pandas."""
    merged = _merge_tables(tables, spec.keys, spec.targets)
    numbers, labels = assign_windows(merged[0], spec.windows, spec.like)
    merged = [table.join(numbers, on=BIN, how="left") for table in merged]
    # The tables also count missing values, so the table of each target has all keys.
    rows = select_result_rows(merged[0], spec.by, labels)
    names: list[str] = []
    blocks: list[Any] = []
    types: list[str] = []
    for table, target in zip(merged, spec.targets, strict=True):
        values = target.select_values(table, spec.keys)
        names += target.column_names(values)
        types += [target.count_dtype()] * len(values)
        blocks.append(kernel.pivot_counts(table, rows, target.name, values))
    result = pd.DataFrame(np.hstack(blocks)).astype(dict(enumerate(types)))
    result.columns = pd.Index(names, dtype="str")  # str even without columns
    return unescape_columns(set_result_index(result, rows, drop_freq(labels), spec))


def _build_empty_result(spec: WindowCountSpec) -> pd.DataFrame:
    """Return the empty frame with the columns and types of the result."""
    columns = {
        f"{unescape(target.name)}_{value}": pd.Series(dtype=target.count_dtype())
        for target in spec.targets
        for value in target.known or ()
    }
    result = pd.DataFrame(columns)
    result.columns = result.columns.astype("str")
    result.index = build_empty_index(spec)
    return unescape_columns(result)


def _merge_tables(
    tables: list[list[pl.DataFrame]], keys: list[str], targets: Sequence[CountTarget]
) -> list[pl.DataFrame]:
    """Merge the counts of several tasks; raise TypeConflict for numbers of several kinds."""
    merged = []
    for target_tables, target in zip(zip(*tables, strict=True), targets, strict=True):
        positions: dict[str, int] = {}  # of the first table with values of each kind
        for position, table in enumerate(target_tables):
            for kind, is_kind in _NUMBER_KINDS.items():
                if is_kind(table.schema[target.name]) and table.get_column(target.name).count():
                    positions.setdefault(kind, position)
        if pd.api.types.is_numeric_dtype(target.like.dtype) and "booleans" not in positions:
            positions.clear()  # integers and floats of a numeric column are counted as floats
        if len(positions) > 1 and target.known is None:
            # Booleans are one of the two reported kinds: integers and floats alone may be allowed.
            kinds = sorted(positions, key=lambda kind: (kind != "booleans", positions[kind]))[:2]
            one, other = sorted(kinds, key=positions.__getitem__)
            texts = (f"holds {one}", f" and {other}", _TWO_NAMES)
            raise TypeConflict(unescape(target.name), texts, (positions[one], positions[other]))
        merged.append(kernel.merge_counts(list(target_tables), keys, target.name))
    return merged
