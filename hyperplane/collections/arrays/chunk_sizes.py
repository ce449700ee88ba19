"""Sizes of chunks: arithmetic alone, no arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hyperplane.units import parse_bytes

#: Small stores are read together up to this many bytes, and this many stores, in one chunk.
MAX_JOINT_CHUNK = parse_bytes("32MB")
MAX_STORES_PER_CHUNK = 32


def choose_joint_chunk_length(lengths: Sequence[int], stored: int, row: int) -> int:
    """Positions of each chunk along a dimension that several stores fill one after the other.

    Parameters
    ----------
    lengths : sequence of int
        Positions that each store has.
    stored : int
        Positions of one chunk in a store.
    row : int
        Bytes of one position, over the other dimensions of a chunk.

    Returns
    -------
    int
        Several whole stores if they are small, else several stored chunks of one store.

    Examples
    --------
    >>> joined_length([10] * 100, 10, 8_000)  # 80 kB a store: 32 of them
    320
    >>> joined_length([365] * 30, 30, 1_000_000)  # one chunk of 30 MB
    30
    """
    usual = max(1, math.ceil(sum(lengths) / len(lengths)))
    together = min(MAX_STORES_PER_CHUNK, MAX_JOINT_CHUNK // max(1, usual * row))
    if together > 1:
        return min(usual * together, max(1, sum(lengths)))
    stored = min(max(1, stored), usual)
    return stored * max(1, MAX_JOINT_CHUNK // max(1, stored * row))


def choose_chunk_sizes(
    shape: Sequence[int], units: Sequence[int], whole: Sequence[int], elements: int
) -> tuple[int, ...] | None:
    """Chunks of at most so many elements, in whole units, about equally many along each axis.

    Parameters
    ----------
    shape, units : sequence of int
        Positions along each axis, and those of a stored chunk, of which sizes are multiples.
    whole : sequence of int
        Axes that are not divided.
    elements : int
        The most that a chunk may hold.

    Returns
    -------
    tuple of int or None
        None if the smallest such chunk is too large.

    Examples
    --------
    >>> proposed((365, 1000, 1000), (1, 100, 100), (), 1_000_000)
    (92, 100, 100)
    >>> proposed((365, 1000, 1000), (1, 100, 100), (0,), 10_000_000)
    (365, 200, 100)
    """
    chunks = [
        max(1, size if axis in whole else min(unit, size))
        for axis, (size, unit) in enumerate(zip(shape, units, strict=True))
    ]
    if math.prod(chunks) > elements:
        return None
    while True:
        # The axis that is cut most often grows first; what is left of the space is used up.
        open_axes = sorted(
            (axis for axis, size in enumerate(shape) if chunks[axis] < size),
            key=lambda axis: -math.ceil(shape[axis] / chunks[axis]),
        )
        for axis in open_axes:
            others = math.prod(chunks) // chunks[axis]
            most = elements // others // units[axis] * units[axis]
            wider = min(2 * chunks[axis], most, shape[axis])
            if elements // others >= shape[axis] and 2 * chunks[axis] >= shape[axis]:
                wider = shape[axis]
            if wider > chunks[axis]:
                chunks[axis] = wider
                break
        else:
            break
    chunks = [
        _equalize(size, chunk, unit) for size, chunk, unit in zip(shape, chunks, units, strict=True)
    ]
    # Equal chunks are smaller: perhaps there is room now for fewer along another axis.
    for axis in sorted(range(len(shape)), key=lambda axis: -math.ceil(shape[axis] / chunks[axis])):
        most = elements // (math.prod(chunks) // chunks[axis]) // units[axis] * units[axis]
        if chunks[axis] < min(most, shape[axis]):
            chunks[axis] = _equalize(shape[axis], most, units[axis])
    return tuple(chunks)


def _equalize(size: int, chunk: int, unit: int) -> int:
    """The smallest multiple of a unit that cuts an axis into as many chunks."""
    count = max(1, math.ceil(size / chunk))
    return max(1, min(size, math.ceil(math.ceil(size / count) / unit) * unit))
