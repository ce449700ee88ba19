"""Keys of the helpers' operations, and the columns from which their results have their values.

A helper's result consists of tasks, whose keys Dask's expressions do not show. Forecasts find them
by the name of the expression. The process of a sample imports this module, so it loads no others.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

#: Names of operations in reports.
JOIN, SHUFFLE, SORT, GROUP, DISTINCT = "join", "shuffle", "sort", "group-by", "distinct rows"
WINDOW, TOP = "windows", "top rows"
#: Operations whose results have at most some rows for each key.
GROUPING = (GROUP, DISTINCT, TOP)


@dataclass(frozen=True)
class GroupTasks:
    """Tasks of a helper whose results have at most some rows for each key.

    Parameters
    ----------
    name, token : str
        Keys of the tasks begin with the name, and have the token before the number of the task.
    received : int
        Number of the tasks that receive rows of an exchange.
    results : int
        Number of the partitions of the result.
    most_rows : int
        Most rows of each key.
    """

    name: str
    token: str
    received: int
    results: int
    most_rows: int = 1

    def find_rows_per_key(self, key: Any) -> float | None:
        """Return the most rows of a task's table for each key of all; None for other tasks.

        Tables that are divided into lists have the keys of all tasks that receive rows.

        Examples
        --------
        >>> tasks = GroupTasks("distinct", "0a1b", received=4, results=4)
        >>> tasks.find_rows_per_key("distinct-partial-0a1b-7")
        1.0
        >>> tasks.find_rows_per_key("distinct-0a1b-2")
        0.25
        """
        if not isinstance(key, str) or not key.startswith(self.name):
            return None
        stage, found, _ = key.removeprefix(self.name).partition(f"-{self.token}-")
        if not found or stage.startswith(("-piece", "-group", "-bins", "-all-bins", "-left")):
            return None
        shares = {"": self.results, "-table": self.results, "-merge-received": self.received}
        return self.most_rows / shares.get(stage, 1)


@dataclass(frozen=True)
class KeyedTable:
    """A table of an operation, and the keys by which its rows are handled.

    Parameters
    ----------
    operation : str
        What is done with the key.
    table : expression
        The table.
    keys : tuple
        Names of columns, or expressions.
    receivers : int or None
        Number of tasks of which one gets all rows of a key; 0 if none does. None if it is that of
        the output partitions of Dask's shuffles.
    is_divided : bool
        Whether the rows of a frequent key are divided among tasks.
    groups : GroupTasks or None
        Tasks whose results have at most some rows for each key.
    """

    operation: str
    table: Any
    keys: tuple[Any, ...]
    receivers: int | None = None
    is_divided: bool = False
    groups: GroupTasks | None = None


@dataclass(frozen=True)
class HelperStep:
    """Call of a helper.

    Parameters
    ----------
    tables : tuple of KeyedTable
        Its tables, with their keys.
    columns : mapping
        Name of a column of the result whose values are unchanged -> expression and name of the
        column from which it has them.
    has_all_rows : bool
        Whether the result has all rows of its table, each once.
    """

    tables: tuple[KeyedTable, ...]
    columns: Mapping[Any, tuple[Any, Any]]
    has_all_rows: bool = False


#: Name of the expression of a helper's result -> its step.
_STEPS: dict[str, HelperStep] = {}


def register_step(df: Any, step: HelperStep) -> None:
    """Register the call of a helper that has returned a collection."""
    name = df.expr._name
    _STEPS[name] = step
    weakref.finalize(df.expr, _STEPS.pop, name, None)


def register_keys(
    df: Any, table: KeyedTable, columns: Iterable[Any], *, has_all_rows: bool = False
) -> None:
    """Register a helper with one table; ``columns`` have the names and values of the table."""
    unchanged = {name: (table.table, name) for name in columns}
    register_step(df, HelperStep((table,), unchanged, has_all_rows))


def register_join(
    df: Any,
    sides: Sequence[KeyedTable],
    suffixes: Sequence[str],
    *,
    common: Sequence[Any],
    selects: bool = False,
) -> None:
    """Register a join.

    ``common`` are the columns of both sides that the result has once, with the values of the left
    one; ``selects`` is whether it has rows of the left side only.
    """
    left, right = sides
    names = [set(side.table.columns) for side in sides]
    columns: dict[Any, tuple[Any, Any]] = {}
    for side, suffix in ((right, suffixes[1]), (left, suffixes[0])):
        if side is right and selects:
            continue
        for name in side.table.columns:
            is_renamed = not selects and name in names[0] & names[1] and name not in common
            columns[name + suffix if is_renamed else name] = (side.table, name)
    if selects:  # its rows are distinct keys
        right = replace(right, receivers=0, is_divided=False)
    register_step(df, HelperStep((left, right), columns))


def find_step(expr: Any) -> HelperStep | None:
    """Return the helper whose result an expression is; None if it is not that of a helper."""
    return _STEPS.get(expr._name)
