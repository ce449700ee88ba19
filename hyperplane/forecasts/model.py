"""From the records of a sample to the cost of every unit of the full graph.

Units come after those that they need, so that the sizes of their inputs are known: the figures of
their classes are functions of these.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hyperplane.collections.frames.helper_steps import GROUPING
from hyperplane.forecasts.class_model import ClassModel, fit_class
from hyperplane.forecasts.growth import Growth
from hyperplane.forecasts.records import SampleResult, TaskRecord
from hyperplane.forecasts.sample_plan import SampleStep, find_outputs
from hyperplane.forecasts.task_units import TablePiece, Unit, UnitGraph, find_leaves
from hyperplane.forecasts.unit_cost import UnitCost

#: Share by which the number of distinct keys may be counted too low (HyperLogLog of Polars: up to
#: 9 % in measured columns).
_COUNT_ERROR = 0.1
#: Share of an input from which on a result without memory is taken to be all of it.
_MOST = 0.5


@dataclass(frozen=True)
class GraphModel:
    """Cost of all units of a graph, independent of the layout of a cluster.

    Parameters
    ----------
    units : tuple of UnitCost
        One for each unit.
    targets : tuple of int
        Units with results for the caller.
    classes : tuple of ClassModel
        One for each class.
    empty, imported, retained : float
        Memory of a process before its first task, what its first task leaves in it, as imported
        modules, and what it keeps in all besides results.
    cpu : float
        CPU seconds of all units.
    extrapolated : mapping of int to float
        For each class the largest ratio of a unit's pieces of data to those of the sample, of
        classes whose memory grows with them.
    shuffled, written : float
        Bytes that are shuffled, and those of the files that are written.
    library : mapping of int to float
        For each class the bytes that libraries keep after its tasks, of what is retained: each
        thread that runs such a task has them.
    """

    units: tuple[UnitCost, ...]
    targets: tuple[int, ...]
    classes: tuple[ClassModel, ...]
    empty: float
    imported: float
    retained: float
    cpu: float
    extrapolated: Mapping[int, float]
    shuffled: float
    written: float = 0.0
    library: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class GraphInfo:
    """What the model needs of a graph besides its units.

    Parameters
    ----------
    targets : tuple of int
        Units with results for the caller.
    priorities : tuple of int
        Order in which the units start.
    weights : mapping of int to float
        Sizes of the sources of units.
    takes : mapping of int to tuple
        Units that take a partition out of shuffles: ID of the shuffle, number of the partition and
        of all partitions, for each shuffle.
    barriers : mapping of int to tuple of str
        Units that are barriers of shuffles.
    splits : mapping of int to TablePiece
        Units whose result is a piece of a table that their only dependency has divided, which is
        not copied.
    constants : frozenset of int
        Units whose result is a small value in the graph.
    receivers : frozenset of int
        Units that join what they receive of tables that were divided into lists of pieces.
    taken : frozenset of int
        Units that take for a receiver its piece out of such a list.
    """

    targets: tuple[int, ...]
    priorities: tuple[int, ...]
    weights: Mapping[int, float] = field(default_factory=dict)
    takes: Mapping[int, tuple[tuple[str, int, int], ...]] = field(default_factory=dict)
    barriers: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    splits: Mapping[int, TablePiece] = field(default_factory=dict)
    constants: frozenset[int] = frozenset()
    receivers: frozenset[int] = frozenset()
    taken: frozenset[int] = frozenset()


def find_retained(result: SampleResult) -> float:
    """Return the memory that a process has before the last task besides its results.

    The first tasks import modules, and allocators keep some memory. What an earlier task has more
    is a part of results: views of an array whose other parts are released keep all of it.
    """
    last = result.records[-1]
    return max(0.0, float(last.before - result.empty - last.live))


def find_library_memory(
    graph: UnitGraph, steps: Sequence[SampleStep], result: SampleResult
) -> dict[int, float]:
    """Return the memory that libraries keep after the tasks of each class, in their own allocators.

    As Polars, which does not return all that it has freed. The next task of the thread uses it.
    What tables take that all tasks of a process share is not part of it: each process has it once.
    """
    found: dict[int, float] = {}
    most = result.library
    shared = [record.shared for record in result.records]
    if result.repeated is not None:
        shared[0] += result.repeated.shared
    for step, of_all, following in zip(steps, shared, result.records[1:], strict=False):
        if following.library > most:
            kind = graph.units[step.unit].kind
            own = max(0, following.library - most - of_all)
            found[kind] = found.get(kind, 0.0) + own
            most = following.library
    return found


def find_needs(records: Sequence[TaskRecord]) -> list[float]:
    """Return what each task needed besides the process, its modules and earlier results.

    What the process has kept after a task, as modules that the task imported, is not a need. It is
    only known if no results were released meanwhile: those may be views of one array, which count
    several times.
    """
    needs = []
    for number, record in enumerate(records):
        floor = record.before - record.live
        following = records[number + 1] if number + 1 < len(records) else record
        if following.live >= record.live:
            floor = max(floor, following.before - following.live)
        needs.append(max(0.0, float(record.peak - record.live - floor)))
    return needs


def build_model(
    graph: UnitGraph, info: GraphInfo, steps: Sequence[SampleStep], result: SampleResult
) -> GraphModel:
    """Return the cost of every unit of a graph."""
    retained = find_retained(result)
    outputs = info.takes.keys() | info.receivers | find_outputs(graph, info.splits)
    leaves = [bits.bit_count() for bits in find_leaves(graph, outputs, info.constants)]
    by_kind: dict[int, list[tuple[SampleStep, TaskRecord, float]]] = {}
    needs = find_needs(result.records)
    for step, record, need in zip(steps, result.records, needs, strict=True):
        by_kind.setdefault(graph.units[step.unit].kind, []).append((step, record, need))
    classes = tuple(fit_class(by_kind[kind], info.weights) for kind in range(len(graph.kinds)))
    library = find_library_memory(graph, steps, result)
    return _Predictor(graph, info, classes, leaves, result, retained, library).predict()


def find_most_groups(
    result: SampleResult, names: tuple[str, ...] = (), rows_per_key: float = 1.0
) -> tuple[float, bool]:
    """Return the most rows that the result of a group-by can have, and whether it has as many.

    ``names`` are those of its key if it is the result of a helper of this package; that of an
    operation of Dask can be that of any.
    """
    keys = [
        key
        for key in result.keys
        if key.operation in GROUPING
        and (key.names == names if key.receivers is not None else not names)
    ]
    counts = [math.inf if key.distinct is None else key.distinct for key in keys]
    return max(counts, default=math.inf) * rows_per_key, all(key.complete for key in keys)


class _Predictor:
    """Computes the cost of units in topological order, from their inputs."""

    def __init__(
        self,
        graph: UnitGraph,
        info: GraphInfo,
        classes: tuple[ClassModel, ...],
        leaves: Sequence[int],
        result: SampleResult,
        retained: float,
        library: Mapping[int, float],
    ) -> None:
        self.graph, self.info, self.classes = graph, info, classes
        self.leaves, self.result, self.retained = leaves, result, retained
        self.library = library
        self.shuffled: dict[str, float] = {}
        self._outputs_of: dict[int, dict[int, float]] = {}
        self.extrapolated: dict[int, float] = {}
        #: Units with fewer pieces of data than there are, and whether their rows are confirmed.
        self.limits: dict[int, bool] = {}

    def predict(self) -> GraphModel:
        costs: list[UnitCost] = []
        outputs: list[float] = []
        #: Of each result the number of its unit, and its share in the results of the unit.
        results = {
            key: (number, self.classes[unit.kind].find_share(position, len(unit.outputs)))
            for number, unit in enumerate(self.graph.units)
            for position, key in enumerate(unit.outputs)
        }
        cpu = written = 0.0
        for number, unit in enumerate(self.graph.units):
            fitted = self.classes[unit.kind]
            size = self.info.weights.get(number, 0.0) + self._taken(number)
            needed: dict[int, float] = {}
            for key in unit.inputs:
                other, share = results[key]
                size += outputs[other] * share
                needed[other] = needed.get(other, 0.0) + costs[other].output * share
            size = self._find_size(number, fitted, size)
            adds = {name: growth(size) for name, growth in fitted.added.items()}
            for name, added in adds.items():
                self.shuffled[name] = self.shuffled.get(name, 0.0) + added
            if number in self.info.splits:
                outputs.append(size * self._share_of_piece(number))
            else:
                outputs.append(fitted.output(size) * self._share_of_groups(number, fitted, size))
            cpu += fitted.cpu(size)
            written += fitted.written(size) if fitted.written is not None else 0.0
            costs.append(
                UnitCost(
                    kind=unit.kind,
                    priority=self.info.priorities[number],
                    dependencies=unit.dependencies,
                    output=outputs[-1] * (1 - fitted.in_files - fitted.overlaps),
                    transient=fitted.transient(size),
                    seconds=fitted.seconds(size),
                    heap=min(fitted.heap(size), fitted.transient(size)),
                    waiting=fitted.waiting(size),
                    block=fitted.block(size),
                    copied=(1 - fitted.held) / (1 - fitted.overlaps),
                    inputs=tuple(needed.get(other, math.inf) for other in unit.dependencies),
                    is_piece=number in self.info.splits,
                    is_view=number in self.info.splits or self._is_view(unit, outputs),
                    adds=adds,
                    ends=self.info.barriers.get(number, ()),
                    takes=tuple(
                        (name, partition / max(1, count))
                        for name, partition, count in self.info.takes.get(number, ())
                    ),
                )
            )
        return GraphModel(
            tuple(costs),
            self.info.targets,
            self.classes,
            float(self.result.empty),
            max(0.0, float(self.result.records[0].before - self.result.empty)),
            self.retained,
            cpu,
            self.extrapolated,
            sum(self.shuffled.values()),
            written,
            self.library,
        )

    def _is_view(self, unit: Unit, outputs: Sequence[float]) -> bool:
        """Return whether the result of a unit is most of its input, and takes no memory.

        A small part of an array keeps all of it, too, but not for long in measured runs.
        """
        is_view = self.classes[unit.kind].is_view and len(unit.dependencies) == 1
        return is_view and outputs[-1] > _MOST * outputs[unit.dependencies[0]]

    def _taken(self, number: int) -> float:
        """Return the bytes that a unit takes out of shuffles; a frequent key has more."""
        total = 0.0
        for name, partition, count in self.info.takes.get(number, ()):
            shares = self.result.shares.get(name, {})
            even = max(0.0, 1 - sum(shares.values())) / max(1, count)
            total += self.shuffled.get(name, 0.0) * (shares.get(partition, 0.0) + even)
        return total

    def _share_of_piece(self, number: int) -> float:
        """Return the share of the piece of a unit in the table of which it is a part."""
        split, source = self.info.splits[number], self.graph.units[number].dependencies[0]
        outputs = self._find_outputs(source)
        total = sum(outputs.values())
        if not total:
            return 1 / (split.base or split.outputs)
        of_piece = [
            share for output, share in outputs.items() if split.find_digit(output) == split.number
        ]
        return sum(of_piece) / total

    def _find_outputs(self, number: int) -> dict[int, float]:
        """Return the output partitions to which the rows of a divided table go, with their shares.

        In a later stage of a shuffle these are only some: those of the pieces of the table.
        """
        if number not in self._outputs_of:
            unit = self.graph.units[number]
            parts = [other for other in unit.dependencies if other in self.info.splits]
            if parts:
                split = self.info.splits[parts[0]]
                before = self._find_outputs(self.graph.units[parts[0]].dependencies[0])
                found = {
                    output: share
                    for output, share in before.items()
                    if split.find_digit(output) == split.number
                }
            else:
                found = dict(self.classes[unit.kind].pieces)
            self._outputs_of[number] = found
        return self._outputs_of[number]

    def _count_outputs(self, number: int) -> int:
        """Return the number of output partitions of which a unit has one; 0 if it has none."""
        counts = [count for _, _, count in self.info.takes.get(number, ())]
        for other in self.graph.units[number].dependencies:
            if other in self.info.splits:
                split = self.info.splits[other]
                digits = split.base ** (split.stage + 1) if split.base else split.outputs
                counts.append(min(digits, split.outputs))
        return max(counts, default=0)

    def _find_most_groups(self, fitted: ClassModel) -> tuple[float, bool]:
        return find_most_groups(self.result, fitted.group_names, fitted.rows_per_key)

    def _find_size(self, number: int, fitted: ClassModel, inputs: float) -> float:
        """Return the size of a unit: the bytes of its inputs, or the number of pieces of data.

        Of pieces those beyond which a group-by finds no new keys do not count. The units that
        combine its results, which then are smaller than without a limit, have as many.
        """
        limited = [other for other in self.graph.units[number].dependencies if other in self.limits]
        is_confirmed = bool(limited) and all(self.limits[other] for other in limited)
        if not fitted.of_pieces:
            if limited:
                self.limits[number] = is_confirmed
            return inputs
        pieces = float(self.leaves[number])
        most, has_all = self._find_most_groups(fitted)
        size = _limit(fitted, fitted.groups, pieces, most * (1 + _COUNT_ERROR))
        if limited:
            size = min(size, _limit(fitted, fitted.inputs, pieces, inputs))
        if fitted.groups is not None:
            # The sample's growth leads to the number of keys that all files have.
            is_confirmed = has_all and fitted.groups(size) >= (1 - _COUNT_ERROR) * most
        if size < pieces:
            self.limits[number] = is_confirmed
        grows = max(fitted.output.exponent, fitted.transient.exponent) > 0.2
        if grows and fitted.largest and not is_confirmed:
            ratio, kind = size / fitted.largest, self.graph.units[number].kind
            self.extrapolated[kind] = max(ratio, self.extrapolated.get(kind, 0.0))
        return size

    def _share_of_groups(self, number: int, fitted: ClassModel, size: float) -> float:
        """Return the share of the extrapolated rows of an output partition that there can be."""
        count = self._count_outputs(number)
        if fitted.groups is None or fitted.of_pieces or not count:
            return 1.0
        most = self._find_most_groups(fitted)[0] * (1 + _COUNT_ERROR) / count
        return min(1.0, most / max(1.0, fitted.groups(size)))


def _limit(fitted: ClassModel, growth: Growth | None, pieces: float, most: float) -> float:
    """Return the pieces of data with which a figure is the largest that it can be."""
    if growth is None or growth.exponent <= 0 or growth(pieces) <= most:
        return pieces
    limit = growth.at * math.pow(most / growth.value, 1 / growth.exponent)
    return max(fitted.largest, limit)
