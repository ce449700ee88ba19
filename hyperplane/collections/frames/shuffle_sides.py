"""Shuffle of the two sides of a join, so that rows with equal keys are in one partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl

from hyperplane.collections.frames import heavy_keys
from hyperplane.collections.frames.declared_cast import cast_to_declared
from hyperplane.collections.frames.heavy_keys import PARTITION
from hyperplane.collections.frames.kernels import polars_kernel as kernel
from hyperplane.collections.frames.task_errors import run_in_partition
from hyperplane.core.errors import DataError
from hyperplane.formats.pandas_frames.categories import is_stored_as_codes
from hyperplane.formats.pandas_frames.column_names import escape_all, escape_columns
from hyperplane.formats.pandas_frames.from_pandas import from_pandas, needs_declared_dtype


@dataclass(frozen=True)
class JoinKeys:
    """Keys of a join, and the number of partitions that receive rows."""

    names: tuple[str, ...]
    #: Keys whose equal values have equal hashes on both sides.
    hashed: tuple[str, ...]
    into: int


def shuffle_sides(
    larger: dd.DataFrame, other: dd.DataFrame, keys: JoinKeys, *, is_distinct: bool
) -> tuple[dd.DataFrame, dd.DataFrame]:
    """Shuffle both sides so that rows with equal keys are in partitions of the same number.

    Rows of the larger side with a frequent key are in several partitions, with copies of the rows
    of the other side. With ``is_distinct``, only distinct rows of the other side are needed.
    """
    marked = larger.map_partitions(
        _mark_larger_side,
        larger._meta,
        keys,
        larger.npartitions,
        meta=_make_marked_meta(larger),
        enforce_metadata=False,
    )
    spread = marked.map_partitions(_list_spread, keys, meta=heavy_keys.SPREAD_META)
    copied = other.map_partitions(
        _mark_other_side,
        other._meta,
        keys,
        spread.repartition(npartitions=1),
        is_distinct,
        meta=_make_marked_meta(other),
        enforce_metadata=False,
        align_dataframes=False,
    )
    return (
        heavy_keys.shuffle_marked(marked, keys.into),
        heavy_keys.shuffle_marked(copied, keys.into),
    )


def _make_marked_meta(side: dd.DataFrame) -> pd.DataFrame:
    meta: pd.DataFrame = side._meta.assign(**{PARTITION: np.array([], dtype="int64")})
    return meta


def is_hashed(one: Any, other: Any) -> bool:
    """Return whether equal values of two types have equal hashes; never if stored as codes."""
    if _is_coded_category(one) or _is_coded_category(other):
        return False
    return bool(one == other) or not (needs_declared_dtype(one) or needs_declared_dtype(other))


def _is_coded_category(dtype: Any) -> bool:
    return isinstance(dtype, pd.CategoricalDtype) and is_stored_as_codes(dtype)


def _mark_larger_side(
    frame: pd.DataFrame,
    like: pd.DataFrame,
    keys: JoinKeys,
    senders: int,
    partition_info: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """Return a partition cast to the declared types, and the partition of each row."""
    number = int(partition_info["number"]) if partition_info else 0
    return run_in_partition(
        _spread_rows, frame, like, keys, number, senders, partition_info=partition_info
    )


def _spread_rows(
    frame: pd.DataFrame, like: pd.DataFrame, keys: JoinKeys, number: int, senders: int
) -> pd.DataFrame:
    frame = cast_to_declared(frame, like, keys.names)
    partitions = heavy_keys.spread_rows(_hash_keys(frame, keys), keys.into, number, senders)
    return frame.assign(**{PARTITION: partitions.to_numpy()})


def _list_spread(marked: pd.DataFrame, keys: JoinKeys) -> pd.DataFrame:
    """Return the hashes and partitions of the rows that were spread."""
    if not len(marked):
        return heavy_keys.SPREAD_META
    partitions = pl.Series(marked[PARTITION].to_numpy())
    return heavy_keys.list_spread(_hash_keys(marked, keys), partitions, keys.into)


def _mark_other_side(
    frame: pd.DataFrame,
    like: pd.DataFrame,
    keys: JoinKeys,
    spread: pd.DataFrame,
    is_distinct: bool,
    partition_info: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """Return a partition cast to the declared types, with copies of rows, and their partitions."""
    return run_in_partition(
        _copy_rows, frame, like, keys, spread, is_distinct, partition_info=partition_info
    )


def _copy_rows(
    frame: pd.DataFrame, like: pd.DataFrame, keys: JoinKeys, spread: pd.DataFrame, is_distinct: bool
) -> pd.DataFrame:
    frame = cast_to_declared(frame, like, keys.names)
    if is_distinct:
        frame = frame.drop_duplicates()
    return heavy_keys.copy_rows(frame, _hash_keys(frame, keys), keys.into, spread)


def _hash_keys(frame: pd.DataFrame, keys: JoinKeys) -> pl.Series:
    """Return a hash of the keys of each row; 0 if equal values may have different hashes."""
    for key in keys.hashed:
        if _is_coded_category(frame[key].dtype):  # not declared, or declared as another type
            raise DataError(
                key,
                "holds categories of several types, of intervals or similar, that are not in the "
                f"declared type; write df[{key!r}].cat.as_known(), or astype(object)",
            )
    if not keys.hashed:
        return pl.zeros(len(frame), pl.UInt64, eager=True)
    table = from_pandas(escape_columns(frame[list(keys.hashed)]))
    return kernel.hash_keys(table, escape_all(keys.hashed))
