"""Ways of rechunking and the memory that they take: arithmetic alone, no arrays."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate

#: The sizes of the chunks along each axis, as Dask has them.
Chunks = tuple[tuple[int, ...], ...]
#: Each step computes all of the array once more, so that there are never many.
MAX_STEPS = 6


def plan_rechunk_steps(old: Chunks, new: Chunks, itemsize: int, limit: int) -> list[Chunks] | None:
    """Chunks on the way from old to new ones, so that no task holds more than a limit.

    Parameters
    ----------
    old, new : tuple of tuple of int
        Sizes of the chunks along each axis.
    itemsize : int
        Bytes of an element.
    limit : int
        The most bytes that a task may hold, see :func:`rechunk_peak`.

    Returns
    -------
    list of tuple of tuple of int, or None
        The last are the new chunks; None if there is no such way in a few steps.

    Examples
    --------
    >>> old, new = ((1,) * 400, (400,)), ((400,), (1,) * 400)
    >>> [largest(step) for step in rechunk_steps(old, new, itemsize=8, limit=2_000_000)]
    [400]
    >>> [largest(step) for step in rechunk_steps(old, new, itemsize=8, limit=200_000)]
    [400, 400]
    >>> rechunk_steps(old, new, itemsize=8, limit=4_000) is None
    True
    """
    for count in range(1, MAX_STEPS + 1):
        intermediate = [_intermediate_chunks(old, new, step / count) for step in range(1, count)]
        steps = [*intermediate, new]
        if all(
            estimate_peak_bytes(one, other, itemsize) <= limit
            for one, other in zip([old, *intermediate], steps, strict=True)
        ):
            return steps
    return None


def _intermediate_chunks(old: Chunks, new: Chunks, part: float) -> Chunks:
    """Chunks a part of the way from old to new ones, by ratio, that fit edges of both."""
    chunks = []
    for before, after in zip(old, new, strict=True):
        size, one, other = sum(before), max(before, default=0), max(after, default=0)
        if not size or before == after:
            chunks.append(before)
            continue
        unit = min(one, other)
        wanted = one ** (1 - part) * other**part
        length = unit * max(1, round(wanted / unit))
        whole, rest = divmod(size, min(length, size))
        chunks.append((min(length, size),) * whole + ((rest,) if rest else ()))
    return tuple(chunks)


def estimate_peak_bytes(old: Chunks, new: Chunks, itemsize: int) -> int:
    """Bytes that one task of a rechunking holds at most.

    These are a new chunk and all old ones that it takes parts of: a part of an array keeps the
    whole array in memory.

    Parameters
    ----------
    old, new : tuple of tuple of int
        Sizes of the chunks along each axis.
    itemsize : int
        Bytes of an element.

    Examples
    --------
    >>> rechunk_peak(((10, 10, 10),), ((15, 15),), itemsize=8)  # 15 of two tens
    280
    """
    sources = math.prod(_max_touched(one, other) for one, other in zip(old, new, strict=True))
    return itemsize * (sources + count_largest_chunk(new))


def count_largest_chunk(chunks: Chunks) -> int:
    """Elements of the largest chunk.

    Examples
    --------
    >>> largest(((10, 5), (3, 4)))
    40
    """
    return math.prod(max(sizes, default=0) for sizes in chunks)


def _max_touched(old: Sequence[int], new: Sequence[int]) -> int:
    """Positions of the old chunks that a new chunk touches, at most."""
    edges = [0, *accumulate(old)]
    most = position = 0
    for size in new:
        first = bisect_right(edges, position) - 1
        last = bisect_left(edges, position + size)
        if size:
            most = max(most, edges[last] - edges[first])
        position += size
    return most
