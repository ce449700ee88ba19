"""``group_agg`` and ``value_counts``: group-bys whose tasks run Polars."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import dask.dataframe as dd
import pandas as pd
import pyarrow as pa
from dask.tokenize import tokenize

from hyperplane.collections.frames import task_graph
from hyperplane.collections.frames.aggregates import AggSpec, parse_agg
from hyperplane.collections.frames.arguments import (
    collect_faults,
    find_column_faults,
    find_key_faults,
    find_split_out_faults,
    list_names,
)
from hyperplane.collections.frames.group_tasks import aggregate_groups
from hyperplane.collections.frames.grouping import Grouping
from hyperplane.collections.frames.source_collection import Frame, as_collection
from hyperplane.core.argument_checks import find_flag_faults
from hyperplane.core.errors import Fault, check
from hyperplane.core.public_calls import check_call


@check_call
def group_agg(
    df: Frame, by: str | Sequence[str], agg: AggSpec, *, split_out: int | None = 1
) -> dd.DataFrame:
    """Group and aggregate, like ``df.groupby(by).agg(agg)`` of pandas.

    Unlike Dask's own ``df.groupby(by).agg(agg)`` it supports ``nunique``, and Polars reads and
    filters the rows if they come from :func:`read`. A ``median`` is exact.

    Parameters
    ----------
    df : dask.dataframe.DataFrame, URL or list of URLs
        The rows. URLs are read with :func:`read`.
    by : str or list of str
        Columns to group by. Rows with a missing key are dropped.
    agg : mapping
        Column -> function or list of functions, as in :func:`window_agg`.
    split_out : int or None
        Number of partitions of the result; use more than one if there are too many groups for one
        partition. Groups are then sorted within each partition only. None chooses the number as
        :func:`drop_duplicates` does.

    Returns
    -------
    dask.dataframe.DataFrame
        Lazy, with the keys as index.

    Raises
    ------
    RequestError
        With every invalid argument: columns, types, functions.
    DataError
        When it is computed, if values of a column have no common type, or a type for which the
        function is not defined. It has ``column``.

    Notes
    -----
    ``std`` and ``var`` divide by n - 1, as in pandas. Tasks merge counts, means and sums of squared
    deviations (Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing
    sample variances", 1979), which keeps the digits that sums of squares lose by cancellation.

    Examples
    --------
    >>> import pandas as pd, dask.dataframe as dd
    >>> sales = pd.DataFrame({"city": ["Rome", "Oslo", "Rome"], "buyer": [1, 2, 3]})
    >>> group_agg(dd.from_pandas(sales, npartitions=2), "city", {"buyer": "nunique"}).compute()
          buyer
    city
    Oslo      1
    Rome      2
    """
    df = as_collection(df)
    like = df._meta
    arguments: tuple[Any, Any] = by, agg
    if isinstance(arguments[0], Mapping) and not isinstance(arguments[1], Mapping):
        given = f"{by!r} and {agg!r}"[:80]
        allowed = "columns first, then functions"
        check([Fault("by and agg", given, allowed, "exchange the two")])
    keys = list_names(by)
    with collect_faults() as faults:
        faults += find_column_faults(like, by=keys)
        faults += find_split_out_faults(split_out) if split_out is not None else []
        faults += find_key_faults(like, "by", keys)
        if not keys:
            faults.append(Fault("by", repr(by), "at least one column"))
        with faults.collect():
            aggregation = parse_agg(like, agg)
    used = list(dict.fromkeys([*keys, *aggregation.columns]))
    grouping = Grouping.from_columns(like[used].iloc[:0], tuple(keys), None, aggregation)
    return aggregate_groups(df, grouping, split_out, "group-agg")


@check_call
def value_counts(df: Frame, columns: str | Sequence[str], *, normalize: bool = False) -> dd.Series:
    """Count each value, or combination of values; the most frequent come first.

    Parameters
    ----------
    df : dask.dataframe.DataFrame, URL or list of URLs
        The rows. URLs are read with :func:`read`.
    columns : str or list of str
        One column, or several columns whose combinations are counted.
    normalize : bool
        Whether to return fractions of all counted rows, which add up to 1, instead of counts.

    Returns
    -------
    dask.dataframe.Series
        Lazy, in one partition. The counts are those of ``value_counts`` of pandas; the smaller
        value comes first among equal counts. Missing values are not counted. For a single column
        of categories the result includes categories that do not occur, with 0.

    Raises
    ------
    RequestError
        With every invalid argument.
    DataError
        When it is computed, if values of a column have no common type. It has ``column``.

    Examples
    --------
    >>> import pandas as pd, dask.dataframe as dd
    >>> df = dd.from_pandas(pd.DataFrame({"city": ["Rome", "Oslo", "Rome"]}), npartitions=2)
    >>> value_counts(df, "city").compute().to_dict()
    {'Rome': 2, 'Oslo': 1}
    """
    keys = list_names(columns)
    df = as_collection(df)
    with collect_faults() as faults:
        faults += find_column_faults(df._meta, columns=keys) + find_flag_faults(normalize=normalize)
        faults += find_key_faults(df._meta, "columns", keys)
        if not keys:
            faults.append(Fault("columns", repr(columns), "at least one column"))
    sizes = group_agg(df, keys, {keys[0]: "size"})
    dtype = df._meta[keys[0]].dtype
    kind = _choose_count_dtype(dtype) if len(keys) == 1 else "int64"
    sort = partial(_sort_by_count, kind=kind, normalize=normalize)
    meta = sort(sizes._meta)
    if len(keys) > 1 or not isinstance(dtype, pd.CategoricalDtype):
        return sizes.map_partitions(sort, meta=meta, enforce_metadata=False)
    # pandas includes categories that do not occur. If Dask does not know them, the partitions do.
    column_partitions = df[keys[0]].to_delayed()
    token = tokenize(sizes._name, normalize)
    categories = task_graph.make_tasks(
        "value-counts-categories", token, _list_categories, [[v] for v in column_partitions]
    )
    (counts,) = task_graph.make_tasks(
        "value-counts",
        token,
        partial(_add_unused_categories, sort=sort),
        [[*sizes.to_delayed(), categories]],
    )
    return dd.from_delayed([counts], meta=meta, verify_meta=False, prefix="value-counts")


def _choose_count_dtype(dtype: Any) -> Any:
    """Return the type of the counts, which in pandas depends on the type of the column."""
    if isinstance(dtype, pd.ArrowDtype):
        return pd.ArrowDtype(pa.int64())
    nullable = isinstance(dtype, pd.StringDtype) and dtype.na_value is pd.NA
    if nullable and dtype.storage == "pyarrow":
        return pd.ArrowDtype(pa.int64())
    return "Int64" if nullable or hasattr(dtype, "numpy_dtype") else "int64"


def _list_categories(values: pd.Series[Any]) -> pd.Index[Any]:
    """Return the categories of a partition, whether they occur or not."""
    is_category = isinstance(values.dtype, pd.CategoricalDtype)
    return values.cat.categories if is_category else pd.Index([])


def _add_unused_categories(
    sizes: pd.DataFrame, categories: list[pd.Index[Any]], sort: Callable[[Any], Any]
) -> Any:
    """Add a count of 0 for each category that does not occur, and sort the counts.

    ``categories`` are those of each partition.
    """
    index = sizes.index
    if isinstance(index, pd.CategoricalIndex):
        all_categories = dict.fromkeys(chain(index.categories, *categories))
        index = index.set_categories(list(all_categories))
        sizes = sizes.set_axis(index).reindex(index.categories, fill_value=0)
        sizes.index = pd.CategoricalIndex(sizes.index, dtype=index.dtype, name=index.name)
    return sort(sizes)


def _sort_by_count(sizes: pd.DataFrame, kind: Any, normalize: bool) -> Any:
    """Sort counts, the most frequent first, and normalize them if requested."""
    counts = sizes.iloc[:, 0].astype(kind).sort_values(ascending=False, kind="stable")
    if isinstance(counts.index.dtype, pd.SparseDtype):  # pandas returns a dense index
        counts.index = counts.index.astype(counts.index.dtype.subtype)
    if normalize:
        return (counts / counts.sum()).rename("proportion")
    return counts.rename("count")
