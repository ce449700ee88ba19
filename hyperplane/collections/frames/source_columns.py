"""The column of files or frames from which a column of a Dask expression has its values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hyperplane.collections.frames.helper_steps import find_step
from hyperplane.core.dask_internals.frames import (
    IO,
    Assign,
    BaseSetIndexSortValues,
    ClearDivisions,
    DropnaFrame,
    DropnaSeries,
    Filter,
    Loc,
    LocBase,
    LocUnknown,
    Merge,
    Partitions,
    Projection,
    ReadParquet,
    RenameFrame,
    Repartition,
    ResetIndex,
    ShuffleBase,
)

#: Steps that do not change the values of a column that they return.
_VALUE_PRESERVING = (
    Projection,
    Filter,
    DropnaFrame,
    DropnaSeries,
    ClearDivisions,
    Partitions,
    LocBase,
    LocUnknown,
    Loc,
    Repartition,
    ResetIndex,
    ShuffleBase,
    BaseSetIndexSortValues,
)
#: Those of them, and joins, that select or repeat rows. Rows with missing values are few.
_ROW_CHANGING = (Filter, LocBase, Partitions, Merge)


@dataclass(frozen=True)
class SourceColumn:
    """A column as it is read.

    Parameters
    ----------
    source : expression
        The step that reads it.
    name : str
        Its name there.
    has_all_rows : bool
        Whether the column of the expression has all rows of the source, each once, except those
        with missing values.
    """

    source: Any
    name: Any
    has_all_rows: bool


def find_source_column(expr: Any, column: Any) -> SourceColumn | None:
    """Return the source of a column whose values no step changes; None if one may change them."""
    has_all_rows = True
    while (helper := find_step(expr)) is not None or not isinstance(expr, IO):
        if helper is not None:
            has_all_rows = has_all_rows and helper.has_all_rows
            step = helper.columns.get(column)
        else:
            has_all_rows = has_all_rows and not isinstance(expr, _ROW_CHANGING)
            step = _step_down(expr, column)
        if step is None:
            return None
        expr, column = step
    if column not in expr.columns:
        return None
    if isinstance(expr, ReadParquet) and expr.filters:
        has_all_rows = False
    return SourceColumn(expr, column, has_all_rows)


def _step_down(expr: Any, column: Any) -> tuple[Any, Any] | None:
    """Return the input of a step that has a column, and the column's name there."""
    if isinstance(expr, RenameFrame) and column in expr.columns:
        places = [place for place, name in enumerate(expr.columns) if name == column]
        return (expr.frame, expr.frame.columns[places[0]]) if len(places) == 1 else None
    if isinstance(expr, Merge):
        sides = [side for side in (expr.left, expr.right) if column in side.columns]
        if len(sides) == 2 and not _is_common_key(expr, column):
            return None
        # After an outer join a key has the values of both tables.
        is_outer = len(sides) == 2 and expr.how not in ("inner", "left", "right", "leftsemi")
        if not sides or is_outer:
            return None
        return sides[-1 if expr.how == "right" else 0], column
    is_unchanged = isinstance(expr, Assign) and column not in expr.keys
    if not (is_unchanged or isinstance(expr, (*_VALUE_PRESERVING, RenameFrame))):
        return None
    # The keys of a group-by are the index of its result.
    names = [*expr.frame.columns, *expr.frame._meta.index.names]
    return (expr.frame, column) if column in names else None


def _is_common_key(merge: Any, column: Any) -> bool:
    keys = merge.left_on if isinstance(merge.left_on, list) else [merge.left_on]
    return merge.left_on == merge.right_on and column in keys
