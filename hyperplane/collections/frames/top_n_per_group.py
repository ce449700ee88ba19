"""``top_n_per_group``: the rows with the largest values of each group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from dask.tokenize import tokenize

from hyperplane.collections.frames import exchange_memory, task_graph
from hyperplane.collections.frames.arguments import (
    collect_faults,
    find_column_faults,
    find_key_faults,
    find_split_out_faults,
    has_column,
    list_names,
)
from hyperplane.collections.frames.finalize import build_collection
from hyperplane.collections.frames.helper_steps import (
    TOP,
    GroupTasks,
    KeyedTable,
    register_keys,
)
from hyperplane.collections.frames.kernels import polars_kernel as kernel
from hyperplane.collections.frames.kernels import range_splits
from hyperplane.collections.frames.kernels.concatenate import concat_tables
from hyperplane.collections.frames.kernels.range_splits import SortKeys
from hyperplane.collections.frames.kernels.table_files import concat_pieces
from hyperplane.collections.frames.source_collection import (
    Frame,
    as_collection,
    open_partition,
    select_source,
)
from hyperplane.collections.frames.task_errors import name_partition_in_errors
from hyperplane.collections.frames.typed_partitions import register_tables
from hyperplane.core.argument_checks import find_count_faults, find_flag_faults
from hyperplane.core.errors import Fault
from hyperplane.core.public_calls import check_call
from hyperplane.formats.pandas_frames.column_names import (
    escape,
    escape_all,
    escape_columns,
    unescape,
)
from hyperplane.formats.pandas_frames.to_pandas import to_pandas
from hyperplane.formats.pandas_frames.typed_table import TypedTable


@dataclass(frozen=True)
class Ranking:
    """Groups, order and number of the rows to return; column names are escaped."""

    like: pd.DataFrame
    by: tuple[str, ...]
    column: str
    n: int
    descending: bool

    @property
    def order(self) -> SortKeys:
        """The order of the rows of the result."""
        by, descending = (*self.by, self.column), (*([False] * len(self.by)), self.descending)
        return SortKeys(by, descending, nulls_last=True, whole=True)

    @property
    def is_sorted_by_polars(self) -> bool:
        """Whether the groups and values have types that Polars sorts in the order of pandas."""
        return all(_has_common_order(self.like[name].dtype) for name in self.order.by)


#: Upper limit of ``n``: Polars does not accept larger numbers.
_MAX_ROWS = 2**62


@check_call
def top_n_per_group(
    df: Frame,
    by: str | Sequence[str],
    column: str,
    n: int,
    *,
    ascending: bool = False,
    split_out: int | None = 1,
) -> dd.DataFrame:
    """Return the rows with the largest values of a column in each group.

    Returns the rows of ``df.sort_values(column, ascending=False, kind="stable").groupby(by)
    .head(n)`` of pandas: earlier rows come first among equal values, and rows with a missing value
    come last. It replaces ``groupby(by).apply(lambda group: group.nlargest(n, column))``.

    Parameters
    ----------
    df : dask.dataframe.DataFrame, URL or list of URLs
        The rows. URLs are read with :func:`read`. The result has all columns: select the needed
        ones first.
    by : str or list of str
        Columns to group by. Rows with a missing key are dropped.
    column : str
        Column to rank by: numbers, times or text.
    n : int
        Number of rows per group, from 1.
    ascending : bool
        Whether to return the rows with the smallest values.
    split_out : int or None
        Number of partitions of the result; use more than one if there are too many groups for one
        partition. None chooses the number as :func:`drop_duplicates` does.

    Returns
    -------
    dask.dataframe.DataFrame
        Lazy; each partition is sorted by group and within a group by the column, with a new index.

    Raises
    ------
    RequestError
        With every invalid argument.
    DataError
        When it is computed, if values of a column have no common type. It has ``column``.

    Examples
    --------
    >>> import pandas as pd, dask.dataframe as dd
    >>> delays = pd.DataFrame({"carrier": ["UA", "AA", "UA", "AA"], "delay": [5, 30, 12, 7]})
    >>> df = dd.from_pandas(delays, npartitions=2)
    >>> top_n_per_group(df, "carrier", "delay", 1).compute()
      carrier  delay
    0      AA     30
    1      UA     12
    """
    df = as_collection(df)
    like = df._meta
    keys = list_names(by)
    with collect_faults() as faults:
        faults += find_column_faults(like, by=keys, column=[column])
        faults += find_key_faults(like, "by", keys)
        faults += find_count_faults("n", n)
        faults += find_split_out_faults(split_out) if split_out is not None else []
        faults += find_flag_faults(ascending=ascending)
        if not keys:
            faults.append(Fault("by", repr(by), "at least one column"))
        if has_column(like, column) and column in [key for key in keys if isinstance(key, str)]:
            faults.append(Fault("column", repr(column), "a column that is not in by"))
        if has_column(like, column) and isinstance(like[column].dtype, pd.CategoricalDtype):
            given = f"{column!r} of type category"
            advice = f"replace it by its codes, df[{column!r}].cat.codes"
            allowed = "a column of numbers, times or text"
            faults.append(Fault("column", given, allowed, advice))
    like = escape_columns(like.iloc[:0])
    keys = escape_all(keys)
    ranking = Ranking(like, tuple(keys), escape(column), min(n, _MAX_ROWS), not ascending)
    source = select_source(df, list(df._meta.columns))
    size = exchange_memory.estimate_source_size(source, df)
    if split_out != 1 and size is not None and not exchange_memory.fits_in_memory(size):
        source = select_source(df, list(source.columns), merge=False)  # less memory for each task
    count = len(source.partitions)
    if split_out is None:
        split_out = exchange_memory.choose_row_partition_count(count, size)
    max_bytes = exchange_memory.choose_max_bytes(count, size)
    token = tokenize(source.token, ranking, split_out, max_bytes)
    arguments = [
        [partition, number, source.where, ranking]
        for number, partition in enumerate(source.partitions)
    ]
    tables = task_graph.make_tasks("top-n-partial", token, select_partition_top, arguments)
    combine = partial(_merge_top_rows, ranking=ranking)
    received_tables = task_graph.gather_by_key(
        "top-n", token, tables, split_out, keys, combine, max_bytes
    )
    finish = partial(_build_partition, ranking=ranking)
    results = task_graph.make_tasks("top-n", token, finish, received_tables)
    like = like.reset_index(drop=True)
    result = build_collection(results, like, "top-n")
    if ranking.is_sorted_by_polars:
        build = partial(_build_table, ranking=ranking)
        register_tables(
            result,
            like,
            lambda: task_graph.make_tasks("top-n-table", token, build, received_tables),
        )
    groups = GroupTasks("top-n", token, split_out, split_out, ranking.n)
    names = tuple(unescape(key) for key in keys)
    register_keys(result, KeyedTable(TOP, df.expr, names, 0, groups=groups), df.columns)
    return result


@name_partition_in_errors
def select_partition_top(
    partition: Any, number: int, where: pl.Expr | None, ranking: Ranking
) -> pl.DataFrame:
    """Return the first rows of each group of a partition."""
    rows = open_partition(partition, ranking.like, where, ordered=[ranking.column])
    return kernel.select_top_rows(rows, ranking.by, ranking.column, ranking.n, ranking.descending)


def _merge_top_rows(tables: list[pl.DataFrame], ranking: Ranking) -> pl.DataFrame:
    rows = concat_tables(tables).lazy()
    return kernel.select_top_rows(rows, ranking.by, ranking.column, ranking.n, ranking.descending)


def _has_common_order(dtype: Any) -> bool:
    """Return whether a declared type is one of numbers, times or text of pandas."""
    if isinstance(dtype, np.dtype):
        return dtype.kind in "biumM" or (dtype.kind == "f" and dtype.itemsize > 2)
    return isinstance(dtype, pd.StringDtype)


def _build_table(tables: list[Any], number: int | None, ranking: Ranking) -> TypedTable:
    """Return the rows of the groups that one task receives, in their order."""
    rows = _merge_top_rows([concat_pieces(tables, number)], ranking)
    positions = range_splits.find_sorted_positions(rows, ranking.order)
    return TypedTable(rows.lazy().select(pl.all().gather(positions)).collect(), ranking.like)


def _build_partition(tables: list[Any], number: int | None, ranking: Ranking) -> pd.DataFrame:
    if ranking.is_sorted_by_polars:
        return _build_table(tables, number, ranking).to_pandas()
    received = concat_pieces(tables, number)
    rows = to_pandas(_merge_top_rows([received], ranking), ranking.like)
    rows = rows.sort_values(
        ranking.column, ascending=not ranking.descending, kind="stable", key=_make_sortable
    )
    # One column after the other: pandas cannot sort by several if an Arrow column has 0.0 and -0.0.
    for key in reversed(ranking.by):
        rows = rows.sort_values(key, kind="stable", key=_make_sortable)
    return rows.reset_index(drop=True)


def _make_sortable(values: Any) -> Any:
    """Cast Arrow's float16 and dictionary types, which Arrow cannot sort, to types that it can."""
    kind = values.dtype.pyarrow_dtype if isinstance(values.dtype, pd.ArrowDtype) else None
    if kind is not None and pa.types.is_dictionary(kind):
        return values.astype(pd.ArrowDtype(kind.value_type))
    return values.astype(pd.ArrowDtype(pa.float32())) if kind == pa.float16() else values
