"""Rows of the tables that tasks of helpers return, which have at most some rows for each key."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from hyperplane.forecasts.records import KeyColumns
from hyperplane.forecasts.task_units import Key


class GroupCounter:
    """Counts the rows of the first such table in a step of a sample, on which its memory depends.

    The result of the step may be another one, of further operations.

    Parameters
    ----------
    keys : sequence of KeyColumns
        Keys of helpers, with their tasks.
    """

    def __init__(self, keys: Sequence[KeyColumns]) -> None:
        self._keys = keys
        self.rows = 0
        self.names: tuple[str, ...] = ()
        self.rows_per_key = 1.0

    def count_members(self, members: Iterable[tuple[Key, Any]]) -> tuple[tuple[Key, Any], ...]:
        """Return tasks, of which those of helpers count the rows of their results."""
        return tuple((key, self._count_member(key, node)) for key, node in members)

    def _count_member(self, key: Key, node: Any) -> Any:
        for columns in self._keys if not self.names else ():
            most = columns.groups and columns.groups.find_rows_per_key(key)
            if most:
                self.names, self.rows_per_key = columns.names, most
                return _CountedTask(node, self)
        return node


class _CountedTask:
    """A task whose result is counted."""

    def __init__(self, node: Any, counter: GroupCounter) -> None:
        self._node, self._counter = node, counter

    @property
    def dependencies(self) -> Collection[Key]:
        """Keys of the tasks whose results it needs."""
        found: Collection[Key] = self._node.dependencies
        return found

    def __call__(self, values: Mapping[Key, Any]) -> Any:
        result = self._node(values)
        self._counter.rows = count_rows(result) or 0
        return result


def count_rows(value: Any) -> int | None:
    """Return the rows of a table, or of the tables of a list; None if they are not known.

    As of tables in files.
    """
    if isinstance(value, list):
        rows = [count_rows(each) for each in value]
        return None if None in rows else sum(each or 0 for each in rows)
    table = value.frame if type(value).__name__ == "TypedTable" else value
    return len(table) if hasattr(table, "columns") else None
