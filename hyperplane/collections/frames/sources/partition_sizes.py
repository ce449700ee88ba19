"""How much goes into one partition."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import groupby
from typing import Any, TypeVar

from hyperplane.collections.in_use import threads
from hyperplane.errors import Fault
from hyperplane.units import parse_bytes

T = TypeVar("T")

#: Bytes in memory below which it does not pay to give a thread a partition of its own.
MIN_PARTITION_SIZE = 10_000_000
#: The usual size of partitions.
DEFAULT_PARTITION_SIZE = "100MB"
#: A size of partitions by which all is one partition, and no file is divided.
WHOLE_FILES = sys.maxsize


def parse_partition_size(partition_size: Any) -> tuple[int, list[Fault]]:
    """The bytes that a caller asks for, and what is wrong with them."""
    try:
        size = parse_bytes(str(partition_size))
    except ValueError:
        size = 0
    if size > 0:
        return size, []
    allowed = "a size in memory such as '100MB'"
    return 1, [Fault("partition_size", repr(partition_size)[:80], allowed)]


def choose_target_size(total: int, partition_size: int) -> float:
    """Bytes in memory that a part should have: less than asked where threads would idle."""
    if partition_size == WHOLE_FILES:
        return partition_size
    workers = threads() if total > MIN_PARTITION_SIZE else 1
    return min(partition_size, max(MIN_PARTITION_SIZE, total / workers))


def group_neighbors(
    items: Sequence[T],
    sizes: Sequence[int],
    partition_size: int,
    files: Sequence[str] | None = None,
) -> list[list[T]]:
    """Neighbours joined into parts of about equal size, in their order.

    Parameters
    ----------
    units : sequence
        What cannot be divided, such as row groups.
    sizes : sequence of int
        Bytes of each in memory.
    partition_size : int
        Bytes in memory that a part should have at most.
    files : sequence of str, optional
        The file of each unit, where units of different files go to different parts.

    Examples
    --------
    >>> group_neighbors("abcdef", [40_000_000] * 6, 100_000_000)
    [['a', 'b'], ['c', 'd'], ['e', 'f']]
    >>> group_neighbors("abcdef", [4_000_000] * 6, 100_000_000, files="xxyyyz")
    [['a', 'b'], ['c', 'd', 'e'], ['f']]
    """
    aim = choose_target_size(sum(sizes), partition_size)
    parts: list[list[T]] = []
    for _, run in groupby(range(len(items)), lambda place: files and files[place]):
        places = list(run)
        parts += _group_evenly([(items[place], sizes[place]) for place in places], aim)
    return parts


def _group_evenly(items: Sequence[tuple[T, int]], aim: float) -> list[list[T]]:
    """Neighbours joined into as few parts of about equal size as are below a size."""
    total = sum(size for _, size in items)
    count = max(1, -int(-total // aim))
    parts: dict[int, list[T]] = {}
    before = 0
    for item, size in items:
        middle = before + size / 2
        parts.setdefault(int(middle * count / max(1, total)), []).append(item)
        before += size
    return list(parts.values())
