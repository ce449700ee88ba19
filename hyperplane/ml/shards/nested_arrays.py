"""Rows of arrays in nested dictionaries, lists and tuples: check, split, slice and concatenate."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dask.base import is_dask_collection

from hyperplane.core.errors import Fault

_ALLOWED = "an array, or a dict, list or tuple of arrays, also nested"
_ALLOWED_LEAF = "a NumPy array, DataFrame or Series with rows"


def is_frame(value: Any) -> bool:
    """Return whether a value is a pandas DataFrame, without importing pandas."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, pandas.DataFrame)


def is_series(value: Any) -> bool:
    """Return whether a value is a pandas Series, without importing pandas."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(value, pandas.Series)


def is_array(value: Any) -> bool:
    """Return whether a value is a NumPy array."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def iterate_leaves(data: Any, path: str = "data") -> Iterator[tuple[str, Any]]:
    """Yield the path, such as ``data['x'][0]``, and the value of each leaf."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield from iterate_leaves(value, f"{path}[{key!r}]")
    elif isinstance(data, (list, tuple)):
        for number, value in enumerate(data):
            yield from iterate_leaves(value, f"{path}[{number}]")
    else:
        yield path, data


def map_leaves(function: Callable[[Any], Any], data: Any) -> Any:
    """Return the same structure with a function applied to each leaf."""
    if isinstance(data, dict):
        return {key: map_leaves(function, value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        values = [map_leaves(function, value) for value in data]
        return _rebuild_sequence(data, values)
    return function(data)


def _rebuild_sequence(like: Any, values: list[Any]) -> Any:
    """Return values as a list, tuple or named tuple like another one."""
    if hasattr(like, "_fields"):
        return type(like)(*values)
    return tuple(values) if isinstance(like, tuple) else values


def find_array_faults(data: Any) -> list[Fault]:
    """Return a fault for each leaf without rows, and one if leaves have different lengths."""
    try:
        leaves = list(iterate_leaves(data))
    except RecursionError:
        return [Fault("data", f"a {type(data).__name__} that contains itself", _ALLOWED)]
    if not leaves:
        return [Fault("data", repr(data)[:80], f"{_ALLOWED}; it has none")]
    faults = [
        Fault(path, describe_type(leaf), _ALLOWED_LEAF, _advise(leaf))
        for path, leaf in leaves
        if not has_rows(leaf)
    ]
    lengths = {path: len(leaf) for path, leaf in leaves if has_rows(leaf)}
    if len(set(lengths.values())) > 1:
        shown = [f"{path} has {count:,}" for path, count in lengths.items()]
        more = f", and {len(shown) - 12} more" if len(shown) > 12 else ""
        allowed = "all arrays need the same number of rows; " + ", ".join(shown[:12]) + more
        faults.append(Fault("data", "", allowed))
    return faults


def _advise(leaf: Any) -> str:
    if is_dask_collection(leaf):
        return "use XShards.from_array, from_dataframe or from_bag, which keep it on the workers"
    return ""


def describe_type(value: Any) -> str:
    """Return the type of a value for a message."""
    if is_array(value):
        return f"an array of {value.ndim} dimensions"
    return f"an object of type {type(value).__name__}"


def has_rows(leaf: Any) -> bool:
    """Return whether a leaf is an array of at least one dimension, a DataFrame or a Series."""
    return (is_array(leaf) and leaf.ndim > 0) or is_frame(leaf) or is_series(leaf)


def count_rows(data: Any) -> int:
    """Return the rows of valid data."""
    return len(next(iterate_leaves(data))[1])


def slice_rows(data: Any, start: int, stop: int) -> Any:
    """Return rows of each leaf; NumPy arrays are views."""

    def slice_leaf(leaf: Any) -> Any:
        return leaf.iloc[start:stop] if is_frame(leaf) or is_series(leaf) else leaf[start:stop]

    return map_leaves(slice_leaf, data)


def copy_shard(shard: Any) -> Any:
    """Copy a shard, so that a function that changes it does not change what workers hold.

    Frames share their values until one is changed (copy-on-write); other objects are not copied.
    """
    if is_frame(shard) or is_series(shard):
        return shard.copy(deep=False)
    if is_array(shard):
        return shard.copy()
    if type(shard) is dict:
        return {key: copy_shard(value) for key, value in shard.items()}
    if type(shard) in (list, tuple):
        return type(shard)(map(copy_shard, shard))
    return shard


def split_bounds(count: int, parts: int) -> list[tuple[int, int]]:
    """Return start and stop of each part, with the sizes of ``numpy.array_split``.

    Examples
    --------
    >>> split_bounds(5, 2)
    [(0, 3), (3, 5)]
    """
    size, longer = divmod(count, parts)
    starts = [part * size + min(part, longer) for part in range(parts + 1)]
    return list(itertools.pairwise(starts))


def slice_shard(shard: Any, part: int, parts: int) -> Any:
    """Return one of several equal parts of a shard: of rows, or of the items of a list."""
    rows = get_length(shard)
    start, stop = split_bounds(rows, parts)[part]
    if is_plain_list(shard):
        return shard[start:stop]
    return slice_rows(shard, start, stop)


def is_plain_list(shard: Any) -> bool:
    """Return whether a shard is a list of items, and not a structure of arrays."""
    return isinstance(shard, list) and not (shard and all(_has_only_arrays(x) for x in shard))


def _has_only_arrays(data: Any) -> bool:
    leaves = list(iterate_leaves(data))
    return bool(leaves) and all(has_rows(leaf) for _, leaf in leaves)


def get_length(shard: Any) -> int:
    """Return the rows or items of a shard that :meth:`XShards.repartition` can divide."""
    if is_plain_list(shard):
        return len(shard)
    if not _has_only_arrays(shard):
        raise TypeError(
            f"repartition cannot divide or join shards of type {type(shard).__name__}; "
            "it needs DataFrames, lists, arrays, or dicts and tuples of arrays"
        )
    return count_rows(shard)


def join_shards(shards: Sequence[Any]) -> Any:
    """Concatenate neighbors: rows of frames and arrays, or items of lists."""
    if len(shards) == 1:
        return shards[0]
    for shard in shards:
        get_length(shard)
    kinds = {_describe_structure(shard) for shard in shards}
    if all(is_plain_list(shard) for shard in shards):
        return [item for shard in shards for item in shard]
    if len(kinds) > 1:
        raise TypeError(
            "repartition cannot join shards of different structure: "
            + " and ".join(sorted(map(str, kinds)))
        )
    return _join_structures(shards)


def _describe_structure(data: Any) -> str:
    if isinstance(data, dict):
        return "{" + ", ".join(f"{key!r}: {_describe_structure(data[key])}" for key in data) + "}"
    if isinstance(data, (list, tuple)):
        return f"{type(data).__name__}[" + ", ".join(map(_describe_structure, data)) + "]"
    return type(data).__name__


def _join_structures(shards: Sequence[Any]) -> Any:
    first = shards[0]
    if isinstance(first, dict):
        return {key: _join_structures([shard[key] for shard in shards]) for key in first}
    if isinstance(first, (list, tuple)):
        columns = zip(*shards, strict=True)
        return _rebuild_sequence(first, [_join_structures(column) for column in columns])
    if is_array(first):
        import numpy as np

        is_masked = any(isinstance(shard, np.ma.MaskedArray) for shard in shards)
        joined: Any = np.ma.concatenate(shards) if is_masked else np.concatenate(shards)
        return joined
    import pandas as pd

    return pd.concat(list(shards))
