"""Choose the sizes of partitions and group small inputs."""

from __future__ import annotations

import sys
from collections.abc import Collection, Hashable, Sequence
from itertools import groupby
from typing import Any, TypeVar

from hyperplane.core.active_cluster import count_threads
from hyperplane.core.errors import Fault
from hyperplane.core.units import advise_on_size, parse_bytes
from hyperplane.formats.partitions import MergeablePartition

T = TypeVar("T")

#: Minimum bytes of the partitions that are made smaller so that all threads have work.
MIN_PARTITION_SIZE = 10_000_000
#: Default size of partitions.
DEFAULT_PARTITION_SIZE = "100MB"
#: Partition size with which all files are one partition.
WHOLE_FILES = sys.maxsize


def parse_partition_size(partition_size: Any) -> tuple[int, list[Fault]]:
    """Parse the ``partition_size`` argument into bytes, and faults."""
    try:
        size = parse_bytes(str(partition_size))
    except ValueError:
        size = 0
    if size > 0:
        return size, []
    allowed = "a size in memory such as '100MB'"
    advice = advise_on_size(str(partition_size))
    return 1, [Fault("partition_size", repr(partition_size)[:80], allowed, advice)]


def choose_target_size(total: int, partition_size: int) -> float:
    """Return the target bytes of a partition, smaller if threads would otherwise be idle."""
    if partition_size == WHOLE_FILES:
        return partition_size
    threads = count_threads() if total > MIN_PARTITION_SIZE else 1
    return min(partition_size, max(MIN_PARTITION_SIZE, total / threads))


def group_neighbors(
    items: Sequence[T],
    sizes: Sequence[int],
    partition_size: int,
    files: Sequence[Hashable] | None = None,
) -> list[list[T]]:
    """Group consecutive items into partitions of similar size, in order.

    Parameters
    ----------
    items : sequence
        Indivisible inputs, such as row groups.
    sizes : sequence of int
        Bytes in memory of each item.
    partition_size : int
        Target for the maximum bytes in memory of a partition.
    files : sequence, optional
        The file of each item, if partitions must not contain items of several files.

    Examples
    --------
    >>> group_neighbors("abcdef", [40_000_000] * 6, 100_000_000)
    [['a', 'b'], ['c', 'd'], ['e', 'f']]
    >>> group_neighbors("abcdef", [4_000_000] * 6, 100_000_000, files="xxyyyz")
    [['a', 'b'], ['c', 'd', 'e'], ['f']]
    """
    target_size = choose_target_size(sum(sizes), partition_size)
    parts: list[list[T]] = []
    for _, run in groupby(range(len(items)), lambda index: files and files[index]):
        indexes = list(run)
        parts += _group_evenly([(items[index], sizes[index]) for index in indexes], target_size)
    return parts


def estimate_columns(parts: Sequence[Any], columns: Collection[str]) -> list[int] | None:
    """Return the bytes in memory of some columns of each partition; None if one is unknown."""
    sizes = [
        part.estimate_columns(columns) if isinstance(part, MergeablePartition) else None
        for part in parts
    ]
    known = [size for size in sizes if size is not None]
    return known if len(known) == len(parts) else None


def merge_neighbors(
    parts: Sequence[Any], columns: Collection[str], max_size: int = WHOLE_FILES
) -> tuple[Any, ...]:
    """Merge neighboring partitions, which have the size of all columns, if few columns are needed.

    Parameters
    ----------
    parts : sequence of ScannablePartition
        Partitions of one call of ``read``, in order.
    columns : collection of str
        The columns that are needed, also for filters.
    max_size : int, optional
        Maximum bytes of a merged partition, if they are less than those of a partition.

    Returns
    -------
    tuple of ScannablePartition
        The same rows in the same order.
    """
    sizes = estimate_columns(parts, columns)
    if len(parts) < 2 or sizes is None:
        return tuple(parts)
    groups = group_neighbors(parts, sizes, min(parts[0].partition_size, max_size))
    return tuple(first.merge(others) if others else first for first, *others in groups)


def _group_evenly(items: Sequence[tuple[T, int]], target_size: float) -> list[list[T]]:
    """Group consecutive items into ``total / target_size`` groups, rounded up, of similar size."""
    total = sum(size for _, size in items)
    count = max(1, -int(-total // target_size))
    parts: dict[int, list[T]] = {}
    before = 0
    for item, size in items:
        middle = before + size / 2
        parts.setdefault(int(middle * count / max(1, total)), []).append(item)
        before += size
    return list(parts.values())


def find_shard_bounds(index: int, count: int, total: int) -> tuple[int, int]:
    """Return the number of a shard's first item and of the first one after the shard.

    Shards are divided as by ``numpy.array_split``.

    Examples
    --------
    >>> [find_shard_bounds(index, 3, 10) for index in range(3)]
    [(0, 4), (4, 7), (7, 10)]
    """
    size, longer = divmod(total, count)
    first = index * size + min(index, longer)
    return first, first + size + (index < longer)
