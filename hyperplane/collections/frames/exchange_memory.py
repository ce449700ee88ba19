"""Whether the rows of an exchange fit into the memory of the cluster, and how many receive them."""

from __future__ import annotations

from typing import Any

from hyperplane.collections.frames import repartition, task_graph
from hyperplane.collections.frames.arguments import MAX_PARTITIONS
from hyperplane.collections.frames.source_collection import CollectionSource
from hyperplane.core.active_cluster import count_threads, get_memory_per_thread

#: Share of the cluster's memory up to which all rows of an exchange stay in memory. Pieces of the
#: rows, what a task receives and its result are in memory at the same time, besides libraries.
_SHARE_IN_MEMORY = 0.25
#: Share of a thread's memory up to which one task sorts rows: it holds them up to four times,
#: as received, sorted, converted and encoded, besides libraries.
_SHARE_OF_RECEIVER = 0.1


def estimate_source_size(source: CollectionSource, df: Any) -> int | None:
    """Return the bytes of the rows in memory, before filters; None if unknown."""
    if source.scannable_partitions is None:
        return repartition.estimate_size_before_filters(df)
    sizes = [partition.nbytes for partition in source.scannable_partitions]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def fits_in_memory(size: int | None) -> bool:
    """Return whether rows of this size stay in memory; False if the size is unknown."""
    if size is None:
        return False
    share = get_memory_per_thread()
    total = _get_machine_memory() if share is None else share * count_threads()
    return size <= total * _SHARE_IN_MEMORY


def choose_sorted_partition_count(partitions: int, size: int | None) -> int:
    """Return the number of partitions of a sort; more than otherwise if memory is scarce."""
    count = task_graph.choose_row_receiver_count(partitions)
    share = get_memory_per_thread()
    if share is None or size is None:
        return count
    return min(max(count, -int(-size // (share * _SHARE_OF_RECEIVER))), MAX_PARTITIONS)


def _get_machine_memory() -> int:
    """Return the bytes of memory of this machine, or of its container if that has a limit."""
    # Slow import, not needed with a cluster.
    from distributed.system import MEMORY_LIMIT

    return int(MEMORY_LIMIT)
