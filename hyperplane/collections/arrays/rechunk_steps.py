"""Plan rechunking steps and estimate their memory; nothing here touches an array."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate

#: Chunk sizes along each axis, as in ``dask.array.Array.chunks``.
Chunks = tuple[tuple[int, ...], ...]
#: Maximum number of steps: each one copies the whole array.
MAX_STEPS = 6


def plan_rechunk_steps(old: Chunks, new: Chunks, itemsize: int, limit: int) -> list[Chunks] | None:
    """Return the chunks after each step, so that no task holds more than ``limit`` bytes.

    Parameters
    ----------
    old, new : tuple of tuple of int
        Chunk sizes along each axis.
    itemsize : int
        Bytes per element.
    limit : int
        Maximum bytes of a task, see :func:`estimate_peak_bytes`.

    Returns
    -------
    list of tuple of tuple of int, or None
        The last entry is ``new``; None if ``MAX_STEPS`` steps do not fit.

    Examples
    --------
    >>> old, new = ((1,) * 400, (400,)), ((400,), (1,) * 400)
    >>> [count_largest_chunk(s) for s in plan_rechunk_steps(old, new, itemsize=8, limit=2_000_000)]
    [400]
    >>> [count_largest_chunk(s) for s in plan_rechunk_steps(old, new, itemsize=8, limit=200_000)]
    [400, 400]
    >>> plan_rechunk_steps(old, new, itemsize=8, limit=4_000) is None
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
    """Return chunks between old and new, by geometric interpolation, aligned to both."""
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
    """Return the maximum bytes that one rechunking task holds.

    A task holds its new chunk and all old chunks that overlap it, because a NumPy view keeps its
    whole base array in memory.

    Examples
    --------
    >>> estimate_peak_bytes(((10, 10, 10),), ((15, 15),), itemsize=8)  # 15 from two 10s
    280
    """
    sources = math.prod(_max_touched(one, other) for one, other in zip(old, new, strict=True))
    return itemsize * (sources + count_largest_chunk(new))


def count_largest_chunk(chunks: Chunks) -> int:
    """Return the number of elements of the largest chunk.

    Examples
    --------
    >>> count_largest_chunk(((10, 5), (3, 4)))
    40
    """
    return math.prod(max(sizes, default=0) for sizes in chunks)


def _max_touched(old: Sequence[int], new: Sequence[int]) -> int:
    """Return the maximum total length of the old chunks that overlap one new chunk."""
    edges = [0, *accumulate(old)]
    most = position = 0
    for size in new:
        first = bisect_right(edges, position) - 1
        last = bisect_left(edges, position + size)
        if size:
            most = max(most, edges[last] - edges[first])
        position += size
    return most
