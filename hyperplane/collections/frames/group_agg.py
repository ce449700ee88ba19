"""Group-bys whose groups are far fewer than the rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import dask.dataframe as dd
import pandas as pd
import pyarrow as pa
from dask.tokenize import tokenize

from hyperplane.collections.flags import flag_faults
from hyperplane.collections.frames import task_graph
from hyperplane.collections.frames.aggregates import AggSpec, understand
from hyperplane.collections.frames.arguments import (
    collect_faults,
    columns_fault,
    keys_fault,
    names_of,
    split_fault,
)
from hyperplane.collections.frames.grouping import Grouping, grouped
from hyperplane.collections.frames.source_collection import Frame, collection
from hyperplane.errors import Fault, check
from hyperplane.public_calls import check_call


@check_call
def group_agg(
    df: Frame, by: str | Sequence[str], agg: AggSpec, *, split_out: int = 1
) -> dd.DataFrame:
    """Group and aggregate, as pandas does with ``df.groupby(by).agg(agg)``.

    Beside plain ``df.groupby(by).agg(agg)`` of Dask this has ``nunique`` and exact ``median``,
    and it reads with Polars where the rows come from :func:`read`, row filters included.

    Parameters
    ----------
    df : dask.dataframe.DataFrame, URL or list of URLs
        The rows. URLs are read with :func:`read`.
    by : str or list of str
        Columns to group by. Rows with a missing key are left out.
    agg : mapping
        Column -> function or list of functions, as in :func:`window_agg`.
    split_out : int
        Number of partitions of the result, for more groups than one partition should hold.
        Groups are then in order within each partition only.

    Returns
    -------
    dask.dataframe.DataFrame
        Lazy, with the keys as index.

    Raises
    ------
    RequestError
        With all that is wrong: columns, types, functions.

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
    df = collection(df)
    like = df._meta
    given: tuple[Any, Any] = by, agg
    if isinstance(given[0], Mapping) and not isinstance(given[1], Mapping):
        asked = f"{by!r} and {agg!r}"[:80]
        check([Fault("by and agg", asked, "columns first, then functions", "exchange the two")])
    keys = names_of(by)
    with collect_faults() as faults:
        faults += columns_fault(like, by=keys) + split_fault(split_out, keys or ["by"])
        faults += keys_fault(like, "by", keys)
        if not keys:
            faults.append(Fault("by", repr(by), "at least one column"))
        with faults.of():
            aggregation = understand(like, agg)
    used = list(dict.fromkeys([*keys, *aggregation.columns]))
    grouping = Grouping.of(like[used].iloc[:0], tuple(keys), None, aggregation)
    return grouped(df, grouping, split_out, "group-agg")


@check_call
def value_counts(df: Frame, columns: str | Sequence[str], *, normalize: bool = False) -> dd.Series:
    """How often each value, or combination of values, occurs; the most frequent first.

    Parameters
    ----------
    df : dask.dataframe.DataFrame, URL or list of URLs
        The rows. URLs are read with :func:`read`.
    columns : str or list of str
        One column, or several whose combinations are counted.
    normalize : bool
        Shares of all counted rows instead of counts.

    Returns
    -------
    dask.dataframe.Series
        Lazy, in one partition. The counts of ``value_counts`` of pandas; of equal counts, the
        smaller value comes first. Missing values are not counted. Of one column of categories
        those that do not occur are counted, too.

    Raises
    ------
    RequestError
        With all that is wrong.

    Examples
    --------
    >>> import pandas as pd, dask.dataframe as dd
    >>> df = dd.from_pandas(pd.DataFrame({"city": ["Rome", "Oslo", "Rome"]}), npartitions=2)
    >>> value_counts(df, "city").compute().to_dict()
    {'Rome': 2, 'Oslo': 1}
    """
    keys = names_of(columns)
    df = collection(df)
    with collect_faults() as faults:
        faults += columns_fault(df._meta, columns=keys) + flag_faults(normalize=normalize)
        faults += keys_fault(df._meta, "columns", keys)
        if not keys:
            faults.append(Fault("columns", repr(columns), "at least one column"))
    sizes = group_agg(df, keys, {keys[0]: "size"})
    dtype = df._meta[keys[0]].dtype
    kind = _count_type(dtype) if len(keys) == 1 else "int64"
    ordered = partial(_most_frequent_first, kind=kind, normalize=normalize)
    meta = ordered(sizes._meta)
    if len(keys) > 1 or not isinstance(dtype, pd.CategoricalDtype):
        return sizes.map_partitions(ordered, meta=meta, enforce_metadata=False)
    # pandas counts categories that do not occur, too; what there are, partitions may know only.
    found = df[keys[0]].to_delayed()
    token = tokenize(sizes._name, normalize)
    categories = task_graph.tasks(
        "value-counts-categories", token, _categories, [[v] for v in found]
    )
    (counts,) = task_graph.tasks(
        "value-counts",
        token,
        partial(_with_categories, ordered=ordered),
        [[*sizes.to_delayed(), categories]],
    )
    return dd.from_delayed([counts], meta=meta, verify_meta=False, prefix="value-counts")


def _count_type(dtype: Any) -> Any:
    """The type of counts, which in pandas depends on that of what is counted."""
    if isinstance(dtype, pd.ArrowDtype):
        return pd.ArrowDtype(pa.int64())
    nullable = isinstance(dtype, pd.StringDtype) and dtype.na_value is pd.NA
    if nullable and dtype.storage == "pyarrow":
        return pd.ArrowDtype(pa.int64())
    return "Int64" if nullable or hasattr(dtype, "numpy_dtype") else "int64"


def _categories(values: pd.Series[Any]) -> pd.Index[Any]:
    """The categories of a partition, whether they occur or not."""
    is_category = isinstance(values.dtype, pd.CategoricalDtype)
    return values.cat.categories if is_category else pd.Index([])


def _with_categories(
    sizes: pd.DataFrame, categories: list[pd.Index[Any]], ordered: Callable[[Any], Any]
) -> Any:
    """Counts with a zero for each category that does not occur."""
    index = sizes.index
    if isinstance(index, pd.CategoricalIndex):
        known = dict.fromkeys([*index.categories, *(each for some in categories for each in some)])
        index = index.set_categories(list(known))
        sizes = sizes.set_axis(index).reindex(index.categories, fill_value=0)
        sizes.index = pd.CategoricalIndex(sizes.index, dtype=index.dtype, name=index.name)
    return ordered(sizes)


def _most_frequent_first(sizes: pd.DataFrame, kind: Any, normalize: bool) -> Any:
    counts = sizes.iloc[:, 0].astype(kind).sort_values(ascending=False, kind="stable")
    if isinstance(counts.index.dtype, pd.SparseDtype):  # value_counts of pandas has a dense index
        counts.index = counts.index.astype(counts.index.dtype.subtype)
    if normalize:
        return (counts / counts.sum()).rename("proportion")
    return counts.rename("count")
