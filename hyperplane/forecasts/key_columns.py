"""Key columns of a dataframe's joins, shuffles, sorts and group-bys, as they are in its files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from hyperplane.collections.frames.helper_steps import (
    DISTINCT,
    GROUP,
    JOIN,
    SHUFFLE,
    SORT,
    KeyedTable,
    find_step,
)
from hyperplane.forecasts.records import KeyColumns
from hyperplane.forecasts.source_files import make_source_file


def find_key_columns(collection: Any) -> list[KeyColumns]:
    """Return the keys of the operations of a collection, without those that have no files.

    Keys that are computed, and those of tables that are not read by ``read_parquet`` or
    :func:`hyperplane.dataframe.read`, have none.
    """
    expr = getattr(collection, "expr", None)
    if expr is None or not hasattr(expr, "walk") or not hasattr(collection, "npartitions"):
        return []
    if not type(collection).__module__.startswith("dask.dataframe"):
        return []
    found: dict[Any, KeyColumns] = {}
    for table in _list_tables(expr):
        columns = _find_columns(table)
        if columns is not None:
            # Once of a table that an operation has twice, from the same files.
            place = replace(columns, columns=(), parts=(), complete=True)
            found.setdefault(place, columns)
    return list(found.values())


def _list_tables(expr: Any) -> Iterator[KeyedTable]:
    """Yield the tables of operations, also of those whose results helpers of this package use."""
    pending, seen = [expr], set()
    while pending:
        node = pending.pop()
        if node._name in seen:
            continue
        seen.add(node._name)
        helper = find_step(node)
        if helper is not None:
            yield from helper.tables
            pending += [table.table for table in helper.tables]
        else:
            yield from _list_tables_of_dask(node)
            pending += node.dependencies()


def _list_tables_of_dask(node: Any) -> Iterator[KeyedTable]:
    """Yield the tables of an operation with the keys that decide where their rows go."""
    from hyperplane.core.dask_internals import frames

    if isinstance(node, frames.Merge):
        for side, keys in ((node.left, node.left_on), (node.right, node.right_on)):
            if keys is not None:
                yield KeyedTable(JOIN, side, _as_tuple(keys))
    elif isinstance(node, frames.SortValues):
        yield KeyedTable(SORT, node.frame, _as_tuple(node.by)[:1])
    elif isinstance(node, frames.SetIndex):
        yield KeyedTable(SORT, node.frame, (node.operand("_other"),))
    elif isinstance(node, frames.ShuffleBase):
        yield KeyedTable(SHUFFLE, node.frame, _as_tuple(node.partitioning_index))
    elif isinstance(node, frames.GroupByApply):
        yield KeyedTable(SHUFFLE, node.frame, tuple(node.by))
    elif isinstance(node, (frames.GroupByApplyConcatApply, frames.GroupByReduction)):
        yield KeyedTable(GROUP, node.frame, tuple(node.by))
    elif isinstance(node, frames.Unique | frames.ValueCounts):
        subset = getattr(node, "subset", None)
        yield KeyedTable(DISTINCT, node.frame, tuple(subset or node.frame.columns))


def _as_tuple(keys: Any) -> tuple[Any, ...]:
    return tuple(keys) if isinstance(keys, (list, tuple)) else (keys,)


def _find_columns(table: KeyedTable) -> KeyColumns | None:
    from hyperplane.collections.frames.source_columns import find_source_column
    from hyperplane.core.dask_internals.frames import Projection

    names: list[str] = []
    columns: list[Any] = []
    for key in table.keys:
        if isinstance(key, str):
            column = find_source_column(table.table, key)
        elif isinstance(key, Projection) and isinstance(key.operand("columns"), str):
            column, key = find_source_column(key.frame, key.operand("columns")), key.columns[0]
        else:
            return None
        if column is None or not isinstance(column.name, str):
            return None
        names.append(key)
        columns.append(column)
    if len({column.source._name for column in columns if column is not None}) != 1:
        return None
    source = columns[0].source
    parts = _find_parts(source)
    if not parts:
        return None
    in_files = tuple(column.name for column in columns)
    complete = all(column.has_all_rows for column in columns)
    return KeyColumns(
        table.operation, tuple(names), in_files, source._name, parts, complete,
        receivers=table.receivers, is_divided=table.is_divided, groups=table.groups,
    )  # fmt: skip


def _find_parts(source: Any) -> tuple[Any, ...]:
    """Return the partitions of ``read``, or the paths of Parquet files, with their systems."""
    from hyperplane.collections.frames.explain.sizes import list_fragments
    from hyperplane.core.dask_internals.frames import FromMap, ReadParquet
    from hyperplane.formats.reader import PartitionReader

    if isinstance(source, FromMap) and isinstance(source.func, PartitionReader):
        return tuple(source.iterables[0])
    if not isinstance(source, ReadParquet):
        return ()
    # Not the file system of a fragment, which PyArrow wraps for each of them.
    system = getattr(source, "fs", None) or source._dataset_info["fs"]
    files = [make_source_file(each.path, system) for each in list_fragments(source)]
    if all(file.system is not None for file in files):
        return tuple(files)
    paths = [file.path for file in files]
    return tuple(paths) if all(Path(path).is_file() for path in paths) else ()
