"""Arithmetic on chunk sizes, without arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hyperplane.core.units import parse_bytes

#: Small stores share one chunk, up to this many bytes and this many stores.
MAX_JOINT_CHUNK = parse_bytes("32MB")
MAX_STORES_PER_CHUNK = 32


def choose_joint_chunk_length(lengths: Sequence[int], stored_length: int, row_bytes: int) -> int:
    """Return the chunk length along a dimension on which several stores are concatenated.

    ``lengths`` has the length of each store along the dimension, ``stored_length`` is that of a
    stored chunk, and ``row_bytes`` are the bytes of a chunk of length 1. The result is a multiple
    of the store length if stores are small, else of the stored chunk length.

    Examples
    --------
    >>> choose_joint_chunk_length([10] * 100, 10, 8_000)  # 80 kB a store: 32 of them
    320
    >>> choose_joint_chunk_length([365] * 30, 30, 1_000_000)  # one chunk of 30 MB
    30
    """
    store_length = max(1, math.ceil(sum(lengths) / len(lengths)))
    store_count = min(MAX_STORES_PER_CHUNK, MAX_JOINT_CHUNK // max(1, store_length * row_bytes))
    if store_count > 1:
        return min(store_length * store_count, max(1, sum(lengths)))
    stored_length = min(max(1, stored_length), store_length)
    return stored_length * max(1, MAX_JOINT_CHUNK // max(1, stored_length * row_bytes))


def choose_chunk_sizes(
    shape: Sequence[int], units: Sequence[int], whole: Sequence[int], elements: int
) -> tuple[int, ...] | None:
    """Return chunk sizes of at most ``elements``, with similar chunk counts along each axis.

    The algorithm is greedy: it starts with stored chunks, whose lengths are ``units``, and doubles
    the chunk length along the axis with the most chunks while the chunk fits. Chunk sizes are
    multiples of ``units``, and the axes ``whole`` are not divided. None if the smallest possible
    chunk has more than ``elements``.

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
            limit = elements // others // units[axis] * units[axis]
            wider = min(2 * chunks[axis], limit, shape[axis])
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
        limit = elements // (math.prod(chunks) // chunks[axis]) // units[axis] * units[axis]
        if chunks[axis] < min(limit, shape[axis]):
            chunks[axis] = _equalize(shape[axis], limit, units[axis])
    return tuple(chunks)


def _equalize(size: int, chunk: int, unit: int) -> int:
    """Return the smallest multiple of ``unit`` that gives the same number of chunks."""
    count = max(1, math.ceil(size / chunk))
    return max(1, min(size, math.ceil(math.ceil(size / count) / unit) * unit))
