"""Sides of joins that Polars computes: their partitions, columns and sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import dask.dataframe as dd
import pandas as pd
import polars as pl

from hyperplane.collections.frames import exchange_memory
from hyperplane.collections.frames.source_collection import open_partition, select_source
from hyperplane.formats.pandas_frames.column_names import escape, escape_columns


@dataclass(frozen=True)
class SideColumns:
    """Columns of one side of a join."""

    #: Empty, with the types and the escaped names of the side.
    like: pd.DataFrame
    #: Escaped names in the result.
    names: tuple[str, ...]
    where: pl.Expr | None

    def open_rows(self, partition: Any, exact: Sequence[str] = ()) -> pl.LazyFrame:
        """Return the rows of a partition with the names of the result, in a task."""
        rows = open_partition(partition, self.like, self.where, exact=exact)
        return rows.rename(dict(zip(self.like.columns, self.names, strict=True)))


@dataclass(frozen=True)
class JoinSide:
    """Partitions and columns of one side of a join."""

    df: dd.DataFrame
    partitions: tuple[Any, ...]
    token: str
    columns: SideColumns
    #: Bytes in memory; None if unknown.
    size: int | None

    def split_small(self) -> JoinSide:
        """Return the side with its own partitions: small ones are not read together."""
        source = select_source(self.df, list(self.df.columns), merge=False)
        return replace(self, partitions=source.partitions, token=source.token)


def open_side(df: dd.DataFrame, suffix: str, other: dd.DataFrame, keys: Sequence[str]) -> JoinSide:
    """Return the rows of a side; its columns that the other side has too get a suffix."""
    source = select_source(df, list(df.columns))
    like = df._meta.iloc[:0].reset_index(drop=True)
    names = [
        escape(name + suffix if name not in keys and name in other.columns else name)
        for name in like.columns
    ]
    size = exchange_memory.estimate_source_size(source, df)
    columns = SideColumns(escape_columns(like), tuple(names), source.where)
    return JoinSide(df, source.partitions, source.token, columns, size)
