"""Whether the rows of an exchange fit into the memory of the cluster, and how many receive them."""

from __future__ import annotations

from typing import Any

from hyperplane.collections.frames import repartition, task_graph
from hyperplane.collections.frames.arguments import MAX_PARTITIONS
from hyperplane.collections.frames.source_collection import CollectionSource
from hyperplane.core.active_cluster import count_threads, get_memory_per_thread
from hyperplane.formats.partition_sizes import estimate_columns

#: Share of the cluster's memory up to which all rows of an exchange stay in memory. Pieces of the
#: rows, what a task receives and its result are in memory at the same time, besides libraries.
_SHARE_IN_MEMORY = 0.25
#: Share of a thread's memory up to which one task receives rows: it holds them up to four times,
#: as received, sorted, converted and encoded, besides libraries.
_SHARE_OF_RECEIVER = 0.1


def estimate_source_size(source: CollectionSource, df: Any) -> int | None:
    """Return the bytes in memory of the columns that are read, before filters; None if unknown."""
    if source.scannable_partitions is None:
        return repartition.estimate_size_before_filters(df[list(source.columns)])
    needed = {*source.columns, *([] if source.where is None else source.where.meta.root_names())}
    sizes = estimate_columns(source.partitions, needed)
    if sizes is not None:
        return sum(sizes)
    all_columns = [partition.nbytes for partition in source.scannable_partitions]
    return None if None in all_columns else sum(size or 0 for size in all_columns)


def fits_in_memory(size: int | None) -> bool:
    """Return whether rows of this size stay in memory; False if the size is unknown."""
    return size is not None and size <= _get_memory_of_exchange()


def choose_max_bytes(partitions: int, size: int | None) -> int | None:
    """Return the bytes of a partition's table up to which its pieces stay in memory.

    None if all rows fit into memory, and 0 if they do not: tables of distinct text took twice
    their bytes in memory, because their text is part of larger buffers. If the size is unknown,
    tables stay in memory that would fit into it if those of all partitions were as large.
    """
    if size is None:
        return _get_memory_of_exchange() // max(1, partitions)
    return None if fits_in_memory(size) else 0


def _get_memory_of_exchange() -> int:
    """Return the bytes of rows up to which an exchange is in memory."""
    share = get_memory_per_thread()
    total = _get_machine_memory() if share is None else share * count_threads()
    return int(total * _SHARE_IN_MEMORY)


def choose_row_partition_count(partitions: int, size: int | None) -> int:
    """Return the number of partitions of a result of rows; more if memory is scarce."""
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
