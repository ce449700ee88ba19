"""``repartition``: partitions of a size that suits the cluster."""

from __future__ import annotations

import math
from dataclasses import replace
from numbers import Real
from os import PathLike
from typing import Any, cast

import dask.dataframe as dd
import numpy as np
import pandas as pd

from hyperplane.collections.frames import filter_pushdown
from hyperplane.collections.frames.arguments import collect_faults
from hyperplane.collections.frames.explain.sizes import SizeEstimator
from hyperplane.core.active_cluster import count_threads, get_active_client, get_memory_per_thread
from hyperplane.core.dask_internals.frames import Blockwise, FromMap, FromPandas, ReadParquet
from hyperplane.core.errors import Fault
from hyperplane.core.public_calls import check_call
from hyperplane.core.units import format_bytes, whole_number
from hyperplane.formats.parquet.pandas_index import check_index
from hyperplane.formats.partition_sizes import parse_partition_size

#: Maximum size of a partition as a fraction of a thread's memory: a task also holds the data as
#: read, as a pandas frame and as its result.
_SHARE_OF_THREAD = 0.1
_DEFAULT_SIZE = 100 * 10**6
#: Minimum size; a smaller one was probably meant as a number of partitions, or in another unit.
_MIN_SIZE = 10_000
#: Partitions that are computed if the size is not known otherwise.
SAMPLED_PARTITIONS = 3


@check_call
def repartition(
    df: Any,
    partition_size: str | int | None = None,
    *,
    fraction: float = 1.0,
    data_size: str | int | None = None,
) -> dd.DataFrame:
    """Join or divide partitions to a size that suits the cluster.

    The size of the data is known for :func:`read`, Parquet files, pandas frames and persisted
    collections. If rows are filtered, pass the ``fraction`` that is left. For other sources, such
    as ``dask.dataframe.read_csv``, up to three partitions are computed to measure it, provided
    that each depends on one source partition; ``fraction`` is then ignored.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        The collection.
    partition_size : str or int, optional
        Memory of a partition in bytes, or as text: ``"100MB"`` is 10^8 bytes. By default 100 MB, or
        a tenth of the memory per thread of the active cluster if that is less.
    fraction : float
        Fraction of the rows that filters leave, above 0 and up to 1.
    data_size : str or int, optional
        Size of the whole collection in memory, in bytes or as text; required after a shuffle, a
        join or a group-by.

    Returns
    -------
    dask.dataframe.DataFrame
        Lazy, with ``ceil(size * fraction / partition_size)`` partitions; with one per thread of the
        cluster if that is more and each then has more than a tenth of ``partition_size``.

    Raises
    ------
    RequestError
        If the size is neither known nor given, and with every invalid argument.

    Examples
    --------
    >>> import pandas as pd, dask.dataframe as dd
    >>> df = dd.from_pandas(pd.DataFrame({"n": range(1000)}), npartitions=50)
    >>> repartition(df, "1MB", data_size="8MB").npartitions
    8
    """
    total: int | None = None
    target_size = _DEFAULT_SIZE
    with collect_faults() as faults:
        if not isinstance(df, dd.DataFrame):
            faults.append(
                Fault("df", type(df).__name__, "a Dask dataframe", _suggest_conversion(df))
            )
        with faults.collect():
            check_index(df, "df")
        share: Any = fraction  # callers may pass another type, such as a number of NumPy
        if not (isinstance(share, Real) and 0 < cast("float", share) <= 1):
            faults.append(Fault("fraction", repr(fraction), "a number above 0 and up to 1"))
        if partition_size is None:
            target_size = _choose_partition_size()
        else:
            target_size, size_faults = parse_partition_size(partition_size)
            faults += size_faults
        if data_size is not None:
            total, size_faults = parse_partition_size(data_size)
            faults += [replace(fault, where="data_size") for fault in size_faults]
        elif not faults:
            total = measure_persisted_size(df) or estimate_size_before_filters(df)
        if not faults and target_size < _MIN_SIZE:
            faults.append(_make_too_small_fault(partition_size, target_size, total, fraction))
        if total is None and not faults:
            total = estimate_size_from_sample(df)
            fraction = 1.0  # the sample is measured after the filters
        if total is None and not faults:
            allowed = "the size of df in memory, which is not known for this collection"
            advice = "call df.persist() first, or pass for example data_size='20GB'"
            faults.append(Fault("data_size", "None", allowed, advice))
    remaining_bytes = (total or 0) * float(fraction)
    count = max(math.ceil(remaining_bytes / target_size), 1)
    if remaining_bytes > count_threads() * target_size / 10:
        count = max(count, count_threads())
    return df.repartition(npartitions=count)


def _suggest_conversion(df: Any) -> str:
    """Return advice for an object that is not a Dask dataframe; empty for most types."""
    if isinstance(df, str | PathLike):
        return "read the files first with hyperplane.dataframe.read"
    if isinstance(df, pd.DataFrame):
        return "write dask.dataframe.from_pandas(df, npartitions=...)"
    return "write df.to_frame()" if isinstance(df, dd.Series) else ""


def _make_too_small_fault(
    given: Any, target_size: int, total: int | None, fraction: float
) -> Fault:
    count = whole_number(given) or "..."
    count_text = (
        "" if total is None else f", which makes {math.ceil(total * fraction / target_size):,}"
    )
    return Fault(
        "partition_size",
        f"{given!r}, {format_bytes(target_size)} for each partition{count_text}",
        f"{format_bytes(_MIN_SIZE)} or more",
        f"write a size such as '100MB'; for a number of partitions use "
        f"df.repartition(npartitions={count})",
    )


def _choose_partition_size() -> int:
    share = get_memory_per_thread()
    return _DEFAULT_SIZE if share is None else min(_DEFAULT_SIZE, int(share * _SHARE_OF_THREAD))


def estimate_size_before_filters(df: Any) -> int | None:
    """Return the bytes in memory before filters, or None if unknown; computes nothing."""
    scan = filter_pushdown.extract_filters(df.expr)
    if scan is not None:
        sizes = [part.nbytes for part in scan[0].iterables[0]]
        return None if None in sizes else sum(sizes)
    size = SizeEstimator().estimate(df.expr)
    return None if size is None else size.total


def measure_persisted_size(df: Any) -> int | None:
    """Return the bytes of a collection that is persisted on the cluster; None if it is not."""
    client = get_active_client()
    if client is None:
        return None
    from distributed import futures_of

    keys = {future.key for future in futures_of(df)}
    if not keys or len(keys) < df.npartitions:
        return None
    sizes = client.nbytes(keys=list(keys), summary=False)
    return sum(sizes.values()) if len(sizes) == len(keys) else None


def estimate_size_from_sample(df: Any) -> int | None:
    """Return the bytes in memory after filters, extrapolated from a few computed partitions.

    None unless each partition depends on one source partition: one partition of a shuffle would
    compute the whole collection.
    """
    blockwise = (Blockwise, FromMap, FromPandas, ReadParquet)
    if not all(isinstance(node, blockwise) for node in df.expr.walk()):
        return None
    count = df.npartitions
    numbers = sorted(
        {round(number) for number in np.linspace(0, count - 1, min(count, SAMPLED_PARTITIONS))}
    )
    meta = pd.Series([0], dtype="int64")
    sizes = df.partitions[numbers].map_partitions(_measure_partition, meta=meta).compute()
    return int(sizes.sum() * count // len(numbers))


def _measure_partition(part: pd.DataFrame) -> pd.Series[int]:
    return pd.Series([int(part.memory_usage(deep=True).sum())])
