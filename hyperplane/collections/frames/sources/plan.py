"""How much goes into one partition."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import groupby
from typing import Any, TypeVar

from hyperplane.collections.active_cluster import count_threads
from hyperplane.errors import Fault
from hyperplane.units import parse_bytes

T = TypeVar("T")

#: Bytes in memory below which it does not pay to give a thread a partition of its own.
WORTHWHILE = 10_000_000
#: The usual size of partitions.
USUAL = "100MB"
#: A size of partitions by which all is one partition, and no file is divided.
UNDIVIDED = sys.maxsize


def size_of(partition_size: Any) -> tuple[int, list[Fault]]:
    """The bytes that a caller asks for, and what is wrong with them."""
    try:
        size = parse_bytes(str(partition_size))
    except ValueError:
        size = 0
    if size > 0:
        return size, []
    allowed = "a size in memory such as '100MB'"
    return 1, [Fault("partition_size", repr(partition_size)[:80], allowed)]


def target(total: int, partition_size: int) -> float:
    """Bytes in memory that a part should have: less than asked where threads would idle."""
    if partition_size == UNDIVIDED:
        return partition_size
    workers = count_threads() if total > WORTHWHILE else 1
    return min(partition_size, max(WORTHWHILE, total / workers))


def joined(
    units: Sequence[T],
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
    >>> joined("abcdef", [40_000_000] * 6, 100_000_000)
    [['a', 'b'], ['c', 'd'], ['e', 'f']]
    >>> joined("abcdef", [4_000_000] * 6, 100_000_000, files="xxyyyz")
    [['a', 'b'], ['c', 'd', 'e'], ['f']]
    """
    aim = target(sum(sizes), partition_size)
    parts: list[list[T]] = []
    for _, run in groupby(range(len(units)), lambda place: files and files[place]):
        places = list(run)
        parts += _even([(units[place], sizes[place]) for place in places], aim)
    return parts


def _even(units: Sequence[tuple[T, int]], aim: float) -> list[list[T]]:
    """Neighbours joined into as few parts of about equal size as are below a size."""
    total = sum(size for _, size in units)
    count = max(1, -int(-total // aim))
    parts: dict[int, list[T]] = {}
    before = 0
    for unit, size in units:
        middle = before + size / 2
        parts.setdefault(int(middle * count / max(1, total)), []).append(unit)
        before += size
    return list(parts.values())
