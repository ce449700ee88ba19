"""Memory that a result holds beyond its size: arrays that are views of larger ones.

``np.partition(block, -5, axis=0)[-5:]`` has five rows, and keeps all of the block in memory until
it is released. Dask's ``sizeof`` counts the five rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np


def measure_held(value: Any, inputs: Iterable[Any] = ()) -> int:
    """Return the bytes that a result holds in memory and that are not in its arrays.

    Parameters
    ----------
    value : object
        Array, table or series of pandas, or a tuple, list or dictionary of these; other objects,
        and columns of Arrow, hold nothing.
    inputs : iterable of object
        What the result may be a part of, and which is counted by itself.

    Examples
    --------
    >>> block = np.zeros((1000, 10))
    >>> measure_held(block[:5].copy()), measure_held(block[:5])
    (0, 79600)
    >>> measure_held(block[:5], [block])
    0
    """
    known = {id(_find_root(array)) for each in inputs for array in _list_arrays(each)}
    roots: dict[int, np.ndarray[Any, Any]] = {}
    used: dict[int, int] = {}
    for array in _list_arrays(value):
        root = _find_root(array)
        if id(root) not in known:
            roots[id(root)] = root
            used[id(root)] = used.get(id(root), 0) + array.nbytes
    return sum(max(0, root.nbytes - used[name]) for name, root in roots.items())


def measure_overlaps(values: Iterable[Any]) -> int:
    """Return the bytes that values have in common, and that are in the sizes of each of them.

    Examples
    --------
    >>> block = np.zeros((1000, 10))
    >>> measure_overlaps([block, block[:500]]), measure_overlaps([block[:500], block[500:]])
    (40000, 0)
    """
    roots: dict[int, np.ndarray[Any, Any]] = {}
    used: dict[int, int] = {}
    for value in values:
        for array in _list_arrays(value):
            if 0 not in array.strides:  # sizeof does not count repeated rows either
                root = _find_root(array)
                roots[id(root)] = root
                used[id(root)] = used.get(id(root), 0) + array.nbytes
    return sum(max(0, used[name] - root.nbytes) for name, root in roots.items())


def _list_arrays(value: Any) -> Iterator[np.ndarray[Any, Any]]:
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _list_arrays(each)
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _list_arrays(each)
    elif hasattr(value, "iloc") and type(value).__module__.partition(".")[0] == "pandas":
        for _, column in value.items() if value.ndim > 1 else [("", value)]:
            if isinstance(column.dtype, np.dtype):
                yield column.to_numpy(copy=False)


def _find_root(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the array whose memory another one is a part of; itself if it has its memory."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
