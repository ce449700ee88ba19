"""Group-by in partial tables: the tasks behind windows and group-bys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import dask.dataframe as dd
import pandas as pd
import polars as pl
from dask.tokenize import tokenize

from hyperplane.collections.frames import plan
from hyperplane.collections.frames.aggregates import Aggregation
from hyperplane.collections.frames.cells import CELL, ROW, Windows
from hyperplane.collections.frames.finish import assemble, empty, lazy
from hyperplane.collections.frames.kernels import polars_kernel as kernel
from hyperplane.collections.frames.shared_windows import Span, shared_spans
from hyperplane.collections.frames.source import on_piece, opened, source


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
    columns = list(grouping.like.columns)
    read = source(df, columns)
    windows, states = grouping.windows, grouping.aggregation.states
    spans: list[list[Span] | None] = [None] * len(read.pieces)
    if windows and windows.exact and grouping.aggregation.grows and read.parts:
        spans = shared_spans(read.parts, windows)
    into = split_out
    if split_out == 1 and grouping.aggregation.grows and grouping.whole_keys:
        into = plan.receivers(len(read.pieces))
    token = tokenize(read.token, grouping, split_out, into)
    tables = plan.tasks(
        f"{name}-partial",
        token,
        partial_table,
        [
            [piece, number, read.where, grouping, span]
            for number, (piece, span) in enumerate(zip(read.pieces, spans, strict=True))
        ],
    )
    merge = partial(kernel.merge, keys=grouping.keys, states=states)
    finish = partial(assemble, grouping=grouping)
    cut = partial(kernel.split, keys=grouping.whole_keys, into=into)
    last = plan.gathered(name, token, tables, into, cut, merge)
    if split_out == 1 and into > 1:
        settle = partial(settled, grouping=grouping)
        last = [plan.tasks(f"{name}-settle", token, settle, [[pieces] for pieces in last])]
    cells: list[Any] = [None] * len(last)
    if windows and split_out > 1:
        found = plan.tasks(f"{name}-cells", token, kernel.cells_of, [[table] for table in tables])
        cells = plan.tasks(f"{name}-all-cells", token, kernel.all_cells, [[found]]) * len(last)
    results = plan.tasks(name, token, finish, list(zip(last, cells, strict=True)))
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
    rows = opened(piece, list(grouping.like.columns), where)
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


def settled(tables: list[pl.DataFrame], grouping: Grouping) -> pl.DataFrame:
    """Combine the pieces of an exchange, and keep counts where whole sets are no longer needed."""
    table = kernel.merge(tables, grouping.keys, grouping.aggregation.states)
    if grouping.keys != grouping.whole_keys:  # cells are yet to be put together to windows
        return table
    return kernel.settle(table, grouping.aggregation.states, 0, [])
