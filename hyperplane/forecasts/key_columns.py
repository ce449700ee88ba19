"""Key columns of a dataframe's joins, shuffles, sorts and group-bys, as they are in its files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hyperplane.forecasts.records import KeyColumns
from hyperplane.forecasts.source_files import make_source_file

#: Names of operations in reports.
JOIN, SHUFFLE, SORT, GROUP, DISTINCT = "join", "shuffle", "sort", "group-by", "distinct rows"
#: Operations whose results have one row for each key.
GROUPING = (GROUP, DISTINCT)


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
    for operation, frame, keys in _list_operations(expr):
        columns = _find_columns(operation, frame, keys)
        if columns is not None:
            found.setdefault((operation, columns.names, columns.source_name), columns)
    return list(found.values())


def _list_operations(expr: Any) -> Iterator[tuple[str, Any, Sequence[Any]]]:
    """Yield operations with the table and the keys that decide where its rows go."""
    from hyperplane.core.dask_internals import frames

    for node in expr.walk():
        if isinstance(node, frames.Merge):
            for side, keys in ((node.left, node.left_on), (node.right, node.right_on)):
                if keys is not None:
                    yield JOIN, side, _as_list(keys)
        elif isinstance(node, frames.SortValues):
            yield SORT, node.frame, _as_list(node.by)[:1]
        elif isinstance(node, frames.SetIndex):
            yield SORT, node.frame, [node.operand("_other")]
        elif isinstance(node, frames.ShuffleBase):
            yield SHUFFLE, node.frame, _as_list(node.partitioning_index)
        elif isinstance(node, frames.GroupByApply):
            yield SHUFFLE, node.frame, list(node.by)
        elif isinstance(node, (frames.GroupByApplyConcatApply, frames.GroupByReduction)):
            yield GROUP, node.frame, list(node.by)
        elif isinstance(node, frames.Unique | frames.ValueCounts):
            subset = getattr(node, "subset", None)
            yield DISTINCT, node.frame, list(subset or node.frame.columns)


def _as_list(keys: Any) -> list[Any]:
    return list(keys) if isinstance(keys, (list, tuple)) else [keys]


def _find_columns(operation: str, frame: Any, keys: Sequence[Any]) -> KeyColumns | None:
    from hyperplane.collections.frames.source_columns import find_source_column
    from hyperplane.core.dask_internals.frames import Projection

    names: list[str] = []
    columns: list[Any] = []
    for key in keys:
        if isinstance(key, str):
            column = find_source_column(frame, key)
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
    return KeyColumns(operation, tuple(names), in_files, source._name, parts, complete)


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
