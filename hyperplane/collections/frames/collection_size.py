"""Size of a collection in memory: from file metadata, from the cluster or from a sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from hyperplane.collections.frames import filter_pushdown
from hyperplane.collections.frames.explain.sizes import SizeEstimator
from hyperplane.core.active_cluster import get_active_client
from hyperplane.core.dask_internals.frames import Blockwise, FromMap, FromPandas, ReadParquet

#: Partitions that are computed if the size is not known otherwise.
SAMPLED_PARTITIONS = 3


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
