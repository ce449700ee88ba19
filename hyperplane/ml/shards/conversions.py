"""Shards from Dask collections, and Dask collections from shards, on the workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from dask.delayed import Delayed

from hyperplane.core.errors import DataError, Fault, check
from hyperplane.ml.shards import tasks
from hyperplane.ml.shards.nested_arrays import is_array, is_frame, is_series


def _check_kind(where: str, value: Any, kind: type, allowed: str) -> None:
    if not isinstance(value, kind):
        check([Fault(where, f"an object of type {type(value).__name__}", allowed)])


def from_dataframe(df: Any) -> list[Delayed]:
    """Return the partitions of a Dask dataframe or series."""
    import dask.dataframe as dd

    _check_kind("df", df, (dd.DataFrame, dd.Series), "a Dask dataframe or series")  # type: ignore[arg-type]
    return list(df.to_delayed())


def from_array(array: Any) -> list[Delayed]:
    """Return blocks of whole rows of a Dask array."""
    import dask.array as da

    _check_kind("array", array, da.Array, "a Dask array")
    if not array.ndim:
        check([Fault("array", "an array of 0 dimensions", "an array with rows")])
    if array.ndim > 1 and any(len(sizes) > 1 for sizes in array.chunks[1:]):
        array = array.rechunk(dict.fromkeys(range(1, array.ndim), -1))
    # Optimized graphs have lost the futures of held blocks, which may then be released.
    return list(array.to_delayed(optimize_graph=False).ravel())


def from_bag(bag: Any) -> list[Delayed]:
    """Return the partitions of a Dask bag as lists."""
    import dask.bag as db

    _check_kind("bag", bag, db.Bag, "a Dask bag")
    return tasks.map_parts(bag.to_delayed(optimize_graph=False), list, (), "from_bag")


def get_like(parts: Sequence[Delayed], held: bool, method: str = "to_dataframe") -> Any:
    """Return an empty frame with columns and types: of all shards if held, or else the first."""
    import pandas as pd
    from dask.dataframe.utils import clear_known_categories

    sources = parts if held else parts[:1]
    heads = tasks.compute(tasks.map_parts(sources, _get_head, (method,), method))
    if len(parts) == 1:
        return heads[0]
    if len(heads) == 1:
        # Other shards may have other categories, such as files that are read separately.
        return clear_known_categories(heads[0], cols=_list_categorical(heads[0]))
    names = heads[0].columns
    for number, head in enumerate(heads):
        _check_columns(head.columns, names, number)
    # Of equal types alone, as pandas joins columns of other types to their common type.
    return pd.concat(heads)


def _list_categorical(frame: Any) -> list[Any]:
    unique = not frame.columns.duplicated(keep=False).any()
    return list(frame.select_dtypes("category").columns) if unique else []


def _check_columns(columns: Any, expected: Any, number: int) -> None:
    if list(columns) == list(expected):
        return
    differing = [name for name in [*columns, *expected] if (name in columns) != (name in expected)]
    name = differing[0] if differing else columns[0]
    raise DataError(
        str(name),
        f"shard {number} has the columns {', '.join(map(str, columns))}; "
        f"the first shard has {', '.join(map(str, expected))}",
    )


def _get_head(shard: Any, method: str) -> Any:
    if not is_frame(shard):
        message = f"Currently only support {method} for XShards of Pandas DataFrame"
        check([Fault(method, "", f"{message}; a shard is of type {type(shard).__name__}")])
    return shard.iloc[:0].copy()


def conform(shard: Any, like: Any, number: int) -> Any:
    """Return a shard with the types of another one, or raise an error that names the column."""
    if not is_frame(shard):
        _get_head(shard, "to_dataframe")
    _check_columns(shard.columns, like.columns, number)
    differing = {
        name: like.dtypes.iloc[i]
        for i, name in enumerate(like.columns)
        if shard.dtypes.iloc[i] != like.dtypes.iloc[i]
        and {shard.dtypes.iloc[i].name, like.dtypes.iloc[i].name} != {"category"}
    }
    for name, dtype in differing.items():
        try:
            converted = shard[name].astype(dtype)
            if not (converted.eq(shard[name]) | shard[name].isna()).all():
                raise ValueError("values would change")
        except (ValueError, TypeError) as error:
            raise DataError(
                str(name),
                f"shard {number} has the type {shard[name].dtype}, the first shard {dtype}; call "
                "compute() first, so that the types of all shards are known, or set dtype=",
            ) from error
        shard = shard.assign(**{name: converted}) if isinstance(name, str) else shard
    return shard


def to_dataframe(parts: Sequence[Delayed], held: bool, method: str = "to_dataframe") -> Any:
    """Return a Dask dataframe whose partitions are the shards."""
    import dask.dataframe as dd

    like = get_like(parts, held, method)
    checked = [tasks.call(conform, method, part, like, number) for number, part in enumerate(parts)]
    return dd.from_delayed(checked, meta=like, verify_meta=False)


def _get_shape(shard: Any) -> tuple[tuple[int, ...], Any]:
    if not is_array(shard) or not shard.ndim:
        advice = "select one first, such as shards['x'].to_array()"
        given = f"a shard of type {type(shard).__name__}"
        check([Fault("to_array", given, "shards that are arrays", advice)])
    return shard.shape, shard.dtype


def to_array(parts: Sequence[Delayed], held: bool) -> Any:
    """Return a Dask array; the rows of lazy shards are unknown."""
    import dask.array as da

    sources = parts if held else parts[:1]
    shapes = tasks.compute(tasks.map_parts(sources, _get_shape, (), "to_array"))
    rest, dtype = shapes[0][0][1:], np.result_type(*(kind for _, kind in shapes))
    faults = [
        Fault("to_array", f"shard {number} of shape {shape}", f"(rows, {rest})")
        for number, (shape, _) in enumerate(shapes)
        if shape[1:] != rest
    ]
    check(faults)
    rows = [shape[0] for shape, _ in shapes] if held else [np.nan] * len(parts)
    return da.concatenate(
        [
            da.from_delayed(part, shape=(count, *rest), dtype=dtype)
            for part, count in zip(parts, rows, strict=True)
        ],
        allow_unknown_chunksizes=True,
    )


def to_bag(parts: Sequence[Delayed]) -> Any:
    """Return a Dask bag of the rows or items of the shards."""
    import dask.bag as db

    return db.from_delayed(tasks.map_parts(parts, _list_items, (), "to_bag"))


def _list_items(shard: Any) -> list[Any]:
    if is_frame(shard):
        return list(shard.to_dict("records"))
    if is_array(shard) or is_series(shard) or isinstance(shard, (list, tuple)):
        return list(shard)
    return [shard]
