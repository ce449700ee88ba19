"""Tasks of a helper: one for each piece, then a tree or an exchange by key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dask._task_spec import List, Task, TaskRef
from dask.delayed import Delayed

from hyperplane.collections.in_use import processes

#: Tables that one task combines.
FAN_IN = 16
#: Pieces that an exchange hands from task to task stay below this; tables are joined before.
_MOST_SENDERS = 128
#: Partitions whose rows one receiver of an exchange can be expected to hold.
_PIECES_EACH = 8


class _Work(dict[Any, Any]):
    """The tasks of one helper, which all its Delayed objects share.

    To call delayed functions would merge the graphs of all arguments once for each task, which
    for an exchange between hundreds of partitions takes minutes.
    """


def tasks(
    name: str, token: str, function: Callable[..., Any], each: Sequence[Sequence[Any]]
) -> list[Delayed]:
    """One task for each tuple of arguments, with keys that say what they do.

    An argument may be a task or a list of tasks; what else it may be is passed as it is.
    """
    work = _work_of(each)
    made = []
    for number, arguments in enumerate(each):
        key = f"{name}-{token}-{number}"
        work[key] = Task(key, function, *map(_referred, arguments))
        made.append(Delayed(key, work))
    return made


def _work_of(each: Sequence[Sequence[Any]]) -> _Work:
    """What the arguments are part of already, or something new with all that they need."""
    graphs: dict[int, Any] = {}
    for arguments in each:
        for value in arguments:
            for task in (value if isinstance(value, list) else [value]) if _is_task(value) else ():
                graphs[id(task.dask)] = task.dask
    found = list(graphs.values())
    if len(found) == 1 and isinstance(found[0], _Work):
        return found[0]
    work = _Work()
    for graph in found:
        work.update(graph)
    return work


def _referred(value: Any) -> Any:
    if not _is_task(value):
        return value
    if isinstance(value, list):
        return List(*(TaskRef(task.key) for task in value))
    return TaskRef(value.key)


def _is_task(value: Any) -> bool:
    first = value[0] if isinstance(value, list) and value else value
    return isinstance(first, Delayed)


def tree(
    name: str, token: str, combine: Callable[[list[Any]], Any], tables: Sequence[Delayed]
) -> list[Delayed]:
    """Combine neighbours, level by level, until one task can take the rest."""
    level = 0
    while len(tables) > FAN_IN:
        groups = [list(tables[i : i + FAN_IN]) for i in range(0, len(tables), FAN_IN)]
        tables = tasks(f"{name}-{level}", token, combine, [[group] for group in groups])
        level += 1
    return list(tables)


def exchange(
    name: str,
    token: str,
    cut: Callable[[Any], list[Any]],
    join: Callable[[list[Any]], Any],
    tables: Sequence[Delayed],
    into: int,
) -> list[list[Delayed]]:
    """Cut every table into pieces by key, and bring the pieces of a kind together.

    Returns
    -------
    list of list of Delayed
        For each of the ``into`` receivers, its pieces in the order of the tables.
    """
    if len(tables) > _MOST_SENDERS:
        size = -(-len(tables) // _MOST_SENDERS)
        groups = [list(tables[i : i + size]) for i in range(0, len(tables), size)]
        tables = tasks(f"{name}-join", token, join, [[group] for group in groups])
    cuts = tasks(f"{name}-cut", token, cut, [[table] for table in tables])
    pieces = [
        tasks(f"{name}-piece-{number}", token, _take, [[one, i] for i in range(into)])
        for number, one in enumerate(cuts)
    ]
    return [list(pieces_of) for pieces_of in zip(*pieces, strict=True)]


def receivers(pieces: int) -> int:
    """Into how many pieces to cut what must be exchanged.

    One for each worker process at least: within a process a kernel uses all threads anyway. And
    enough that each one has to hold only its part of many pieces.
    """
    return max(min(pieces, processes()), -(-pieces // _PIECES_EACH))


def _take(pieces: list[Any], number: int) -> Any:
    return pieces[number]
