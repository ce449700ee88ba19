"""``sort_values``: tasks sample values, choose split values, split the rows and sort them.

Rows that may not fit into the memory of the cluster are exchanged through compressed files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import dask.dataframe as dd
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
from hyperplane.collections.frames.helper_steps import SORT, KeyedTable, register_keys
from hyperplane.collections.frames.kernels import polars_kernel as kernel
from hyperplane.collections.frames.kernels import range_splits
from hyperplane.collections.frames.kernels.concatenate import concat_tables
from hyperplane.collections.frames.kernels.range_splits import SortKeys
from hyperplane.collections.frames.kernels.table_files import concat_pieces, write_tables
from hyperplane.collections.frames.source_collection import (
    Frame,
    as_collection,
    open_partition,
    select_source,
)
from hyperplane.collections.frames.task_errors import name_partition_in_errors
from hyperplane.collections.frames.typed_partitions import register_tables
from hyperplane.core.argument_checks import is_one_of
from hyperplane.core.errors import Fault
from hyperplane.core.public_calls import check_call
from hyperplane.formats.pandas_frames.column_names import escape_all, escape_columns, unescape
from hyperplane.formats.pandas_frames.to_pandas import columns_to_pandas
from hyperplane.formats.pandas_frames.typed_table import TypedTable


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
    #: Whether all rows with one value of the first column are in one partition.
    whole: bool
    #: Whether the rows of a partition that is computed again have the same positions.
    is_ordered: bool

    @property
    def keys(self) -> SortKeys:
        """The columns with their directions."""
        return SortKeys(self.by, self.descending, self.nulls_last, self.whole)


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
        first column are in the same partition, unless the rows are known to take more than a
        quarter of the cluster's memory.
    ascending : bool or list of bool
        Whether the smallest values come first, for all columns or for each.
    na_position : {"first", "last"}
        Position of rows with a missing value, for each column.
    split_out : int, optional
        Number of partitions of the result. By default four per thread, but at most four per input
        partition, and at least one per eight input partitions and per tenth of a thread's memory.

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
    by them: in memory, or through compressed files in the folders of the workers if the rows take
    more than a quarter of the cluster's memory or their size is unknown.

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
    in_files = not exchange_memory.fits_in_memory(size)
    if in_files:
        source = select_source(df, list(source.columns), merge=False)  # less memory for each task
    into = split_out or exchange_memory.choose_row_partition_count(len(source.partitions), size)
    in_files = in_files and into > 1
    descending = tuple(not direction for direction in directions)
    # Only rows that keep their positions are divided by them.
    whole = size is None or not in_files or not source.is_ordered
    order = SortOrder(
        like,
        tuple(keys),
        descending,
        na_position == "last",
        into,
        in_files,
        whole,
        source.is_ordered,
    )
    token = tokenize(source.token, order)
    split_rows: Any = None
    if into > 1:
        sample_arguments = [
            [partition, number, source.where, order]
            for number, partition in enumerate(source.partitions)
        ]
        samples = task_graph.make_tasks("sort-sample", token, sample_partition, sample_arguments)
        choose = partial(choose_split_rows, order=order)
        (split_rows,) = task_graph.make_tasks("sort-split-values", token, choose, [[samples]])
    arguments = [
        [partition, number, source.where, order, split_rows]
        for number, partition in enumerate(source.partitions)
    ]
    tables = task_graph.make_tasks("sort-split", token, split_partition, arguments)
    if in_files:
        received_tables = task_graph.exchange_files("sort", token, tables, into)
    else:
        exchanged = task_graph.exchange("sort", token, tables, into, concat_tables)
        received_tables = [[pieces, None] for pieces in exchanged]
    finish = partial(_build_partition, order=order)
    results = task_graph.make_tasks("sort", token, finish, received_tables)
    result = build_collection(results, like, "sort")
    build = partial(_build_table, order=order)
    register_tables(
        result, like, lambda: task_graph.make_tasks("sort-table", token, build, received_tables)
    )
    first = (unescape(keys[0]),)
    table = KeyedTable(SORT, df.expr, first, into if whole else 0, is_divided=not whole)
    register_keys(result, table, df.columns, has_all_rows=True)
    return result


def _are_directions(directions: Any, count: int) -> bool:
    """Return whether a value is a sequence of ``count`` booleans."""
    return (
        isinstance(directions, Sequence)
        and len(directions) == count
        and all(isinstance(direction, bool) for direction in directions)
    )


@name_partition_in_errors
def sample_partition(
    partition: Any, number: int, where: pl.Expr | None, order: SortOrder
) -> tuple[pl.DataFrame, int]:
    """Return a sample of the keys of a partition, and the number of rows with a first key."""
    keys = list(order.by[:1] if order.whole else order.by)
    frame = open_partition(partition, order.like[keys], where, ordered=keys)
    return range_splits.sample_keys(frame, keys, number, by_value=not order.is_ordered)


def choose_split_rows(
    samples: Sequence[tuple[pl.DataFrame, int]], order: SortOrder
) -> pl.DataFrame | None:
    """Return the keys at which the rows are split; None if there are none."""
    return range_splits.choose_split_rows(samples, order.keys, order.into)


@name_partition_in_errors
def split_partition(
    partition: Any,
    number: int,
    where: pl.Expr | None,
    order: SortOrder,
    split_rows: pl.DataFrame | None,
) -> list[Any]:
    """Split the rows of a partition at the divisions of the result."""
    rows = open_partition(partition, order.like, where, ordered=order.by).collect()
    if order.into == 1:
        return [rows]
    if split_rows is None:  # the first key of every row is missing
        pieces = [rows, *[rows.clear()] * (order.into - 1)]
        return write_tables(pieces) if order.in_files else pieces
    piece_of_row = range_splits.number_rows(rows, split_rows, order.keys, number, order.into)
    if order.in_files:
        return write_tables(kernel.iterate_pieces(rows, piece_of_row, order.into))
    return kernel.split_by_number(rows, pl.Series(piece_of_row), order.into)


def _build_partition(tables: list[Any], number: int | None, order: SortOrder) -> pd.DataFrame:
    """Sort the rows of some tables; of lists of tables, those at position ``number``."""
    rows, positions = _concat_and_sort(tables, number, order)
    # To save memory, each column is released once it is sorted and converted.
    columns = range_splits.gather_columns(rows, order.like.columns, positions)
    return columns_to_pandas(columns, order.like)


def _build_table(tables: list[Any], number: int | None, order: SortOrder) -> TypedTable:
    """Return the rows of :func:`_build_partition` as a Polars table."""
    rows, positions = _concat_and_sort(tables, number, order)
    columns = range_splits.gather_columns(rows, order.like.columns, positions)
    return TypedTable(pl.DataFrame(list(columns)), order.like)


def _concat_and_sort(
    tables: list[Any], number: int | None, order: SortOrder
) -> tuple[pl.DataFrame, pl.Series]:
    """Return the rows of some tables, without their order, and their positions in the result."""
    # A shallow copy, because a task that runs again needs the columns of a table in memory.
    rows = concat_pieces(tables, number).clone()
    return rows, range_splits.find_sorted_positions(rows, order.keys)
