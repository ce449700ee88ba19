"""Tasks of group-bys and time windows: partial tables per partition, then their merge."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
from dask.delayed import Delayed
from dask.tokenize import tokenize

from hyperplane.collections.frames import exchange_memory, task_graph
from hyperplane.collections.frames.finalize import (
    build_collection,
    build_empty_result,
    build_result,
    build_table,
    has_plain_types,
)
from hyperplane.collections.frames.group_before_join import (
    make_join_tasks,
    plan_group_before_join,
)
from hyperplane.collections.frames.grouping import Grouping
from hyperplane.collections.frames.helper_steps import (
    GROUP,
    WINDOW,
    GroupTasks,
    KeyedTable,
    register_keys,
)
from hyperplane.collections.frames.kernels import polars_kernel as kernel
from hyperplane.collections.frames.kernels.table_files import concat_pieces
from hyperplane.collections.frames.source_collection import open_partition, select_source
from hyperplane.collections.frames.task_errors import name_partition_in_errors
from hyperplane.collections.frames.time_bins import ROW_NUMBER, TimeWindows
from hyperplane.collections.frames.typed_partitions import register_groups
from hyperplane.collections.frames.value_types import check_value_types
from hyperplane.formats.pandas_frames.column_names import unescape
from hyperplane.formats.partitions import ScannablePartition

#: First and last time, in microseconds since 1970 in UTC.
TimeRange = tuple[int, int]
#: Maximum number of partitions that overlap another one in time. If there are more, the rows are
#: not sorted by time, and few sets of distinct values could be replaced by their sizes early.
_MAX_NEIGHBORS = 64


def aggregate_groups(
    df: dd.DataFrame, grouping: Grouping, split_out: int | None, name: str
) -> dd.DataFrame:
    """Return the lazy result of a group-by; the names of its tasks begin with ``name``.

    ``split_out`` is its number of partitions; None to choose it as for distinct rows.
    """
    source = select_source(df, [unescape(name) for name in grouping.like.columns])
    size = exchange_memory.estimate_source_size(source, df)
    if split_out != 1 and size is not None and not exchange_memory.fits_in_memory(size):
        source = select_source(df, list(source.columns), merge=False)  # less memory for each task
    count = len(source.partitions)
    if split_out is None:
        split_out = exchange_memory.choose_row_partition_count(count, size)
    max_bytes = exchange_memory.choose_max_bytes(count, size)
    windows, states = grouping.windows, grouping.aggregation.states
    time_ranges: list[list[TimeRange] | None] = [None] * len(source.partitions)
    if (
        windows
        and windows.exact
        and grouping.aggregation.has_growing_states
        and source.scannable_partitions
    ):
        time_ranges = find_overlapping_ranges(source.scannable_partitions, windows)
    into = split_out
    if split_out == 1 and grouping.aggregation.has_growing_states and grouping.exact_keys:
        into = task_graph.choose_receiver_count(count)
    token = tokenize(source.token, grouping, split_out, into, max_bytes)
    before_join = plan_group_before_join(source, grouping)
    if before_join is not None:
        tables = make_join_tasks(name, token, source, before_join)
    else:
        tables = task_graph.make_tasks(
            f"{name}-partial",
            token,
            aggregate_partition,
            [
                [partition, number, source.where, grouping, ranges]
                for number, (partition, ranges) in enumerate(
                    zip(source.partitions, time_ranges, strict=True)
                )
            ],
        )
    merge = partial(kernel.merge_partials, keys=grouping.keys, states=states)
    finish = partial(build_result, grouping=grouping, several_partitions=split_out > 1)
    has_bins = windows is not None and split_out > 1
    received = task_graph.gather_by_key(
        name, token, tables, into, grouping.exact_keys, merge, max_bytes, shared=has_bins
    )
    if split_out == 1 and into > 1:
        merge_received = partial(merge_exchanged_tables, grouping=grouping)
        merged = task_graph.make_tasks(f"{name}-merge-received", token, merge_received, received)
        received = [[merged, None]]
    bins: list[Any] = [None] * len(received)
    if has_bins:
        partition_bins = task_graph.make_tasks(
            f"{name}-bins", token, kernel.select_bins, [[table] for table in tables]
        )
        bins = task_graph.make_tasks(
            f"{name}-all-bins", token, kernel.merge_bins, [[partition_bins]]
        ) * len(received)
    arguments = [[*tables, each] for tables, each in zip(received, bins, strict=True)]
    results = task_graph.make_tasks(name, token, finish, arguments)
    result = build_collection(results, build_empty_result(grouping), name)
    if windows is None and split_out > 1 and has_plain_types(grouping):
        register_groups(result, partial(_make_tables, name, token, received, grouping))
    keys = tuple(unescape(key) for key in grouping.by)
    if windows is None:
        # All values of a group are in one task.
        has_values = any(state.kind == "values" for state in states)
        groups = GroupTasks(name, token, into, split_out)
        table = KeyedTable(GROUP, df.expr, keys, into if has_values else 0, groups=groups)
    else:
        table = KeyedTable(WINDOW, df.expr, keys, 0)
    register_keys(result, table, keys)
    return result


def _make_tables(
    name: str, token: str, received: list[list[Any]], grouping: Grouping, like: pd.DataFrame
) -> list[Delayed]:
    """Return tasks of the groups as Polars tables, with the names and types of a frame."""
    build = partial(build_table, like=like, grouping=grouping)
    return task_graph.make_tasks(f"{name}-table", f"{token}-{tokenize(like)}", build, received)


@name_partition_in_errors
def aggregate_partition(
    partition: Any,
    number: int,
    where: pl.Expr | None,
    grouping: Grouping,
    time_ranges: Sequence[TimeRange] | None,
) -> pl.DataFrame:
    """Return the partial states of a partition, one row per group.

    ``time_ranges`` are those of the other partitions that may share windows with it, or None.
    """
    exact = [grouping.windows.time] if grouping.windows else []
    ordered = [
        output.column
        for output in grouping.aggregation.outputs
        if output.function in ("min", "max")
    ]
    rows = open_partition(partition, grouping.like, where, exact=exact, ordered=ordered)
    check_value_types(rows, grouping.aggregation)
    if any(state.order == ROW_NUMBER for state in grouping.aggregation.states):
        rows = rows.with_row_index(ROW_NUMBER, offset=0).with_columns(
            pl.col(ROW_NUMBER).cast(pl.Int64) + (number << 40)
        )
    if grouping.windows:
        rows = kernel.add_bins(rows, grouping.windows)
    table = kernel.aggregate_rows(rows, grouping.keys, grouping.aggregation.states)
    if time_ranges is not None and grouping.windows:
        table = kernel.count_finished_sets(
            table, grouping.aggregation.states, grouping.windows.max_width, time_ranges
        )
    return table


def merge_exchanged_tables(
    tables: list[Any], number: int | None, grouping: Grouping
) -> pl.DataFrame:
    """Merge the received tables of an exchange, and replace complete sets by their sizes."""
    states = grouping.aggregation.states
    table = kernel.merge_partials([concat_pieces(tables, number)], grouping.keys, states)
    if grouping.keys != grouping.exact_keys:  # the sets of bins will be merged to sets of windows
        return table
    return kernel.count_finished_sets(table, grouping.aggregation.states, 0, [])


def find_overlapping_ranges(
    partitions: Sequence[ScannablePartition], windows: TimeWindows
) -> list[list[TimeRange] | None]:
    """Return, for each partition, the time ranges of the others that may share windows with it.

    None for all partitions if a time range is unknown; None for a partition if more than
    ``_MAX_NEIGHBORS`` others may share windows with it.
    """
    ranges = [_get_time_range(partition, windows.time) for partition in partitions]
    if any(time_range is None for time_range in ranges):
        return [None] * len(partitions)
    bounds = np.array(ranges, dtype="int64").reshape(-1, 2)
    distance = windows.max_width // 1000 + 1
    overlapping: list[list[TimeRange] | None] = []
    for number, (first, last) in enumerate(bounds):
        overlaps = (bounds[:, 0] <= last + distance) & (bounds[:, 1] >= first - distance)
        overlaps[number] = False
        others = np.flatnonzero(overlaps)
        overlapping.append(
            [(int(a), int(b)) for a, b in bounds[others]] if len(others) <= _MAX_NEIGHBORS else None
        )
    return overlapping


def _get_time_range(partition: ScannablePartition, column: str) -> TimeRange | None:
    bounds = partition.bounds(column)
    if bounds is None:
        return None
    first, last = (_to_microseconds(bound) for bound in bounds)
    return None if first is None or last is None else (first, last + 1)


def _to_microseconds(bound: Any) -> int | None:
    stamp: Any = pd.Timestamp(bound)
    if stamp is pd.NaT:
        return None
    if stamp.tz is not None:
        stamp = stamp.tz_convert("UTC")
    return int(stamp.as_unit("us")._value)
