"""Group-by in partial tables: the tasks behind windows and group-bys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import dask.dataframe as dd
import pandas as pd
import polars as pl
from dask.tokenize import tokenize

from hyperplane.collections.frames import task_graph
from hyperplane.collections.frames.aggregates import NUMERIC_FUNCTIONS, Aggregation
from hyperplane.collections.frames.column_names import (
    escape,
    escape_all,
    escape_columns,
    unescape,
)
from hyperplane.collections.frames.finalize import (
    build_collection,
    build_empty_result,
    build_result,
)
from hyperplane.collections.frames.kernels import polars_kernel as kernel
from hyperplane.collections.frames.shared_windows import TimeRange, find_overlapping_ranges
from hyperplane.collections.frames.source_collection import open_partition, select_source
from hyperplane.collections.frames.task_errors import name_partition_in_errors
from hyperplane.collections.frames.time_bins import BIN, ROW_NUMBER, TimeWindows
from hyperplane.errors import DataError


@dataclass(frozen=True)
class Grouping:
    """What the rows are grouped by, and what is kept of each group.

    Parameters
    ----------
    like : pandas.DataFrame
        Empty, with the types of the columns that are used.
    by : tuple of str
        Key columns.
    windows : Windows or None
        Time windows, beside the keys.
    aggregation : Aggregation
        What is computed.
    """

    like: pd.DataFrame
    by: tuple[str, ...]
    windows: TimeWindows | None
    aggregation: Aggregation

    @classmethod
    def from_columns(
        cls,
        like: pd.DataFrame,
        by: Sequence[str],
        windows: TimeWindows | None,
        aggregation: Aggregation,
    ) -> Grouping:
        """A grouping of columns with the names that they have in pandas."""
        if windows is not None:
            windows = replace(windows, time=escape(windows.time))
        return cls(escape_columns(like), tuple(escape_all(by)), windows, aggregation.escape_names())

    @property
    def keys(self) -> list[str]:
        """Key columns of the partial tables."""
        return [*self.by, *([BIN] if self.windows else [])]

    @property
    def exact_keys(self) -> list[str]:
        """Keys of which equal values belong to one group of the result, and to no other."""
        return [*self.by, *([BIN] if self.windows and self.windows.exact else [])]


def aggregate_groups(
    df: dd.DataFrame, grouping: Grouping, split_out: int, name: str
) -> dd.DataFrame:
    """The lazy result of a grouping."""
    read = select_source(df, [unescape(name) for name in grouping.like.columns])
    windows, states = grouping.windows, grouping.aggregation.states
    spans: list[list[TimeRange] | None] = [None] * len(read.partitions)
    if (
        windows
        and windows.exact
        and grouping.aggregation.has_growing_states
        and read.scannable_partitions
    ):
        spans = find_overlapping_ranges(read.scannable_partitions, windows)
    into = split_out
    if split_out == 1 and grouping.aggregation.has_growing_states and grouping.exact_keys:
        into = task_graph.choose_receiver_count(len(read.partitions))
    token = tokenize(read.token, grouping, split_out, into)
    tables = task_graph.make_tasks(
        f"{name}-partial",
        token,
        aggregate_partition,
        [
            [piece, number, read.where, grouping, span]
            for number, (piece, span) in enumerate(zip(read.partitions, spans, strict=True))
        ],
    )
    merge = partial(kernel.merge_partials, keys=grouping.keys, states=states)
    finish = partial(build_result, grouping=grouping, several=split_out > 1)
    cut = partial(kernel.split_by_hash, keys=grouping.exact_keys, into=into)
    last = task_graph.gather_by_key(name, token, tables, into, cut, merge)
    if split_out == 1 and into > 1:
        settle = partial(merge_exchanged_tables, grouping=grouping)
        last = [
            task_graph.make_tasks(f"{name}-settle", token, settle, [[pieces] for pieces in last])
        ]
    cells: list[Any] = [None] * len(last)
    if windows and split_out > 1:
        found = task_graph.make_tasks(
            f"{name}-cells", token, kernel.select_bins, [[table] for table in tables]
        )
        cells = task_graph.make_tasks(
            f"{name}-all-cells", token, kernel.merge_bins, [[found]]
        ) * len(last)
    results = task_graph.make_tasks(name, token, finish, list(zip(last, cells, strict=True)))
    return build_collection(results, build_empty_result(grouping), name)


@name_partition_in_errors
def aggregate_partition(
    piece: Any,
    number: int,
    where: pl.Expr | None,
    grouping: Grouping,
    spans: Sequence[TimeRange] | None,
) -> pl.DataFrame:
    """What a task keeps of its rows."""
    exact = [grouping.windows.time] if grouping.windows else []
    ordered = [out.column for out in grouping.aggregation.outputs if out.function in ("min", "max")]
    rows = open_partition(piece, grouping.like, where, exact=exact, ordered=ordered)
    check_value_types(rows, grouping.aggregation)
    if any(state.order == ROW_NUMBER for state in grouping.aggregation.states):
        rows = rows.with_row_index(ROW_NUMBER, offset=0).with_columns(
            pl.col(ROW_NUMBER).cast(pl.Int64) + (number << 40)
        )
    if grouping.windows:
        rows = kernel.add_bins(rows, grouping.windows)
    table = kernel.aggregate_rows(rows, grouping.keys, grouping.aggregation.states)
    if spans is not None and grouping.windows:
        table = kernel.count_finished_sets(
            table, grouping.aggregation.states, grouping.windows.max_width, spans
        )
    return table


def check_value_types(rows: pl.LazyFrame, aggregation: Aggregation) -> None:
    """Refuse values that are none of the kind that a function needs, whatever was declared."""
    schema = rows.collect_schema()
    for out in aggregation.outputs:
        kind = schema[out.column]
        number = kind.is_numeric() or kind in (pl.Boolean, pl.Null)
        if out.function in ("min", "max") and kind.is_nested():
            raise DataError(out.column, f"is of type {kind}, which has no {out.function}")
        if out.function in NUMERIC_FUNCTIONS and not number:
            if out.function == "sum" and isinstance(kind, pl.Duration):
                continue
            some = rows.select(out.column).drop_nulls().head(1).collect()
            shown = f", such as {some.item()!r:.60}" if some.height else ""
            word = "text" if kind == pl.String else str(kind).lower()
            raise DataError(
                out.column,
                f"holds {word}{shown}; {out.function!r} needs numbers and booleans",
            )


def merge_exchanged_tables(tables: list[pl.DataFrame], grouping: Grouping) -> pl.DataFrame:
    """Combine the pieces of an exchange, and keep counts where whole sets are no longer needed."""
    table = kernel.merge_partials(tables, grouping.keys, grouping.aggregation.states)
    if grouping.keys != grouping.exact_keys:  # cells are yet to be put together to windows
        return table
    return kernel.count_finished_sets(table, grouping.aggregation.states, 0, [])
