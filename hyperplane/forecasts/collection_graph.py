"""The graph of a collection as a cluster would run it, with what its tasks read and write."""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dask
from dask.core import flatten
from dask.order import order
from dask.sizeof import sizeof
from dask.utils import key_split

from hyperplane.core.dask_internals.tasks import (
    DataNode,
    FinalizeCompute,
    convert_legacy_graph,
    cull,
)
from hyperplane.forecasts.model import GraphInfo
from hyperplane.forecasts.records import KeyColumns, SampleRequest, SampleTask
from hyperplane.forecasts.redirected_tasks import find_starters, redirect
from hyperplane.forecasts.sample_plan import SampleStep
from hyperplane.forecasts.source_files import find_source_files, measure_files
from hyperplane.forecasts.task_units import Key, TablePiece, Unit, UnitGraph, divide_graph

#: Functions of Dask that write files or other stores, by their names, besides all whose names
#: contain "write". They would write to the target while they are sampled;
#: ToParquetFunctionWrapper, and tasks of hyperplane.save, can be directed to another folder.
_WRITERS = {
    "_to_csv_chunk", "to_csv_chunk", "_to_textfiles_chunk", "to_textfiles", "store_chunk",
    "load_store_chunk", "_to_sql_chunk", "_extra_deps", "_pd_to_hdf", "to_orc", "to_avro",
    "store_block",
}  # fmt: skip
#: Parts of the names of tasks of shuffles that are not peer-to-peer ones.
_ROW_SHUFFLES = ("taskshuffle", "diskshuffle", "simpleshuffle")
#: Name of the function that divides a partition in a shuffle with tasks.
_DIVIDING = "_shuffle_group"
#: Most bytes of a value in the graph that is not replaced by another one of its class.
_SMALL_VALUE = 2**20
#: Name of the method that joins pieces of the tables of hyperplane.dataframe.join, and the number
#: of its arguments, of which the second is the number of the piece in each list.
_RECEIVING, _ARGUMENTS = "ExchangeJoin.join_pieces", 6
#: Functions that take pieces of a table for tasks of other processes.
_TAKING = {"_take_piece", "_take_pieces", "take_movable_piece"}
#: Depth to which arguments of a task are searched for paths.
_DEPTH = 10
#: Most items of one argument that are searched.
_ITEMS = 200


@dataclass(frozen=True)
class CollectionGraph:
    """Tasks of a collection, their units, and what the model needs of them.

    ``unmeasured`` is the number of files of object stores whose size is not known. If there are
    any, no file of an object store has a weight. ``starters`` are tasks that begin a save, which
    are in no unit.
    """

    tasks: Mapping[Key, Any]
    units: UnitGraph
    info: GraphInfo
    shuffles: Mapping[str, Any]
    shuffle_inputs: Mapping[str, int]
    read_bytes: int
    unmeasured: int = 0
    starters: Mapping[Key, Any] = field(default_factory=dict)


def materialize(collection: Any, settings: Mapping[str, Any]) -> CollectionGraph:
    """Return the graph that ``compute`` on a cluster would run.

    Parameters
    ----------
    collection : Dask collection
        A dataframe, array, bag or delayed object.
    settings : mapping
        Dask settings of the client that change the graph, as the method of shuffles.
    """
    with dask.config.set(settings):
        expression = FinalizeCompute(dask.base.collections_to_expr(collection)).optimize()
        keys = list(flatten(expression.__dask_keys__()))
        graph: dict[Key, Any] = cull(convert_legacy_graph(expression.__dask_graph__()), keys)
    barriers, starters = _find_barriers(graph), find_starters(graph)
    dependencies = {
        key: node.dependencies - starters.keys()
        for key, node in graph.items()
        if key not in starters
    }
    if not graph.keys() >= frozenset().union(*dependencies.values()):
        raise ValueError("results of the graph are on a cluster; forecast it before persist()")
    units = divide_graph(dependencies, keys, separate=barriers)
    priorities = order(graph)
    first = [min(priorities[key] for key in unit.members) for unit in units.units]
    weights, read_bytes, unmeasured = _weigh_sources(units, graph)
    of_units = {units.unit_of[key]: (name,) for key, name in barriers.items()}
    receivers, taken = _find_receivers(units, graph)
    info = GraphInfo(
        targets=tuple(sorted({units.unit_of[key] for key in keys})),
        priorities=tuple(int(each) for each in first),
        weights=weights,
        takes=_find_takes(units, graph, barriers),
        barriers=of_units,
        splits=_find_splits(units, graph),
        constants=_find_constants(units, graph),
        receivers=receivers,
        taken=taken,
    )
    specs = {name: graph[key].spec for key, name in barriers.items()}
    inputs = {name: len(graph[key].dependencies) for key, name in barriers.items()}
    return CollectionGraph(graph, units, info, specs, inputs, read_bytes, unmeasured, starters)


def has_row_shuffles(graph: CollectionGraph) -> bool:
    """Return whether rows are shuffled, so that the graph depends on the method of shuffles."""
    # Those of chunks have another setting.
    peer_to_peer = any(not hasattr(spec, "new") for spec in graph.shuffles.values())
    names = {str(key_split(key)) for key in graph.tasks}
    return peer_to_peer or any(method in name for name in names for method in _ROW_SHUFFLES)


def has_exchanges(graph: CollectionGraph) -> bool:
    """Return whether tasks of this package exchange rows between processes."""
    first = {unit.kind: unit.members[0] for unit in graph.units.units}
    functions = (each for key in first.values() for each in _functions(graph.tasks[key]))
    return any(getattr(each, "__name__", "") in _TAKING for each in functions)


def _find_barriers(graph: Mapping[Key, Any]) -> dict[Key, str]:
    """Return the barriers of peer-to-peer shuffles with the IDs of these."""
    named = [key for key in graph if isinstance(key, str) and key.startswith("shuffle-barrier-")]
    if not named:
        return {}
    from hyperplane.core.dask_internals.shuffles import id_from_key

    found = {key: id_from_key(key) for key in named}
    return {key: str(name) for key, name in found.items() if name is not None}


def _find_takes(
    units: UnitGraph, graph: Mapping[Key, Any], barriers: Mapping[Key, str]
) -> dict[int, tuple[tuple[str, int, int], ...]]:
    takes: dict[int, tuple[tuple[str, int, int], ...]] = {}
    counts: dict[str, int] = {}
    for number, unit in enumerate(units.units):
        for key in unit.members:
            names = sorted(barriers[each] for each in graph[key].dependencies if each in barriers)
            if not names:
                continue
            barrier = _barrier_of(names[0], barriers)
            spec = graph[barrier].spec
            partition = _partition_number(_find_inner_key(graph[key], barrier), spec)
            for name in names:
                if name not in counts:
                    counts[name] = len(list(spec.output_partitions))
            takes[number] = tuple((name, partition, counts[name]) for name in names)
    return takes


def _find_splits(units: UnitGraph, graph: Mapping[Key, Any]) -> dict[int, TablePiece]:
    """Return the units that take a piece of a divided table.

    These are of shuffles with tasks. Dask puts the rows of a partition in the order of the outputs,
    and each piece is a view of this table.
    """
    splits = {}
    for number, unit in enumerate(units.units):
        node = graph[unit.members[0]]
        if len(unit.members) > 1 or getattr(node, "func", None) is not operator.getitem:
            continue
        source, index = graph[unit.inputs[0]], node.args[-1]
        name = getattr(getattr(source, "func", None), "__name__", "")
        if name == _DIVIDING and isinstance(index, int):
            *_, stage, base, outputs, _, _ = source.args
            splits[number] = TablePiece(index, outputs, stage, base)
    return splits


def _find_constants(units: UnitGraph, graph: Mapping[Key, Any]) -> frozenset[int]:
    """Return the units whose result is a small value in the graph, such as numbers of rows."""
    found = set()
    for number, unit in enumerate(units.units):
        node = graph[unit.members[0]]
        is_value = len(unit.members) == 1 and isinstance(node, DataNode)
        if is_value and sizeof(node.value) <= _SMALL_VALUE:
            found.add(number)
    return frozenset(found)


def _find_receivers(
    units: UnitGraph, graph: Mapping[Key, Any]
) -> tuple[frozenset[int], frozenset[int]]:
    """Return the units that join pieces of tables that this package has divided into lists.

    And those that take a piece out of a list for them, as in exchanges through files between
    processes. Not receivers of lists that were made of those of several tables, of which a sample
    would have some several times.
    """
    found: set[int] = set()
    taken: set[int] = set()
    for number, unit in enumerate(units.units):
        for node in _iterate_inner([graph[key] for key in unit.members]):
            function, *arguments = getattr(node, "args", None) or (None,)
            if len(arguments) != _ARGUMENTS or not any(
                getattr(each, "__qualname__", "") == _RECEIVING for each in _functions(function)
            ):
                continue
            taking = _find_taking(units, graph, unit) if arguments[1] is None else set()
            if taking is not None:
                found.add(number)
                taken |= taking
    return frozenset(found), frozenset(taken)


def _find_taking(units: UnitGraph, graph: Mapping[Key, Any], receiver: Unit) -> set[int] | None:
    """Return the units that take the pieces of a receiver; None if they cannot be replaced."""
    taking: set[int] = set()
    for number in receiver.dependencies:
        unit = units.units[number]
        arguments: tuple[Any, ...] = getattr(graph[unit.members[0]], "args", ()) or (None,)
        # A task that takes a piece has a list and a number as arguments.
        if len(unit.members) > 1 or len(unit.inputs) != 1 or not isinstance(arguments[-1], int):
            continue
        source = units.units[unit.dependencies[0]]
        kinds = [units.units[other].kind for other in source.dependencies]
        if len(kinds) > len(set(kinds)):
            return None
        taking.add(number)
    return taking or None


def _iterate_inner(nodes: Iterable[Any]) -> Iterator[Any]:
    """Yield tasks, and those of which they were fused."""
    for node in nodes:
        yield node
        inner = node.args[0] if getattr(node, "args", ()) else None
        if isinstance(inner, Mapping):
            yield from _iterate_inner(inner.values())


def _barrier_of(name: str, barriers: Mapping[Key, str]) -> Key:
    return next(key for key, each in barriers.items() if each == name)


def _find_inner_key(node: Any, barrier: Key) -> Key:
    """Return the key of the task that needs a barrier, also if others were fused with it."""
    inner = node.args[0] if getattr(node, "args", ()) else None
    if isinstance(inner, Mapping):
        for each in inner.values():
            if barrier in getattr(each, "dependencies", ()):
                return _find_inner_key(each, barrier)
    return node.key


def _partition_number(key: Key, spec: Any) -> int:
    """Return the number of the output partition of a task; of a chunk its place in all chunks."""
    index = key[1:]
    if not hasattr(spec, "new"):
        return int(index[0])
    number = 0
    for place, axis in zip(index[-len(spec.new) :], spec.new, strict=True):
        number = number * len(axis) + int(place)
    return number


def find_writers(graph: Mapping[Key, Any]) -> list[str]:
    """Return the names of functions in a graph that write, and cannot write elsewhere."""
    found = set()
    for node in graph.values():
        for function in _functions(node):
            name = getattr(function, "__name__", "")
            module = getattr(function, "__module__", None) or ""
            is_writer = name in _WRITERS or "write" in name
            if is_writer and module.partition(".")[0] in ("dask", "distributed"):
                found.add(name)
    return sorted(found)


def _functions(value: Any, depth: int = _DEPTH) -> Iterator[Any]:
    """Yield the functions of a task, also those that it passes to another function."""
    if depth <= 0:
        return
    if isinstance(value, (list, tuple, dict)):
        items = value.values() if isinstance(value, dict) else value
        for item in list(items)[:_ITEMS]:
            yield from _functions(item, depth - 1)
        return
    function = getattr(value, "func", None)
    if function is not None or hasattr(value, "dependencies"):
        for inner in (function, getattr(value, "args", ()), getattr(value, "kwargs", None)):
            yield from _functions(inner, depth - 1)
    if isinstance(value, functools.partial):
        yield from _functions([value.func, *value.args], depth - 1)
    if callable(value) and not isinstance(value, type):
        yield value


def _weigh_sources(units: UnitGraph, graph: Mapping[Key, Any]) -> tuple[dict[int, float], int, int]:
    """Return the bytes of the files that units without inputs read, their sum, and those unknown.

    The last is the number of files of object stores without a size.
    """
    files = {
        number: set().union(*(find_source_files(graph[key]) for key in unit.members))
        for number, unit in enumerate(units.units)
        if not unit.dependencies
    }
    uses = Counter(file for found in files.values() for file in found)
    measured = measure_files(uses.keys())
    unknown = sum(size is None for size in measured.values())
    # Units without a weight are taken to be as large as the sampled ones; with the size of some of
    # their files only, they would be taken to be smaller.
    sizes = {
        file: 0 if size is None or (unknown and file.system is not None) else size
        for file, size in measured.items()
    }
    # Blocks of one file share its bytes.
    weights = {
        number: sum(sizes[file] / uses[file] for file in found) for number, found in files.items()
    }
    known = {number: weight for number, weight in weights.items() if weight}
    return known, sum(sizes.values()), unknown


def make_request(
    graph: CollectionGraph,
    steps: list[SampleStep],
    folder: str,
    config: Mapping[str, Any],
    keys: Sequence[KeyColumns] = (),
    budget: float = 0.05,
) -> SampleRequest:
    """Return the sample for the process that runs it; files are written to a folder."""
    made = []
    sources = {
        graph.units.units[number].inputs[0]: split.outputs
        for number, split in graph.info.splits.items()
    }
    for step in steps:
        unit = graph.units.units[step.unit]
        takes = graph.info.takes.get(step.unit, ())
        divided = next((key for key in unit.outputs if key in sources), None)
        made.append(
            SampleTask(
                members=tuple(
                    (key, redirect(graph.tasks[key], folder, graph.starters))
                    for key in unit.members
                ),
                inputs=step.inputs,
                outputs=unit.outputs,
                takes=tuple((name, partition / count) for name, partition, count in takes),
                pieces=step.pieces,
                most_pieces=step.most_pieces,
                divided=divided,
                outputs_of_all=sources.get(divided, 0),
                rotated=step.rotated,
                taken={
                    key: graph.tasks[key]
                    for key in step.rotated
                    if graph.units.unit_of[key] in graph.info.taken
                },
            )
        )
    return SampleRequest(
        tuple(made), graph.shuffles, graph.shuffle_inputs, config, tuple(keys), budget, folder
    )
