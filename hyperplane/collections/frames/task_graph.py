"""Dask tasks of a helper: one per partition, then a tree reduction or an exchange."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import polars as pl
from dask.delayed import Delayed

from hyperplane.collections.frames.kernels import polars_kernel as kernel
from hyperplane.collections.frames.kernels.table_files import (
    join_filed_tables,
    take_movable_piece,
    write_tables,
)
from hyperplane.collections.frames.task_errors import run_task
from hyperplane.core.active_cluster import (
    count_processes,
    count_threads,
    get_memory_per_thread,
    has_one_process,
)
from hyperplane.core.dask_internals.tasks import Alias, DependenciesMapping, List, Task, TaskRef
from hyperplane.formats.partition_sizes import find_shard_bounds

#: Maximum tables that one task combines.
FAN_IN = 16
#: Maximum tables of an exchange, which has a task for each pair of table and receiver. If there are
#: more, groups of them are joined first.
_MAX_SENDERS = 128
#: Maximum number of input partitions for each receiver of an exchange.
_MAX_PARTITIONS_PER_RECEIVER = 8
#: Assumed bytes of an input partition.
_PARTITION_BYTES = 100_000_000
#: Receivers per thread if most rows are exchanged.
_RECEIVERS_PER_THREAD = 4


class _SharedGraph(dict[Any, Any]):
    """Graph of the tasks of one helper, shared by all its Delayed objects.

    Calling delayed functions merges the graphs of all arguments for each task, which takes minutes
    for an exchange between hundreds of partitions.
    """

    def __init__(self) -> None:
        super().__init__()
        #: Key of a task -> first and last partition of its result, for error messages.
        self.partition_ranges: dict[str, tuple[int, int]] = {}


def make_tasks(
    name: str, token: str, function: Callable[..., Any], argument_lists: Sequence[Sequence[Any]]
) -> list[Delayed]:
    """Return one task for each list of arguments; keys begin with the name of the step.

    An argument may be a task, a list of tasks or any other value. For error messages the graph
    records the partitions of each task: those of its tables, or the partition whose number is the
    position of the task if it has no tables.
    """
    shared_graph = _get_shared_graph(argument_lists)
    delayed = []
    for number, arguments in enumerate(argument_lists):
        key = f"{name}-{token}-{number}"
        ranges = _find_partition_ranges(shared_graph, arguments)
        shared_graph.partition_ranges[key] = (
            (ranges[0][0], ranges[-1][1]) if ranges else (number, number)
        )
        list_ranges = ranges if any(_is_list(value) for value in arguments) else None
        call = partial(run_task, partitions=list_ranges) if list_ranges else run_task
        shared_graph[key] = Task(key, call, function, *map(_make_reference, arguments))
        delayed.append(Delayed(key, shared_graph))
    return delayed


def fuse_inputs(tasks: Sequence[Delayed], shared: Collection[Any] = ()) -> list[Delayed]:
    """Return the tasks such that each computes what no other task uses itself.

    These are the tasks before it, from the last one back to the first that uses the results of
    several tasks, or whose result several tasks use. Otherwise a worker whose scheduler is slow to
    answer computes several inputs, and holds them, before it gets the tasks that use them. The
    graph is a copy without other tasks: other threads may save the same inputs. ``shared`` has keys
    of tasks whose results all tasks use, besides their inputs.
    """
    whole = tasks[0].dask if tasks else {}
    dependencies = DependenciesMapping(dict(whole))
    graph: dict[Any, Any] = {}
    uses: Counter[Any] = Counter()
    remaining = [task.key for task in tasks]
    while remaining:  # not those of earlier calls, which shared graphs have, too
        key = remaining.pop()
        if key in whole and key not in graph:
            graph[key] = whole[key]
            uses.update(dependencies[key])
            remaining += dependencies[key]
    for task in tasks:
        fused = [graph[task.key]]
        while (before := _find_only_input(fused[-1], graph, shared)) and uses[before.key] == 1:
            del graph[before.key]
            fused.append(before)
        graph[task.key] = Task.fuse(*fused)
    return [Delayed(task.key, graph) for task in tasks]


def _find_only_input(node: Any, graph: Mapping[Any, Any], shared: Collection[Any]) -> Any:
    """Return the task whose result is the only one that a task uses, if they can be fused.

    Results of ``shared`` do not count. None for data, futures and the barriers of Dask's shuffles.
    """
    if len(node.dependencies) > 1 + len(shared):
        return None
    inputs = node.dependencies.difference(shared)
    if len(inputs) != 1:
        return None
    (key,) = inputs
    found = graph.get(key)
    if not isinstance(found, (Alias, Task)) or found.block_fusion:
        return None
    if isinstance(found, Alias):  # those of from_delayed have the key of another task
        return None if found.target == key else Alias(key, found.target)
    return found


def _find_partition_ranges(
    shared_graph: _SharedGraph, arguments: Sequence[Any]
) -> tuple[tuple[int, int], ...] | None:
    """Return first and last partition of each table of a task; None if one is unknown.

    The tables are those of the first list of tasks, or else the first argument.
    """
    tables: Any = next((value for value in arguments if _is_list(value)), arguments[:1])
    ranges = [
        shared_graph.partition_ranges.get(table.key) if isinstance(table, Delayed) else None
        for table in tables
    ]
    return None if None in ranges else tuple(ranges)  # type: ignore[arg-type]


def _is_list(value: Any) -> bool:
    """Return whether a value is a list of tasks."""
    return isinstance(value, list) and _is_task(value)


def _get_shared_graph(argument_lists: Sequence[Sequence[Any]]) -> _SharedGraph:
    """Return the graph that all arguments share, or a new one with the graphs of all arguments."""
    graphs: dict[int, Any] = {}
    for arguments in argument_lists:
        for value in arguments:
            for task in (value if isinstance(value, list) else [value]) if _is_task(value) else ():
                graphs[id(task.dask)] = task.dask
    distinct = list(graphs.values())
    if len(distinct) == 1 and isinstance(distinct[0], _SharedGraph):
        return distinct[0]
    shared_graph = _SharedGraph()
    for graph in distinct:
        shared_graph.update(graph)
        if isinstance(graph, _SharedGraph):
            shared_graph.partition_ranges.update(graph.partition_ranges)
    return shared_graph


def _make_reference(value: Any) -> Any:
    if not _is_task(value):
        return value
    if isinstance(value, list):
        return List(*(TaskRef(task.key) for task in value))
    return TaskRef(value.key)


def _is_task(value: Any) -> bool:
    """Return whether a value is a task or a list of tasks."""
    first = value[0] if isinstance(value, list) and value else value
    return isinstance(first, Delayed)


def gather_by_key(
    name: str,
    token: str,
    tables: Sequence[Delayed],
    into: int,
    keys: Sequence[str],
    combine: Callable[[list[Any]], Any],
    max_bytes: int | None = None,
    *,
    shared: bool = False,
) -> list[list[Any]]:
    """Return two arguments for each of ``into`` receivers, those of :func:`concat_pieces`.

    They are tables in the order of the partitions, and None or the number of the piece that the
    receiver takes of each. ``combine`` combines several tables to one. A single receiver gets up to
    ``FAN_IN`` tables, combined by a tree reduction. For several receivers, tables are split by the
    hash of their keys; with ``max_bytes``, the pieces of larger tables are written to files. The
    task that makes a table also splits it, unless the table is ``shared`` with other tasks.
    """
    if into == 1:
        return [[reduce_tree(f"{name}-merge", token, combine, tables), None]]
    split = partial(split_by_key, keys=list(keys), into=into, max_bytes=max_bytes)
    split_tables = make_tasks(f"{name}-split", token, split, [[table] for table in tables])
    if not shared:  # a worker would make and hold, or spill, several tables before it splits one
        for table, task in zip(tables, split_tables, strict=True):
            task.dask[task.key] = Task.fuse(task.dask.pop(table.key), task.dask[task.key])
    if max_bytes is None:
        return [[pieces, None] for pieces in exchange(name, token, split_tables, into, combine)]
    return exchange_files(name, token, split_tables, into, combine)


def split_by_key(
    table: pl.DataFrame, keys: Sequence[str], into: int, max_bytes: int | None
) -> list[Any]:
    """Split a table by the hash of its keys; the pieces of a larger table are in a file."""
    if max_bytes is None or table.estimated_size() <= max_bytes:
        return kernel.split_by_hash(table, keys, into)
    numbers = kernel.hash_rows(table, keys, into).to_numpy()
    return write_tables(kernel.iterate_pieces(table, numbers, into))


def exchange_files(
    name: str,
    token: str,
    split_tables: Sequence[Delayed],
    into: int,
    combine: Callable[[list[Any]], Any] | None = None,
) -> list[list[Any]]:
    """Return two arguments for each receiver of an exchange through files, as gather_by_key does.

    In a single process each receiver reads its pieces of all tables: no task for each piece. For
    several processes, ``combine`` combines the pieces of several tables that are all in memory.
    """
    if has_one_process():
        return [[list(split_tables), number] for number in range(into)]
    join = partial(join_filed_tables, combine=combine)
    pieces = exchange(name, token, split_tables, into, join, take_movable_piece)
    return [[pieces_of_receiver, None] for pieces_of_receiver in pieces]


def exchange_groups(
    name: str, token: str, split_tables: Sequence[Delayed], into: int
) -> list[list[Any]]:
    """Return two arguments for each receiver of an exchange in memory, as gather_by_key does.

    A task takes the pieces of several receivers: there are as many groups of receivers as
    processes, and fewer tasks than pieces. In a single process there are none. The number of groups
    is part of the names: a scheduler that still has tasks of an earlier graph, made with another
    number of processes, must not take them for those of this one.
    """
    groups = min(into, count_processes())
    if has_one_process():
        return [[list(split_tables), number] for number in range(into)]
    bounds = [find_shard_bounds(group, groups, into) for group in range(groups)]
    taken = [
        make_tasks(
            f"{name}-group-{number}-of-{groups}",
            token,
            _take_pieces,
            [[table, *each] for each in bounds],
        )
        for number, table in enumerate(split_tables)
    ]
    return [
        [[tables[group] for tables in taken], receiver - first]
        for group, (first, last) in enumerate(bounds)
        for receiver in range(first, last)
    ]


def reduce_tree(
    name: str, token: str, combine: Callable[[list[Any]], Any], tables: Sequence[Delayed]
) -> list[Delayed]:
    """Combine adjacent tables level by level until at most FAN_IN are left."""
    level = 0
    while len(tables) > FAN_IN:
        groups = [list(tables[i : i + FAN_IN]) for i in range(0, len(tables), FAN_IN)]
        tables = make_tasks(f"{name}-{level}", token, combine, [[group] for group in groups])
        level += 1
    return list(tables)


def exchange(
    name: str,
    token: str,
    split_tables: Sequence[Delayed],
    into: int,
    join: Callable[[list[Any]], Any],
    take: Callable[[list[Any], int], Any] | None = None,
) -> list[list[Delayed]]:
    """Return the pieces of each of ``into`` receivers, in the order of the tables.

    Each of ``split_tables`` is a list of ``into`` pieces of one table. A receiver gets one piece of
    each table; if there are more than ``_MAX_SENDERS`` tables, one piece of each group of tables,
    made by ``join`` from the pieces of its tables. ``take`` takes one piece of a list; by default
    the piece itself.
    """
    if len(split_tables) > _MAX_SENDERS:
        size = -(-len(split_tables) // _MAX_SENDERS)
        groups = [list(split_tables[i : i + size]) for i in range(0, len(split_tables), size)]
        split_tables = make_tasks(
            f"{name}-join", token, _join_split_tables, [[group, join] for group in groups]
        )
    pieces = [
        make_tasks(
            f"{name}-piece-{number}", token, take or _take_piece, [[table, i] for i in range(into)]
        )
        for number, table in enumerate(split_tables)
    ]
    return [list(pieces_of_receiver) for pieces_of_receiver in zip(*pieces, strict=True)]


def _join_split_tables(
    split_tables: list[list[Any]], join: Callable[[list[Any]], Any]
) -> list[Any]:
    """Join the lists of pieces of several tables to one list."""
    return [join(list(pieces)) for pieces in zip(*split_tables, strict=True)]


def choose_receiver_count(partitions: int) -> int:
    """Return the number of receivers of an exchange of small partial tables.

    One per worker process, because Polars uses all threads of its process, but not more than there
    are partitions; more if the data of one receiver would not fit into its memory otherwise.
    """
    return max(
        min(partitions, count_processes()), -(-partitions // _count_partitions_per_receiver())
    )


def choose_row_receiver_count(partitions: int) -> int:
    """Return the number of receivers of an exchange of most rows.

    Four per thread, but at most four per partition: tables that fit into the processor's cache were
    combined in half the time and half the memory. More if :func:`choose_receiver_count` needs more.
    """
    return max(
        min(partitions * _RECEIVERS_PER_THREAD, count_threads() * _RECEIVERS_PER_THREAD),
        choose_receiver_count(partitions),
    )


def _count_partitions_per_receiver() -> int:
    """Return the number of partitions whose rows fit into the memory of a receiver."""
    share = get_memory_per_thread()
    return (
        _MAX_PARTITIONS_PER_RECEIVER
        if share is None
        else max(1, min(_MAX_PARTITIONS_PER_RECEIVER, share // (4 * _PARTITION_BYTES)))
    )


def _take_piece(pieces: list[Any], number: int) -> Any:
    return pieces[number]


def _take_pieces(pieces: list[Any], first: int, last: int) -> list[Any]:
    return pieces[first:last]
