"""Units of a task graph: what one thread does to one partition, and classes of equal units.

Chains such as ``read``, ``getitem``, ``assign`` are several tasks in Dask, whose results are often
views of each other. They are one unit here: it is run and measured as a whole. A unit ends where a
task has inputs of several units, and where the result of a task goes to several tasks of one layer.

Only names and dependencies of tasks are used, so that small graphs with known answers test it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any

from dask.utils import key_split

from hyperplane.guard.graph_structure import group_of

Key = Any
#: Levels of a reduction that are separate classes; tasks beyond it, as those of a cumulative sum,
#: of which each depends on the one before, are in the last one.
MAX_LEVEL = 6


@dataclass(frozen=True)
class Unit:
    """Tasks that one thread runs one after the other.

    Parameters
    ----------
    members : tuple
        Keys of the tasks, in the order of their execution.
    inputs : tuple
        Keys of results of other units that the tasks need.
    outputs : tuple
        Keys of the tasks whose results other units or the caller need.
    dependencies : tuple of int
        Numbers of the units that have the inputs, without duplicates.
    kind : int
        Number of the class of the unit.
    """

    members: tuple[Key, ...]
    inputs: tuple[Key, ...]
    outputs: tuple[Key, ...]
    dependencies: tuple[int, ...]
    kind: int


@dataclass(frozen=True)
class UnitGraph:
    """Units of a graph in topological order, and the names of their classes."""

    units: tuple[Unit, ...]
    unit_of: Mapping[Key, int]
    kinds: tuple[str, ...]

    def members_of(self, kind: int) -> list[int]:
        """Return the numbers of the units of a class."""
        return [number for number, unit in enumerate(self.units) if unit.kind == kind]


@dataclass(frozen=True)
class TablePiece:
    """Piece of a table that a shuffle has divided.

    Parameters
    ----------
    number : int
        Number of the piece.
    outputs : int
        Number of the output partitions of the shuffle.
    stage, base : int
        A shuffle of many partitions has several stages, each of which divides by one digit of the
        number of the output partition in a system of this base.
    """

    number: int
    outputs: int
    stage: int = 0
    base: int = 0

    def find_digit(self, output: int) -> int:
        """Return the number of the piece to which the rows of an output partition belong."""
        return output // self.base**self.stage % self.base if self.base else output


def divide_graph(
    dependencies: Mapping[Key, Iterable[Key]],
    targets: Collection[Key],
    separate: Collection[Key] = (),
) -> UnitGraph:
    """Divide a graph into units and find classes of equal units.

    Parameters
    ----------
    dependencies : mapping
        Keys of all tasks, with the keys that they depend on.
    targets : collection
        Keys of the results that the caller needs.
    separate : collection
        Keys of tasks that are units by themselves, as barriers of a shuffle.

    Examples
    --------
    A table of two partitions is read, filtered and summed up:

    >>> graph = {("read", 0): [], ("read", 1): [], ("sum", 0): [("keep", 0), ("keep", 1)]}
    >>> graph |= {("keep", part): [("read", part)] for part in range(2)}
    >>> divided = divide_graph(graph, [("sum", 0)])
    >>> [unit.members for unit in divided.units if unit.dependencies == ()]
    [(('read', 0), ('keep', 0)), (('read', 1), ('keep', 1))]
    >>> divided.kinds
    ('read, keep', 'sum')
    """
    # Sorted, so that the same units are sampled in each process: sets of names have another order
    # in each.
    depends = {key: frozenset(dependencies[key]) for key in sorted(dependencies, key=_sort_key)}
    sorter = TopologicalSorter(
        {key: sorted(needed, key=_sort_key) for key, needed in depends.items()}
    )
    order = list(sorter.static_order())
    spreading = _find_spreading(depends)
    separate = frozenset(separate)
    unit_of: dict[Key, int] = {}
    members: list[list[Key]] = []
    for key in order:
        needed = depends[key]
        of_inputs = {unit_of[other] for other in needed}
        if len(of_inputs) == 1 and key not in separate and not needed & (spreading | separate):
            unit_of[key] = of_inputs.pop()
            members[unit_of[key]].append(key)
        else:
            unit_of[key] = len(members)
            members.append([key])
    return _classify(members, unit_of, depends, frozenset(targets))


def _sort_key(key: Key) -> tuple[str, list[tuple[bool, Any]]]:
    """Return what sorts the keys of a layer by the numbers of their partitions."""
    if isinstance(key, tuple) and key:
        numbers = [each if isinstance(each, int) else str(each) for each in key[1:]]
        return str(key[0]), [(isinstance(each, str), each) for each in numbers]
    return str(key), []


def _find_place(key: Key) -> Hashable:
    """Return the layer of a task, and which of its coordinates are between whole numbers.

    In the layers with which Dask takes the borders of blocks for their neighbors, a border has such
    coordinates. It is much smaller than a block.
    """
    numbers = key[1:] if isinstance(key, tuple) else ()
    fractions = tuple(round(each % 1, 1) if isinstance(each, float) else 0.0 for each in numbers)
    return group_of(key), fractions if any(fractions) else ()


def _find_spreading(depends: Mapping[Key, frozenset[Key]]) -> set[Key]:
    """Return the tasks whose result goes to several tasks of one layer."""
    seen: set[tuple[Key, str]] = set()
    spreading: set[Key] = set()
    for key, needed in depends.items():
        layer = group_of(key)
        for other in needed:
            if (other, layer) in seen:
                spreading.add(other)
            seen.add((other, layer))
    return spreading


def _classify(
    members: list[list[Key]],
    unit_of: dict[Key, int],
    depends: Mapping[Key, frozenset[Key]],
    targets: frozenset[Key],
) -> UnitGraph:
    inputs: list[dict[Key, None]] = [{} for _ in members]
    outputs: list[dict[Key, None]] = [{} for _ in members]
    for number, keys in enumerate(members):
        for key in keys:
            if key in targets:
                outputs[number][key] = None
            for other in sorted(depends[key], key=_sort_key):
                if unit_of[other] != number:
                    inputs[number][other] = None
                    outputs[unit_of[other]][other] = None
    numbers: dict[Hashable, int] = {}
    names: list[str] = []
    kinds: list[int] = []
    levels: list[int] = []
    layers: list[frozenset[tuple[Hashable, int]]] = []
    # A unit has a larger number than those it depends on: it begins after their last needed task.
    order = _sort_units(members, inputs, unit_of)
    place = {old: new for new, old in enumerate(order)}
    units: list[Unit] = []
    for old in order:
        of_layers = frozenset(Counter(map(_find_place, members[old])).items())
        needed = sorted({place[unit_of[key]] for key in inputs[old]})
        same = [levels[other] + 1 for other in needed if layers[other] == of_layers]
        level = min(max(same, default=0), MAX_LEVEL)
        others = frozenset(kinds[other] for other in needed if layers[other] != of_layers)
        signature = (of_layers, level, others)
        if signature not in numbers:
            numbers[signature] = len(names)
            names.append(_name(members[old], level))
        kinds.append(numbers[signature])
        levels.append(level)
        layers.append(of_layers)
        units.append(
            Unit(
                tuple(members[old]),
                tuple(inputs[old]),
                tuple(outputs[old]),
                tuple(needed),
                kinds[-1],
            )
        )
    renumbered = {key: place[number] for key, number in unit_of.items()}
    return UnitGraph(tuple(units), renumbered, tuple(names))


def _sort_units(
    members: list[list[Key]], inputs: list[dict[Key, None]], unit_of: Mapping[Key, int]
) -> list[int]:
    sorter = TopologicalSorter(
        {number: sorted({unit_of[key] for key in inputs[number]}) for number in range(len(members))}
    )
    return list(sorter.static_order())


def _name(keys: list[Key], level: int) -> str:
    """Return the operations of a unit; of long ones the first and the last two."""
    names = list(dict.fromkeys(str(key_split(key)) for key in keys))
    if len(names) > 4:
        names = [names[0], "...", *names[-2:]]
    return ", ".join(names) + (f" (level {level + 1})" if level else "")


def find_leaves(
    graph: UnitGraph, beginnings: Collection[int], constants: Collection[int] = ()
) -> list[int]:
    """Return for each unit the bits of the independent pieces of data that are in its inputs.

    A unit without dependencies has a piece of data, and so have the units in ``beginnings``, as
    those that take a partition out of a shuffle. ``constants`` are no data, and units that depend
    on nothing else are like those without dependencies.
    """
    bits: list[int] = []
    pieces = 0
    for number, unit in enumerate(graph.units):
        union = 0
        if number not in beginnings:
            for other in unit.dependencies:
                union |= bits[other]
        if not union and number not in constants:
            union = 1 << pieces
            pieces += 1
        bits.append(union)
    return bits
