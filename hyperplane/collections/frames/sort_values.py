"""``sort_values``: tasks sample values, choose split values, split the rows and sort them.

Rows that may not fit into the memory of the cluster are exchanged through compressed files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
from dask.tokenize import tokenize

from hyperplane.collections.frames import exchange_memory, task_graph
from hyperplane.collections.frames.arguments import (
    collect_faults,
    find_column_faults,
    find_split_out_faults,
    has_column,
    list_names,
)
from hyperplane.collections.frames.finalize import build_collection
from hyperplane.collections.frames.kernels import polars_kernel as kernel
from hyperplane.collections.frames.kernels.concatenate import concat_tables
from hyperplane.collections.frames.kernels.table_files import (
    join_filed_tables,
    load_tables,
    write_tables,
)
from hyperplane.collections.frames.source_collection import (
    Frame,
    as_collection,
    open_partition,
    select_source,
)
from hyperplane.collections.frames.task_errors import name_partition_in_errors
from hyperplane.core.active_cluster import count_processes
from hyperplane.core.argument_checks import is_one_of
from hyperplane.core.errors import Fault
from hyperplane.core.public_calls import check_call
from hyperplane.formats.pandas_frames.column_names import escape_all, escape_columns
from hyperplane.formats.pandas_frames.convert import to_pandas

#: Values that a task samples from its rows.
_SAMPLE_SIZE = 2048
_POSITION = "__position__"


@dataclass(frozen=True)
class SortOrder:
    """Order of the rows and number of partitions of the result."""

    #: Empty, with the types of the columns.
    like: pd.DataFrame
    #: Columns, the most important first.
    by: tuple[str, ...]
    #: Whether each column is sorted in descending order.
    descending: tuple[bool, ...]
    nulls_last: bool
    #: Number of partitions of the result.
    into: int
    #: Whether the rows are exchanged through files.
    in_files: bool


@check_call
def sort_values(
    df: Frame,
    by: str | Sequence[str],
    *,
    ascending: bool | Sequence[bool] = True,
    na_position: Literal["first", "last"] = "last",
    split_out: int | None = None,
) -> dd.DataFrame:
    """Sort rows by one or more columns.

    Returns the rows of ``df.sort_values(by, ascending=ascending, kind="stable",
    ignore_index=True)`` of pandas, in the same order. Unlike Dask's own ``sort_values``, the call
    computes nothing: the divisions are chosen by a task, from samples of the first column.

    Parameters
    ----------
    df : dask.dataframe.DataFrame, URL or list of URLs
        The rows. URLs are read with :func:`read`. The result has all columns: select the needed
        ones first.
    by : str or list of str
        Columns, the most important first: numbers, times or text. Rows with the same value of the
        first column are in the same partition.
    ascending : bool or list of bool
        Whether the smallest values come first, for all columns or for each.
    na_position : {"first", "last"}
        Position of rows with a missing value, for each column.
    split_out : int, optional
        Number of partitions of the result. By default four per thread, but at most four per input
        partition, and at least one per eight input partitions.

    Returns
    -------
    dask.dataframe.DataFrame
        Lazy; sorted across partitions, with a new index in each partition.

    Raises
    ------
    RequestError
        With every invalid argument.
    DataError
        When it is computed, if values of a column have no common type. It has ``column``.

    Notes
    -----
    This is a sample sort (DeWitt, Naughton and Schneider, "Parallel sorting on a shared-nothing
    architecture using probabilistic splitting", 1991): each task draws up to 2,048 values of the
    first column, one task chooses quantiles of all samples as split values, and rows are exchanged
    by them.

    Examples
    --------
    >>> import pandas as pd, dask.dataframe as dd
    >>> flights = pd.DataFrame({"carrier": ["UA", "AA", "DL"], "delay": [12, 30, 5]})
    >>> df = dd.from_pandas(flights, npartitions=2)
    >>> sort_values(df, "delay", ascending=False).compute()["carrier"].to_list()
    ['AA', 'UA', 'DL']
    """
    df = as_collection(df)
    like = df._meta.iloc[:0].reset_index(drop=True)
    keys = list_names(by)
    directions = [ascending] * len(keys) if isinstance(ascending, bool) else ascending
    with collect_faults() as faults:
        faults += find_column_faults(like, by=keys)
        faults += find_split_out_faults(split_out) if split_out is not None else []
        if not keys:
            faults.append(Fault("by", repr(by), "at least one column"))
        if not _are_directions(directions, len(keys)):
            allowed = f"True or False, or {len(keys)} of them: one for each column of by"
            faults.append(Fault("ascending", repr(ascending), allowed))
        if not is_one_of(na_position, ("first", "last")):
            faults.append(Fault("na_position", repr(na_position)[:80], "'first' or 'last'"))
        faults += [
            Fault(
                "by",
                f"{key!r} of type category",
                "columns of numbers, times or text",
                f"replace it by its codes, df[{key!r}].cat.codes",
            )
            for key in keys
            if has_column(like, key) and isinstance(like[key].dtype, pd.CategoricalDtype)
        ]
    source = select_source(df, list(like.columns))
    like, keys = escape_columns(like), escape_all(keys)
    size = exchange_memory.estimate_source_size(source, df)
    into = split_out or exchange_memory.choose_sorted_partition_count(len(source.partitions), size)
    in_files = into > 1 and not exchange_memory.fits_in_memory(size)
    descending = tuple(not direction for direction in directions)
    order = SortOrder(like, tuple(keys), descending, na_position == "last", into, in_files)
    token = tokenize(source.token, order)
    split_values: Any = None
    if into > 1:
        sample_arguments = [
            [partition, number, source.where, like[keys[:1]]]
            for number, partition in enumerate(source.partitions)
        ]
        samples = task_graph.make_tasks("sort-sample", token, sample_partition, sample_arguments)
        choose = partial(_choose_split_values, descending=descending[0], into=into)
        (split_values,) = task_graph.make_tasks("sort-split-values", token, choose, [[samples]])
    arguments = [
        [partition, number, source.where, order, split_values]
        for number, partition in enumerate(source.partitions)
    ]
    tables = task_graph.make_tasks("sort-split", token, split_partition, arguments)
    if in_files and count_processes() == 1:
        # Each receiver reads its pieces of all tables from the files: no task for each piece.
        received_tables: list[list[Any]] = [[tables, number] for number in range(into)]
    else:
        join = join_filed_tables if in_files else concat_tables
        exchanged = task_graph.exchange("sort", token, tables, into, join)
        received_tables = [[pieces, None] for pieces in exchanged]
    finish = partial(_build_partition, order=order)
    results = task_graph.make_tasks("sort", token, finish, received_tables)
    return build_collection(results, like, "sort")


def _are_directions(directions: Any, count: int) -> bool:
    """Return whether a value is a sequence of ``count`` booleans."""
    return (
        isinstance(directions, Sequence)
        and len(directions) == count
        and all(isinstance(direction, bool) for direction in directions)
    )


@name_partition_in_errors
def sample_partition(
    partition: Any, number: int, where: pl.Expr | None, like: pd.DataFrame
) -> tuple[pl.Series, int]:
    """Return a sample of the first sort column of a partition, and its number of values."""
    return _sample_values(
        open_partition(partition, like, where, ordered=list(like.columns)), like.columns[0]
    )


@name_partition_in_errors
def split_partition(
    partition: Any,
    number: int,
    where: pl.Expr | None,
    order: SortOrder,
    split_values: pl.Series | None,
) -> list[Any]:
    """Split the rows of a partition at the divisions of the result."""
    rows = open_partition(partition, order.like, where, ordered=order.by).collect()
    if order.into == 1:
        return [rows]
    pieces = _split_by_values(rows, split_values, order)
    return write_tables(pieces) if order.in_files else list(pieces)


def _build_partition(tables: list[Any], number: int | None, order: SortOrder) -> pd.DataFrame:
    """Sort the rows of some tables; of lists of tables, those at position ``number``."""
    pieces = tables if number is None else [pieces[number] for pieces in tables]
    rows = concat_tables(load_tables(pieces))
    return to_pandas(_sort_rows(rows, order.by, order.descending, order.nulls_last), order.like)


def _sample_values(frame: pl.LazyFrame, column: str) -> tuple[pl.Series, int]:
    """Return a random sample of the values of a column, and the number of values."""
    values = frame.select(column).collect().to_series().drop_nulls()
    if len(values) > _SAMPLE_SIZE:
        # Random positions, since adjacent values are often similar; a fixed seed, so that a task
        # that is computed again returns the same values.
        positions = np.random.default_rng(0).integers(0, len(values), _SAMPLE_SIZE)
        return values.gather(positions), len(values)
    return values, len(values)


def _choose_split_values(
    samples: Sequence[tuple[pl.Series, int]], descending: bool, into: int
) -> pl.Series | None:
    """Return values that split the rows into ``into`` parts of similar size.

    None if all samples are empty.
    """
    positions = [number for number, (values, _) in enumerate(samples) if len(values)]
    nonempty = [samples[number] for number in positions]
    if not nonempty:
        return None
    name = nonempty[0][0].name
    weights = np.concatenate(
        [np.full(len(values), count / len(values)) for values, count in nonempty]
    )
    table = concat_tables([pl.DataFrame({name: values}) for values, _ in nonempty], positions)
    table = table.rename({name: "value"}).with_columns(weight=pl.Series(weights))
    table = table.sort("value", descending=descending)
    share = np.cumsum(table.get_column("weight").to_numpy()) / weights.sum()
    quantiles = np.searchsorted(share, np.arange(1, into) / into).clip(0, table.height - 1)
    return table.get_column("value").gather(quantiles).unique().sort()


def _split_by_values(
    rows: pl.DataFrame, split_values: pl.Series | None, order: SortOrder
) -> Iterator[pl.DataFrame]:
    """Yield the rows between the split values; rows of a part keep their order."""
    values = rows.get_column(order.by[0])
    if split_values is None:  # all values are missing
        yield from [rows, *[rows.clear()] * (order.into - 1)]
        return
    piece = split_values.search_sorted(values.cast(split_values.dtype), side="left").cast(pl.Int64)
    if order.descending[0]:
        piece = len(split_values) - piece
    missing = order.into - 1 if order.nulls_last else 0
    piece_of_row = pl.select(pl.when(values.is_null()).then(missing).otherwise(piece)).to_series()
    yield from kernel.iterate_pieces(rows, piece_of_row, order.into)


def _sort_rows(
    rows: pl.DataFrame, by: Sequence[str], descending: Sequence[bool], nulls_last: bool
) -> pl.DataFrame:
    """Sort rows; the sort is stable."""
    # Only the keys and the positions are sorted, one key after the other, the least important
    # first, and whole rows are gathered once: less time and memory than to sort whole rows. An
    # eager sort took three times longer than a lazy one.
    keys = rows.lazy().select(by).with_row_index(_POSITION)
    for key, is_descending in reversed(list(zip(by, descending, strict=True))):
        keys = keys.sort(key, descending=is_descending, nulls_last=nulls_last, maintain_order=True)
    positions = keys.select(_POSITION).collect().to_series()
    return rows.lazy().select(pl.all().gather(positions)).collect()
