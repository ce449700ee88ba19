"""Tasks of a helper: one for each piece, then a tree or an exchange by key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dask._task_spec import List, Task, TaskRef
from dask.delayed import Delayed

from hyperplane.collections.active_cluster import (
    count_processes,
    count_threads,
    get_memory_per_thread,
)
from hyperplane.collections.frames.task_errors import run_task

#: Tables that one task combines.
FAN_IN = 16
#: Tables whose pieces an exchange hands from task to task; of more, pieces are joined before.
_MAX_SENDERS = 128
#: Partitions whose rows one receiver of an exchange can be expected to hold, and their bytes.
_MAX_PARTITIONS_PER_RECEIVER = 8
_PARTITION_BYTES = 100_000_000
#: Receivers for each thread, when most rows move.
_RECEIVERS_PER_THREAD = 4


class _SharedGraph(dict[Any, Any]):
    """The tasks of one helper, which all its Delayed objects share.

    To call delayed functions would merge the graphs of all arguments once for each task, which
    for an exchange between hundreds of partitions takes minutes.

    Attributes
    ----------
    ranges : dict
        Key of a task -> the first and last partition that its result is made of, for errors.
    """

    def __init__(self) -> None:
        super().__init__()
        self.partition_ranges: dict[str, tuple[int, int]] = {}


def make_tasks(
    name: str, token: str, function: Callable[..., Any], each: Sequence[Sequence[Any]]
) -> list[Delayed]:
    """One task for each tuple of arguments, with keys that say what they do.

    An argument may be a task or a list of tasks; what else it may be is passed as it is. Tasks
    whose arguments are no results of this function are taken to be of one partition each.
    """
    work = _get_shared_graph(each)
    made = []
    for number, arguments in enumerate(each):
        key = f"{name}-{token}-{number}"
        ranges = _find_partition_ranges(work, arguments)
        work.partition_ranges[key] = (ranges[0][0], ranges[-1][1]) if ranges else (number, number)
        of_list = ranges if any(_is_list(value) for value in arguments) else None
        call = partial(run_task, partitions=of_list) if of_list else run_task
        work[key] = Task(key, call, function, *map(_make_reference, arguments))
        made.append(Delayed(key, work))
    return made


def _find_partition_ranges(
    work: _SharedGraph, arguments: Sequence[Any]
) -> tuple[tuple[int, int], ...] | None:
    """The partitions that the tables of a task are made of: of a list, or of the first argument."""
    tables: Any = next((value for value in arguments if _is_list(value)), arguments[:1])
    found = [
        work.partition_ranges.get(one.key) if isinstance(one, Delayed) else None for one in tables
    ]
    return None if None in found else tuple(found)  # type: ignore[arg-type]


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and _is_task(value)


def _get_shared_graph(each: Sequence[Sequence[Any]]) -> _SharedGraph:
    """What the arguments are part of already, or something new with all that they need."""
    graphs: dict[int, Any] = {}
    for arguments in each:
        for value in arguments:
            for task in (value if isinstance(value, list) else [value]) if _is_task(value) else ():
                graphs[id(task.dask)] = task.dask
    found = list(graphs.values())
    if len(found) == 1 and isinstance(found[0], _SharedGraph):
        return found[0]
    work = _SharedGraph()
    for graph in found:
        work.update(graph)
        if isinstance(graph, _SharedGraph):
            work.partition_ranges.update(graph.partition_ranges)
    return work


def _make_reference(value: Any) -> Any:
    if not _is_task(value):
        return value
    if isinstance(value, list):
        return List(*(TaskRef(task.key) for task in value))
    return TaskRef(value.key)


def _is_task(value: Any) -> bool:
    first = value[0] if isinstance(value, list) and value else value
    return isinstance(first, Delayed)


def gather_by_key(
    name: str,
    token: str,
    tables: Sequence[Delayed],
    into: int,
    cut: Callable[[Any], list[Any]],
    combine: Callable[[list[Any]], Any],
) -> list[list[Delayed]]:
    """For each of so many results, the few tables that it is made of, in the order of the rows.

    Parameters
    ----------
    cut : callable
        Cuts a table into as many pieces as there are results, by key.
    combine : callable
        Makes one table, smaller if possible, of several.
    """
    if into == 1:
        return [reduce_tree(f"{name}-merge", token, combine, tables)]
    cuts = make_tasks(f"{name}-cut", token, cut, [[table] for table in tables])
    return exchange(name, token, cuts, into, combine)


def reduce_tree(
    name: str, token: str, combine: Callable[[list[Any]], Any], tables: Sequence[Delayed]
) -> list[Delayed]:
    """Combine neighbours, level by level, until one task can take the rest."""
    level = 0
    while len(tables) > FAN_IN:
        groups = [list(tables[i : i + FAN_IN]) for i in range(0, len(tables), FAN_IN)]
        tables = make_tasks(f"{name}-{level}", token, combine, [[group] for group in groups])
        level += 1
    return list(tables)


def exchange(
    name: str,
    token: str,
    cuts: Sequence[Delayed],
    into: int,
    join: Callable[[list[Any]], Any],
) -> list[list[Delayed]]:
    """Bring together pieces of a kind, of tables that are cut into ``into`` of them.

    Returns
    -------
    list of list of Delayed
        For each of the ``into`` receivers, its pieces in the order of the tables.
    """
    if len(cuts) > _MAX_SENDERS:
        size = -(-len(cuts) // _MAX_SENDERS)
        groups = [list(cuts[i : i + size]) for i in range(0, len(cuts), size)]
        cuts = make_tasks(f"{name}-join", token, _join_cuts, [[group, join] for group in groups])
    pieces = [
        make_tasks(f"{name}-piece-{number}", token, _take_piece, [[one, i] for i in range(into)])
        for number, one in enumerate(cuts)
    ]
    return [list(pieces_of) for pieces_of in zip(*pieces, strict=True)]


def _join_cuts(cuts: list[list[Any]], join: Callable[[list[Any]], Any]) -> list[Any]:
    """Several cut tables as one."""
    return [join(list(pieces)) for pieces in zip(*cuts, strict=True)]


def choose_receiver_count(pieces: int) -> int:
    """Into how many pieces to cut what must be exchanged, when its partial tables are small.

    One for each worker process at least: within a process a kernel uses all threads anyway. And
    enough that each one has to hold only its part of many pieces.
    """
    return max(min(pieces, count_processes()), -(-pieces // _partitions_per_receiver()))


def choose_row_receiver_count(pieces: int) -> int:
    """Into how many pieces to cut what must be exchanged, when it is most of the rows.

    Tables that fit into a processor's cache are put together in half the time and half the
    memory, so it is some for each thread.
    """
    return max(
        min(pieces * _RECEIVERS_PER_THREAD, count_threads() * _RECEIVERS_PER_THREAD),
        choose_receiver_count(pieces),
    )


def _partitions_per_receiver() -> int:
    """Pieces of which one receiver holds its part, beside what it makes of them."""
    share = get_memory_per_thread()
    return (
        _MAX_PARTITIONS_PER_RECEIVER
        if share is None
        else max(1, min(_MAX_PARTITIONS_PER_RECEIVER, share // (4 * _PARTITION_BYTES)))
    )


def _take_piece(pieces: list[Any], number: int) -> Any:
    return pieces[number]
