"""Partitions of a size that suits the cluster."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import dask.dataframe as dd

from hyperplane.collections.active_cluster import count_threads, get_memory_per_thread
from hyperplane.collections.frames.arguments import collect_faults
from hyperplane.collections.frames.collection_size import (
    estimate_size_before_filters,
    estimate_size_from_sample,
    measure_persisted_size,
)
from hyperplane.collections.frames.sources.plan import size_of
from hyperplane.errors import Fault
from hyperplane.parquet_index import check_index
from hyperplane.public_calls import check_call
from hyperplane.units import format_bytes, whole_number

#: A task holds its partition several times over: as read, as pandas, as result.
_SHARE_OF_THREAD = 0.1
_DEFAULT_SIZE = 100 * 10**6
#: Smaller partitions are a number of partitions, or a unit, that was meant otherwise.
_MIN_SIZE = 10_000


@check_call
def repartition(
    df: Any,
    partition_size: str | int | None = None,
    *,
    fraction: float = 1.0,
    data_size: str | int | None = None,
) -> dd.DataFrame:
    """Join or divide partitions, so that they suit the cluster.

    The size is known for what :func:`read` reads, for Parquet and pandas frames, and for what is
    persisted on a cluster. After a filter say which ``fraction`` of their rows is left. For
    anything else, such as ``dask.dataframe.read_csv``, up to three partitions are computed, if
    none needs more than one partition of the files; these have the rows that filters leave.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The collection.
    partition_size : str or int, optional
        Memory of a partition; when not given 100 MB, or a tenth of a thread's memory on the
        active cluster if that is less.
    fraction : float
        Part of the rows that filters have left, above 0 and up to 1, where the size before
        filters is known.
    data_size : str or int, optional
        Size of the whole in memory, where it cannot be known: after a shuffle, a join or groups.

    Returns
    -------
    dask.dataframe.DataFrame
        Lazy, with at least one partition for each thread when there is enough data for that.

    Raises
    ------
    RequestError
        When the size is not known and not given, with all else that is wrong.

    Examples
    --------
    >>> import pandas as pd, dask.dataframe as dd
    >>> df = dd.from_pandas(pd.DataFrame({"n": range(1000)}), npartitions=50)
    >>> repartition(df, "1MB", data_size="8MB").npartitions
    8
    """
    total: int | None = None
    wanted = _DEFAULT_SIZE
    with collect_faults() as faults:
        if not isinstance(df, dd.DataFrame):
            faults.append(Fault("df", type(df).__name__, "a Dask dataframe"))
        with faults.collect():
            check_index(df, "df")
        if not (isinstance(fraction, (int, float)) and 0 < fraction <= 1):
            faults.append(Fault("fraction", repr(fraction), "above 0 and up to 1"))
        if partition_size is None:
            wanted = _choose_partition_size()
        else:
            wanted, wrong = size_of(partition_size)
            faults += wrong
        if data_size is not None:
            total, wrong = size_of(data_size)
            faults += [replace(fault, where="data_size") for fault in wrong]
        elif not faults:
            total = measure_persisted_size(df) or estimate_size_before_filters(df)
        if not faults and wanted < _MIN_SIZE:
            faults.append(_make_too_small_fault(partition_size, wanted, total, fraction))
        if total is None and not faults:
            total = estimate_size_from_sample(df)
            fraction = 1.0  # a sample has the rows that filters leave
        if total is None and not faults:
            advice = "persist df first, or say data_size='20GB'"
            faults.append(Fault("data_size", "None", "the size in memory, unknown here", advice))
    left = (total or 0) * fraction
    number = max(math.ceil(left / wanted), 1)
    if left > count_threads() * wanted / 10:
        number = max(number, count_threads())
    return df.repartition(npartitions=number)


def _make_too_small_fault(asked: Any, wanted: int, total: int | None, fraction: float) -> Fault:
    number = whole_number(asked) or "..."
    many = "" if total is None else f", which makes {math.ceil(total * fraction / wanted):,}"
    return Fault(
        "partition_size",
        f"{asked!r}, {format_bytes(wanted)} for each partition{many}",
        f"{format_bytes(_MIN_SIZE)} or more",
        f"write a size such as '100MB', or for a number df.repartition(npartitions={number})",
    )


def _choose_partition_size() -> int:
    share = get_memory_per_thread()
    return _DEFAULT_SIZE if share is None else min(_DEFAULT_SIZE, int(share * _SHARE_OF_THREAD))
