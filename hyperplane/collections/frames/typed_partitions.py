"""Partitions of collections as Polars tables, for ``save``: without a conversion to pandas."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import dask.dataframe as dd
import pandas as pd
from dask.delayed import Delayed
from dask.typing import no_default

from hyperplane.collections.frames import filter_pushdown
from hyperplane.core.dask_internals.frames import RenameFrame, ResetIndex
from hyperplane.formats.pandas_frames.column_names import has_escaped
from hyperplane.formats.pandas_frames.typed_table import TypedTable
from hyperplane.formats.partitions import ScannablePartition
from hyperplane.formats.reader import collect_columns, translate_read_errors

#: Name of the expression of a helper's result -> function that returns the tasks of its tables.
_TABLES: dict[str, Callable[[], Sequence[Delayed]]] = {}
#: The same of groups, whose tables get the names and types of an empty frame.
_GROUPS: dict[str, Callable[[pd.DataFrame], Sequence[Delayed]]] = {}


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


def register_groups(
    df: dd.DataFrame, make_tables: Callable[[pd.DataFrame], Sequence[Delayed]]
) -> None:
    """Register the tasks that return the groups of a collection as :class:`TypedTable`.

    ``make_tables`` gets the empty frame of the collection with its keys as first columns, perhaps
    with other names.
    """
    name = df.expr._name
    _GROUPS[name] = make_tables
    weakref.finalize(df.expr, _GROUPS.pop, name, None)


def _find_groups(step: Any) -> Callable[[pd.DataFrame], Sequence[Delayed]] | None:
    """Return the registered function if a step is ``reset_index`` of groups, or renames those."""
    while isinstance(step, RenameFrame):
        step = step.frame
    if not isinstance(step, ResetIndex) or step.drop or step.operand("name") is not no_default:
        return None
    step = step.frame
    while isinstance(step, RenameFrame):
        step = step.frame
    return _GROUPS.get(step._name)


def list_typed_partitions(df: Any) -> list[Any] | None:
    """Return the partitions as tasks of :class:`TypedTable`, or as :class:`UnreadPartition`.

    None for collections that are neither rows and columns of :func:`read`, without filters of
    Dask, nor the result of a helper. Groups count with ``reset_index`` and other names.
    """
    if not isinstance(df, dd.DataFrame):
        return None
    make_tables = _TABLES.get(df.expr._name)
    if make_tables is not None:
        return list(make_tables())
    make_groups = _find_groups(df.expr)
    has_names = df.columns.is_unique and all(isinstance(name, str) for name in df.columns)
    if make_groups is not None and has_names:
        return list(make_groups(df._meta.iloc[:0]))
    scan = filter_pushdown.extract_filters(df.expr)
    if scan is None or scan[1] is not None:  # filters of Dask keep the index of the other rows
        return None
    if not len(df.columns):  # a Polars table without columns has no rows
        return None
    parts = scan[0].iterables[0]
    like = df._meta.iloc[:0]
    return [UnreadPartition(part, like) for part in parts] if len(parts) == df.npartitions else None
