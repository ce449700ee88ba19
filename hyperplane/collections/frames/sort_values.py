"""`hyperplane.dataframe.sort_values`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import dask.dataframe as dd
import pandas as pd
import polars as pl
from dask.tokenize import tokenize

from hyperplane.collections.frames import task_graph
from hyperplane.collections.frames.arguments import (
    collect_faults,
    find_column_faults,
    find_split_out_faults,
    has_column,
    list_names,
)
from hyperplane.collections.frames.finalize import build_collection
from hyperplane.collections.frames.kernels import ordering
from hyperplane.collections.frames.kernels.concatenate import concat_tables
from hyperplane.collections.frames.source_collection import (
    Frame,
    as_collection,
    open_partition,
    select_source,
)
from hyperplane.collections.frames.task_errors import name_partition_in_errors
from hyperplane.core.argument_checks import is_one_of
from hyperplane.core.errors import Fault
from hyperplane.core.public_calls import check_call
from hyperplane.formats.pandas_frames.column_names import escape_all, escape_columns
from hyperplane.formats.pandas_frames.convert import to_pandas


@dataclass(frozen=True)
class SortOrder:
    """Order of the rows and number of partitions of the result.

    Parameters
    ----------
    like : pandas.DataFrame
        Empty, with the types of the columns.
    by : tuple of str
        Columns, the most important first.
    descending : tuple of bool
        One for each column.
    nulls_last : bool
        Whether rows with a missing value come last.
    into : int
        Partitions of the result.
    """

    like: pd.DataFrame
    by: tuple[str, ...]
    descending: tuple[bool, ...]
    nulls_last: bool
    into: int


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
    computes nothing: a task samples the first column to choose the divisions.

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
    into = split_out or task_graph.choose_row_receiver_count(len(source.partitions))
    descending = tuple(not way for way in directions)
    order = SortOrder(like, tuple(keys), descending, na_position == "last", into)
    token = tokenize(source.token, order)
    split_values: Any = None
    if into > 1:
        sample_arguments = [
            [partition, number, source.where, like[keys[:1]]]
            for number, partition in enumerate(source.partitions)
        ]
        samples = task_graph.make_tasks("sort-sample", token, sample_partition, sample_arguments)
        find = partial(ordering.find_split_values, descending=descending[0], into=into)
        (split_values,) = task_graph.make_tasks("sort-edges", token, find, [[samples]])
    arguments = [
        [partition, number, source.where, order, split_values]
        for number, partition in enumerate(source.partitions)
    ]
    tables = task_graph.make_tasks("sort-cut", token, cut_partition, arguments)
    received_tables = task_graph.exchange("sort", token, tables, into, concat_tables)
    finish = partial(_build_partition, order=order)
    results = task_graph.make_tasks(
        "sort", token, finish, [[received] for received in received_tables]
    )
    return build_collection(results, like, "sort")


def _are_directions(directions: Any, count: int) -> bool:
    """Return whether a value is a sequence of ``count`` booleans."""
    return (
        isinstance(directions, Sequence)
        and len(directions) == count
        and all(isinstance(way, bool) for way in directions)
    )


@name_partition_in_errors
def sample_partition(
    partition: Any, number: int, where: pl.Expr | None, like: pd.DataFrame
) -> tuple[pl.Series, int]:
    """Sample the first sort column of a partition; also return its number of values."""
    return ordering.sample_values(
        open_partition(partition, like, where, ordered=list(like.columns)), like.columns[0]
    )


@name_partition_in_errors
def cut_partition(
    partition: Any,
    number: int,
    where: pl.Expr | None,
    order: SortOrder,
    split_values: pl.Series | None,
) -> list[pl.DataFrame]:
    """Split the rows of a partition at the divisions of the result."""
    rows = open_partition(partition, order.like, where, ordered=order.by).collect()
    if order.into == 1:
        return [rows]
    return ordering.split_by_values(
        rows, order.by[0], split_values, order.into, order.descending[0], order.nulls_last
    )


def _build_partition(tables: list[pl.DataFrame], order: SortOrder) -> pd.DataFrame:
    rows = concat_tables(tables)
    return to_pandas(
        ordering.sort_rows(rows, order.by, order.descending, order.nulls_last), order.like
    )
