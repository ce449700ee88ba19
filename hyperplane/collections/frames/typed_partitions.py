"""Partitions of collections as Polars tables, for ``save``: without a conversion to pandas."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import dask.dataframe as dd
import pandas as pd
from dask.delayed import Delayed

from hyperplane.collections.frames import filter_pushdown
from hyperplane.formats.pandas_frames.column_names import has_escaped
from hyperplane.formats.pandas_frames.typed_table import TypedTable
from hyperplane.formats.partitions import ScannablePartition
from hyperplane.formats.reader import collect_columns, translate_read_errors

#: Name of the expression of a helper's result -> function that returns the tasks of its tables.
_TABLES: dict[str, Callable[[], Sequence[Delayed]]] = {}


@dataclass(frozen=True)
class UnreadPartition:
    """A partition of files, and the columns and types of the collection."""

    partition: ScannablePartition
    like: pd.DataFrame

    def read(self) -> TypedTable:
        """Read the rows.

        Raises
        ------
        ReadError
            If a file is damaged.
        """
        names = [str(name) for name in self.like.columns]
        with translate_read_errors(self.partition):
            return TypedTable(collect_columns(self.partition, names), self.like)


def read_typed_partition(partition: TypedTable | UnreadPartition) -> TypedTable:
    """Return the rows of a partition of :func:`list_typed_partitions`, in a task."""
    return partition.read() if isinstance(partition, UnreadPartition) else partition


def register_tables(
    df: dd.DataFrame, like: pd.DataFrame, make_tables: Callable[[], Sequence[Delayed]]
) -> None:
    """Register the tasks that return the partitions of a collection as :class:`TypedTable`.

    ``like`` has the names in the tables; if some are escaped, nothing is registered.
    """
    if has_escaped(like):
        return
    name = df.expr._name
    _TABLES[name] = make_tables
    weakref.finalize(df.expr, _TABLES.pop, name, None)


def list_typed_partitions(df: Any) -> list[Any] | None:
    """Return the partitions as tasks of :class:`TypedTable`, or as :class:`UnreadPartition`.

    None for collections that are neither rows and columns of :func:`read`, without filters of
    Dask, nor the result of a helper.
    """
    if not isinstance(df, dd.DataFrame):
        return None
    make_tables = _TABLES.get(df.expr._name)
    if make_tables is not None:
        return list(make_tables())
    scan = filter_pushdown.extract_filters(df.expr)
    if scan is None or scan[1] is not None:  # filters of Dask keep the index of the other rows
        return None
    if not len(df.columns):  # a Polars table without columns has no rows
        return None
    parts = scan[0].iterables[0]
    like = df._meta.iloc[:0]
    return [UnreadPartition(part, like) for part in parts] if len(parts) == df.npartitions else None
