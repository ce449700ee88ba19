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
from hyperplane.collections.frames.aggregates import NUMBERS_ONLY, Aggregation
from hyperplane.collections.frames.column_names import (
    escape,
    escape_all,
    escape_columns,
    unescape,
)
from hyperplane.collections.frames.finalize import assemble, empty, lazy
from hyperplane.collections.frames.kernels import polars_kernel as kernel
from hyperplane.collections.frames.shared_windows import Span, shared_spans
from hyperplane.collections.frames.source_collection import opened, source
from hyperplane.collections.frames.task_errors import on_piece
from hyperplane.collections.frames.time_bins import CELL, ROW, Windows
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
    windows: Windows | None
    aggregation: Aggregation

    @classmethod
    def of(
        cls,
        like: pd.DataFrame,
        by: Sequence[str],
        windows: Windows | None,
        aggregation: Aggregation,
    ) -> Grouping:
        """A grouping of columns with the names that they have in pandas."""
        if windows is not None:
            windows = replace(windows, time=escape(windows.time))
        return cls(escape_columns(like), tuple(escape_all(by)), windows, aggregation.escaped())

    @property
    def keys(self) -> list[str]:
        """Key columns of the partial tables."""
        return [*self.by, *([CELL] if self.windows else [])]

    @property
    def whole_keys(self) -> list[str]:
        """Keys of which equal values belong to one group of the result, and to no other."""
        return [*self.by, *([CELL] if self.windows and self.windows.exact else [])]


def grouped(df: dd.DataFrame, grouping: Grouping, split_out: int, name: str) -> dd.DataFrame:
    """The lazy result of a grouping."""
    read = source(df, [unescape(name) for name in grouping.like.columns])
    windows, states = grouping.windows, grouping.aggregation.states
    spans: list[list[Span] | None] = [None] * len(read.pieces)
    if windows and windows.exact and grouping.aggregation.grows and read.parts:
        spans = shared_spans(read.parts, windows)
    into = split_out
    if split_out == 1 and grouping.aggregation.grows and grouping.whole_keys:
        into = task_graph.receivers(len(read.pieces))
    token = tokenize(read.token, grouping, split_out, into)
    tables = task_graph.tasks(
        f"{name}-partial",
        token,
        partial_table,
        [
            [piece, number, read.where, grouping, span]
            for number, (piece, span) in enumerate(zip(read.pieces, spans, strict=True))
        ],
    )
    merge = partial(kernel.merge, keys=grouping.keys, states=states)
    finish = partial(assemble, grouping=grouping, several=split_out > 1)
    cut = partial(kernel.split, keys=grouping.whole_keys, into=into)
    last = task_graph.gathered(name, token, tables, into, cut, merge)
    if split_out == 1 and into > 1:
        settle = partial(settled, grouping=grouping)
        last = [task_graph.tasks(f"{name}-settle", token, settle, [[pieces] for pieces in last])]
    cells: list[Any] = [None] * len(last)
    if windows and split_out > 1:
        found = task_graph.tasks(
            f"{name}-cells", token, kernel.cells_of, [[table] for table in tables]
        )
        cells = task_graph.tasks(f"{name}-all-cells", token, kernel.all_cells, [[found]]) * len(
            last
        )
    results = task_graph.tasks(name, token, finish, list(zip(last, cells, strict=True)))
    return lazy(results, empty(grouping), name)


@on_piece
def partial_table(
    piece: Any,
    number: int,
    where: pl.Expr | None,
    grouping: Grouping,
    spans: Sequence[Span] | None,
) -> pl.DataFrame:
    """What a task keeps of its rows."""
    exact = [grouping.windows.time] if grouping.windows else []
    ordered = [out.column for out in grouping.aggregation.outputs if out.function in ("min", "max")]
    rows = opened(piece, grouping.like, where, exact=exact, ordered=ordered)
    check_functions(rows, grouping.aggregation)
    if any(state.order == ROW for state in grouping.aggregation.states):
        rows = rows.with_row_index(ROW, offset=0).with_columns(
            pl.col(ROW).cast(pl.Int64) + (number << 40)
        )
    if grouping.windows:
        rows = kernel.cells(rows, grouping.windows)
    table = kernel.group(rows, grouping.keys, grouping.aggregation.states)
    if spans is not None and grouping.windows:
        table = kernel.settle(table, grouping.aggregation.states, grouping.windows.reach, spans)
    return table


def check_functions(rows: pl.LazyFrame, aggregation: Aggregation) -> None:
    """Refuse values that are none of the kind that a function needs, whatever was declared."""
    schema = rows.collect_schema()
    for out in aggregation.outputs:
        kind = schema[out.column]
        number = kind.is_numeric() or kind in (pl.Boolean, pl.Null)
        if out.function in ("min", "max") and kind.is_nested():
            raise DataError(out.column, f"is of type {kind}, which has no {out.function}")
        if out.function in NUMBERS_ONLY and not number:
            if out.function == "sum" and isinstance(kind, pl.Duration):
                continue
            some = rows.select(out.column).drop_nulls().head(1).collect()
            shown = f", such as {some.item()!r:.60}" if some.height else ""
            word = "text" if kind == pl.String else str(kind).lower()
            raise DataError(
                out.column,
                f"holds {word}{shown}; {out.function!r} needs numbers and booleans",
            )


def settled(tables: list[pl.DataFrame], grouping: Grouping) -> pl.DataFrame:
    """Combine the pieces of an exchange, and keep counts where whole sets are no longer needed."""
    table = kernel.merge(tables, grouping.keys, grouping.aggregation.states)
    if grouping.keys != grouping.whole_keys:  # cells are yet to be put together to windows
        return table
    return kernel.settle(table, grouping.aggregation.states, 0, [])
