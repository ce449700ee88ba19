"""``drop_duplicates``: distinct rows, first of each partition, then of an exchange by hash."""

from __future__ import annotations

from collections.abc import Sequence
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
    list_names,
)
from hyperplane.collections.frames.finalize import build_collection
from hyperplane.collections.frames.helper_steps import (
    DISTINCT,
    GroupTasks,
    KeyedTable,
    register_keys,
)
from hyperplane.collections.frames.kernels import distinct_rows
from hyperplane.collections.frames.kernels import polars_kernel as kernel
from hyperplane.collections.frames.kernels.concatenate import concat_tables
from hyperplane.collections.frames.kernels.table_files import concat_pieces
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
from hyperplane.formats.pandas_frames.typed_table import TypedTable
from hyperplane.formats.parquet import text_dictionaries
from hyperplane.formats.parquet.partition import ParquetPartition

Keep = Literal["first", "last"]


@check_call
def drop_duplicates(
    df: Frame,
    subset: str | Sequence[str] | None = None,
    *,
    keep: Keep = "first",
    split_out: int | None = None,
) -> dd.DataFrame:
    """Drop rows whose values occur in another row.

    Returns the rows of ``df.drop_duplicates(subset, keep=keep)`` of pandas, in another order.

    Parameters
    ----------
    df : dask.dataframe.DataFrame, URL or list of URLs
        The rows. URLs are read with :func:`read`. The result has all columns: select the needed
        ones first.
    subset : str or list of str, optional
        Columns to compare; all by default. Missing values are equal to each other.
    keep : {"first", "last"}
        Which of several equal rows is kept.
    split_out : int, optional
        Number of partitions of the result. By default four per thread, but at most four per input
        partition, and at least one per eight input partitions and, if the rows take more than a
        quarter of the cluster's memory, per tenth of a thread's memory.

    Returns
    -------
    dask.dataframe.DataFrame
        Lazy, with a new index in each partition.

    Raises
    ------
    RequestError
        With every invalid argument.
    DataError
        When it is computed, if values of a column have no common type. It has ``column``.

    Examples
    --------
    >>> import pandas as pd, dask.dataframe as dd
    >>> visits = pd.DataFrame({"user": [1, 2, 1], "page": ["a", "a", "b"]})
    >>> df = dd.from_pandas(visits, npartitions=2)
    >>> drop_duplicates(df, "user").compute().sort_values("user", ignore_index=True)
       user page
    0     1    a
    1     2    a
    """
    df = as_collection(df)
    like = df._meta.iloc[:0].reset_index(drop=True)
    columns = list(like.columns) if subset is None else list_names(subset)
    with collect_faults() as faults:
        faults += find_column_faults(like, subset=columns)
        faults += find_split_out_faults(split_out) if split_out is not None else []
        if subset is not None and not columns:
            faults.append(Fault("subset", repr(subset), "at least one column, or None for all"))
        if not is_one_of(keep, ("first", "last")):
            faults.append(Fault("keep", repr(keep)[:80], "'first' or 'last'"))
    source = select_source(df, list(like.columns))
    like, columns = escape_columns(like), escape_all(columns)
    size = exchange_memory.estimate_source_size(source, df)
    if size is not None and not exchange_memory.fits_in_memory(size):
        source = select_source(df, list(source.columns), merge=False)  # less memory for each task
    count = len(source.partitions)
    into = split_out or exchange_memory.choose_row_partition_count(count, size)
    max_bytes = exchange_memory.choose_max_bytes(count, size)
    token = tokenize(source.token, columns, keep, into, max_bytes)
    combine = partial(_drop_duplicates, columns=columns, keep=keep)
    arguments = [
        [partition, number, source.where, like, columns, keep]
        for number, partition in enumerate(source.partitions)
    ]
    tables = task_graph.make_tasks(
        "drop-duplicates-partial", token, drop_partition_duplicates, arguments
    )
    received_tables = task_graph.gather_by_key(
        "drop-duplicates", token, tables, into, columns, combine, max_bytes
    )
    finish = partial(_build_partition, columns=columns, keep=keep, like=like)
    results = task_graph.make_tasks("drop-duplicates", token, finish, received_tables)
    result = build_collection(results, like, "drop-duplicates")
    build = partial(_build_table, columns=columns, keep=keep, like=like)
    register_tables(
        result,
        like,
        lambda: task_graph.make_tasks("drop-duplicates-table", token, build, received_tables),
    )
    groups = GroupTasks("drop-duplicates", token, into, into)
    names = tuple(unescape(name) for name in columns)
    register_keys(result, KeyedTable(DISTINCT, df.expr, names, 0, groups=groups), df.columns)
    return result


@name_partition_in_errors
def drop_partition_duplicates(
    partition: Any,
    number: int,
    where: pl.Expr | None,
    like: pd.DataFrame,
    subset: list[str],
    keep: Keep,
) -> pl.DataFrame:
    """Drop duplicates within a partition."""
    if where is None and set(subset) == set(like.columns):
        distinct = text_dictionaries.read_distinct_rows(
            partition, [unescape(name) for name in like.columns]
        )
        if distinct is not None:
            return distinct.rename(dict(zip(distinct.columns, like.columns, strict=True)))
    rows = open_partition(partition, like, where)
    # Of others the first rows cannot be read alone.
    if isinstance(partition, pd.DataFrame) or (
        isinstance(partition, ParquetPartition) and not partition.is_read_by_python
    ):
        table = distinct_rows.read_distinct_rows(rows, subset, keep)
        if table is not None:
            return table
    return kernel.drop_repeats(rows, subset, keep)


def _drop_duplicates(tables: list[pl.DataFrame], columns: list[str], keep: Keep) -> pl.DataFrame:
    table = concat_tables(tables)
    if distinct_rows.can_find_distinct_rows(table, columns):
        return table.filter(distinct_rows.find_distinct_rows(table, columns, keep))
    return kernel.drop_repeats(table.lazy(), columns, keep)


def _build_partition(
    tables: list[Any], number: int | None, columns: list[str], keep: Keep, like: pd.DataFrame
) -> pd.DataFrame:
    return _build_table(tables, number, columns, keep, like).to_pandas()


def _build_table(
    tables: list[Any], number: int | None, columns: list[str], keep: Keep, like: pd.DataFrame
) -> TypedTable:
    return TypedTable(_drop_duplicates([concat_pieces(tables, number)], columns, keep), like)
