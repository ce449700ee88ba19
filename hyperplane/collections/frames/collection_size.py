"""The size of a collection in memory: from what is known of its files, or from a few partitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from dask.dataframe.dask_expr._expr import Blockwise
from dask.dataframe.dask_expr.io import FromMap, FromPandas, ReadParquet

from hyperplane.collections.active_cluster import get_active_client
from hyperplane.collections.frames import filter_pushdown
from hyperplane.collections.frames.explain.sizes import SizeEstimator

#: Partitions that are computed where nothing else tells the size.
SAMPLED_PARTITIONS = 3


def estimate_size_before_filters(df: Any) -> int | None:
    """Bytes in memory before any filter, where they are known without computing."""
    found = filter_pushdown.extract_filters(df.expr)
    if found is not None:
        sizes = [part.nbytes for part in found[0].iterables[0]]
        return None if None in sizes else sum(sizes)
    size = SizeEstimator().estimate(df.expr)
    return None if size is None else size.total


def measure_persisted_size(df: Any) -> int | None:
    """Bytes of a collection that the active cluster holds."""
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
    """Bytes in memory by a few partitions, filters included.

    None where a partition is not made of one of the source's alone: one of a shuffle would
    compute everything.
    """
    rowwise = (Blockwise, FromMap, FromPandas, ReadParquet)
    if not all(isinstance(node, rowwise) for node in df.expr.walk()):
        return None
    count = df.npartitions
    chosen = sorted(
        {round(place) for place in np.linspace(0, count - 1, min(count, SAMPLED_PARTITIONS))}
    )
    meta = pd.Series([0], dtype="int64")
    sizes = df.partitions[chosen].map_partitions(_measure_partition, meta=meta).compute()
    return int(sizes.sum() * count // len(chosen))


def _measure_partition(part: pd.DataFrame) -> pd.Series[int]:
    return pd.Series([int(part.memory_usage(deep=True).sum())])
