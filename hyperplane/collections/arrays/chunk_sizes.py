"""Arithmetic on chunk sizes; nothing here touches an array."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hyperplane.core.units import parse_bytes

#: Small stores share one chunk, up to this many bytes and this many stores.
MAX_JOINT_CHUNK = parse_bytes("32MB")
MAX_STORES_PER_CHUNK = 32


def choose_joint_chunk_length(lengths: Sequence[int], stored: int, row: int) -> int:
    """Return the chunk length along a dimension on which several stores are concatenated.

    Parameters
    ----------
    lengths : sequence of int
        Length of each store along the dimension.
    stored : int
        Length of one stored chunk.
    row : int
        Bytes of a chunk of length 1.

    Returns
    -------
    int
        A multiple of the store length if stores are small, else of the stored chunk length.

    Examples
    --------
    >>> choose_joint_chunk_length([10] * 100, 10, 8_000)  # 80 kB a store: 32 of them
    320
    >>> choose_joint_chunk_length([365] * 30, 30, 1_000_000)  # one chunk of 30 MB
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
    """Return chunk sizes of at most ``elements``, with similar chunk counts along each axis.

    Parameters
    ----------
    shape, units : sequence of int
        Length of each axis, and of a stored chunk along it; chunk sizes are multiples of it.
    whole : sequence of int
        Axes that are not divided.
    elements : int
        Maximum number of elements in a chunk.

    Returns
    -------
    tuple of int or None
        None if the smallest possible chunk has more than ``elements``.

    Examples
    --------
    >>> choose_chunk_sizes((365, 1000, 1000), (1, 100, 100), (), 1_000_000)
    (92, 100, 100)
    >>> choose_chunk_sizes((365, 1000, 1000), (1, 100, 100), (0,), 10_000_000)
    (365, 200, 100)
    """
    chunks = [
        max(1, size if axis in whole else min(unit, size))
        for axis, (size, unit) in enumerate(zip(shape, units, strict=True))
    ]
    if math.prod(chunks) > elements:
        return None
    while True:
        # Grow the axis with the most chunks first, until no axis can grow within the limit.
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
    # Equalizing shrinks chunks, which may leave room for larger ones along another axis.
    for axis in sorted(range(len(shape)), key=lambda axis: -math.ceil(shape[axis] / chunks[axis])):
        most = elements // (math.prod(chunks) // chunks[axis]) // units[axis] * units[axis]
        if chunks[axis] < min(most, shape[axis]):
            chunks[axis] = _equalize(shape[axis], most, units[axis])
    return tuple(chunks)


def _equalize(size: int, chunk: int, unit: int) -> int:
    """Return the smallest multiple of ``unit`` that gives the same number of chunks."""
    count = max(1, math.ceil(size / chunk))
    return max(1, min(size, math.ceil(math.ceil(size / count) / unit) * unit))
