"""From the records of a sample to the cost of every unit of the full graph.

For each class of units the bytes of results, transient memory and time are functions of the bytes
of the inputs. Of units that had computed inputs several times, they are functions of the number of
different pieces of data in them: the result of a sum stays as it is, that of a group-by grows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hyperplane.forecasts.growth import Growth, fit_growth
from hyperplane.forecasts.key_columns import GROUPING
from hyperplane.forecasts.records import SampleResult, TaskRecord
from hyperplane.forecasts.sample_plan import SampleStep
from hyperplane.forecasts.simulate import UnitCost
from hyperplane.forecasts.task_units import UnitGraph, find_leaves

#: Share by which the number of distinct keys may be counted too low (HyperLogLog of Polars: up to
#: 9 % in measured columns).
_COUNT_ERROR = 0.1
#: Bytes by which the memory of equal tasks differs.
_NOISE = 5 * 10**6
_NOTHING = Growth(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class ClassModel:
    """What units of one class take.

    Parameters
    ----------
    of_pieces : bool
        Whether the figures depend on the number of pieces of data instead of bytes.
    output, transient, heap, first, seconds, cpu : Growth
        Bytes of the results, bytes of transient memory, those of it that malloc keeps, bytes of the
        first result, and times.
    added : float
        Bytes that a unit adds to shuffles, for each byte of its inputs.
    spread : float
        Largest ratio of the transient memory of two units of the same size.
    largest : float
        Largest size that was sampled.
    has_tables : bool
        Whether the units handle tables.
    groups : Growth or None
        Rows of the results, if these have one row for each key of a group-by.
    written : Growth or None
        Bytes of the files that a unit writes.
    block : Growth
        Bytes of the largest column of a table.
    shares : tuple of float
        Share of each result in the bytes of all results of a unit.
    """

    of_pieces: bool
    output: Growth
    transient: Growth
    heap: Growth
    first: Growth
    seconds: Growth
    cpu: Growth
    added: Mapping[str, Growth] = field(default_factory=dict)
    spread: float = 1.0
    largest: float = 0.0
    has_tables: bool = False
    groups: Growth | None = None
    written: Growth | None = None
    block: Growth = _NOTHING
    shares: tuple[float, ...] = ()

    def find_share(self, position: int, results: int) -> float:
        """Return the share of one of several results in their bytes."""
        return self.shares[position] if results == len(self.shares) else 1 / results


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
    """

    targets: tuple[int, ...]
    priorities: tuple[int, ...]
    weights: Mapping[int, float] = field(default_factory=dict)
    takes: Mapping[int, tuple[tuple[str, int, int], ...]] = field(default_factory=dict)
    barriers: Mapping[int, tuple[str, ...]] = field(default_factory=dict)


def find_retained(result: SampleResult) -> float:
    """Return the memory that a process has before the last task besides its results.

    The first tasks import modules, and allocators keep some memory. What an earlier task has more
    is a part of results: views of an array whose other parts are released keep all of it.
    """
    last = result.records[-1]
    return max(0.0, float(last.before - result.empty - last.live))


def find_heap(record: TaskRecord) -> float:
    """Return the memory that malloc has kept after a task, of that which was no result."""
    return float(max(0, record.after - record.before - sum(record.outputs)))


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
    leaves = [bits.bit_count() for bits in find_leaves(graph, info.takes)]
    by_kind: dict[int, list[tuple[SampleStep, TaskRecord, float]]] = {}
    needs = find_needs(result.records)
    for step, record, need in zip(steps, result.records, needs, strict=True):
        by_kind.setdefault(graph.units[step.unit].kind, []).append((step, record, need))
    classes = tuple(_fit_class(by_kind[kind], info.weights) for kind in range(len(graph.kinds)))
    return _Predictor(graph, info, classes, leaves, result, retained).predict()


def _fit_class(
    samples: Sequence[tuple[SampleStep, TaskRecord, float]], weights: Mapping[int, float]
) -> ClassModel:
    # A second run with as many pieces as the first, because each input has all of them, does not
    # show a growth. The inputs have their true sizes in both.
    of_pieces = len({len(step.leaves) for step, *_ in samples if step.inputs}) > 1 and any(
        step.narrow for step, *_ in samples
    )
    sizes = [
        float(
            len(step.leaves)
            if of_pieces
            else weights.get(step.unit, 0.0) + record.inputs + record.taken
        )
        for step, record, _ in samples
    ]
    records = [record for _, record, _ in samples]
    # With a single piece of data several times, the inputs can be smaller than with all of them.
    most = max(record.inputs for record in records)
    scales = [most / each.inputs if of_pieces and each.inputs else 1.0 for each in records]
    needs = [need * scale for (_, _, need), scale in zip(samples, scales, strict=True)]
    heaps = [find_heap(each) * scale for each, scale in zip(records, scales, strict=True)]
    wide = [
        (size, need)
        for (step, *_), size, need in zip(samples, sizes, needs, strict=True)
        if not step.narrow
    ]
    at = max(sizes)
    scaled = [_NOISE + (need * at / size if size else need) for size, need in wide]
    outputs = [float(sum(record.outputs)) for record in records]
    names = set().union(*(record.added for record in records))
    return ClassModel(
        of_pieces=of_pieces,
        output=fit_growth(list(zip(sizes, outputs, strict=True))),
        transient=fit_growth(list(zip(sizes, needs, strict=True)), largest=True),
        # The largest: without other data above it, malloc returns a large end of its memory.
        heap=fit_growth(list(zip(sizes, heaps, strict=True)), largest=True),
        block=fit_growth([(x, each.block) for x, each in zip(sizes, records, strict=True)]),
        # A thread that has read a partition begins to read the next one, until the scheduler has
        # sent the tasks that follow. Both partitions are then in memory.
        first=fit_growth(
            [
                (x, 0.0 if step.inputs else each.first)
                for x, (step, each, _) in zip(sizes, samples, strict=True)
            ]
        ),
        seconds=fit_growth([(x, each.seconds) for x, each in zip(sizes, records, strict=True)]),
        cpu=fit_growth([(x, each.cpu) for x, each in zip(sizes, records, strict=True)]),
        added={
            name: fit_growth(
                [(x, each.added.get(name, 0)) for x, each in zip(sizes, records, strict=True)]
            )
            for name in names
        },
        spread=max(scaled) / min(scaled),
        largest=max(sizes),
        has_tables=any(record.has_tables for record in records),
        groups=fit_growth([(x, each.groups) for x, each in zip(sizes, records, strict=True)])
        if all(record.groups for record in records)
        else None,
        written=fit_growth([(x, each.written) for x, each in zip(sizes, records, strict=True)])
        if any(record.written for record in records)
        else None,
        shares=_find_shares([record.outputs for record in records]),
    )


def _find_shares(outputs: Sequence[Sequence[int]]) -> tuple[float, ...]:
    """Return the share of each result in all, of the units that have the most results."""
    most = max(map(len, outputs))
    equal = [sizes for sizes in outputs if len(sizes) == most]
    totals = [sum(sizes) for sizes in zip(*equal, strict=True)]
    return tuple(total / sum(totals) for total in totals) if sum(totals) else ()


def find_most_groups(result: SampleResult) -> tuple[float, bool]:
    """Return the most rows that the result of a group-by can have, and whether it has as many."""
    keys = [key for key in result.keys if key.operation in GROUPING]
    counts = [math.inf if key.distinct is None else key.distinct for key in keys]
    return max(counts, default=math.inf), all(key.complete for key in keys)


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
    ) -> None:
        self.graph, self.info, self.classes = graph, info, classes
        self.leaves, self.result, self.retained = leaves, result, retained
        self.most_groups, self.has_all_groups = find_most_groups(result)
        self.shuffled: dict[str, float] = {}
        self.extrapolated: dict[int, float] = {}

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
            for key in unit.inputs:
                other, share = results[key]
                size += outputs[other] * share
            if fitted.of_pieces:
                size = self._limit_pieces(fitted, float(self.leaves[number]))
                self._note_extrapolation(unit.kind, fitted, size)
            adds = {name: growth(size) for name, growth in fitted.added.items()}
            for name, added in adds.items():
                self.shuffled[name] = self.shuffled.get(name, 0.0) + added
            outputs.append(fitted.output(size) * self._share_of_groups(number, fitted, size))
            cpu += fitted.cpu(size)
            written += fitted.written(size) if fitted.written is not None else 0.0
            costs.append(
                UnitCost(
                    kind=unit.kind,
                    priority=self.info.priorities[number],
                    dependencies=unit.dependencies,
                    output=outputs[-1],
                    transient=fitted.transient(size),
                    seconds=fitted.seconds(size),
                    heap=min(fitted.heap(size), fitted.transient(size)),
                    first=fitted.first(size),
                    block=fitted.block(size),
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
        )

    def _taken(self, number: int) -> float:
        """Return the bytes that a unit takes out of shuffles; a frequent key has more."""
        total = 0.0
        for name, partition, count in self.info.takes.get(number, ()):
            shares = self.result.shares.get(name, {})
            even = max(0.0, 1 - sum(shares.values())) / max(1, count)
            total += self.shuffled.get(name, 0.0) * (shares.get(partition, 0.0) + even)
        return total

    def _limit_pieces(self, fitted: ClassModel, pieces: float) -> float:
        """Return the number of pieces of data beyond which a group-by finds no new keys."""
        groups = fitted.groups
        most = self.most_groups * (1 + _COUNT_ERROR)
        if groups is None or groups.exponent <= 0 or groups(pieces) <= most:
            return pieces
        limit = groups.at * math.pow(most / groups.value, 1 / groups.exponent)
        return max(fitted.largest, limit)

    def _share_of_groups(self, number: int, fitted: ClassModel, size: float) -> float:
        """Return the share of the extrapolated rows of an output partition that there can be."""
        counts = [count for _, _, count in self.info.takes.get(number, ())]
        if fitted.groups is None or fitted.of_pieces or not counts:
            return 1.0
        most = self.most_groups * (1 + _COUNT_ERROR) / max(1, *counts)
        return min(1.0, most / max(1.0, fitted.groups(size)))

    def _note_extrapolation(self, kind: int, fitted: ClassModel, size: float) -> None:
        grows = max(fitted.output.exponent, fitted.transient.exponent) > 0.2
        # The sample's growth leads to the number of keys that all files have.
        is_confirmed = (
            fitted.groups is not None
            and self.has_all_groups
            and fitted.groups(size) >= (1 - _COUNT_ERROR) * self.most_groups
        )
        if grows and fitted.largest and not is_confirmed:
            ratio = size / fitted.largest
            self.extrapolated[kind] = max(ratio, self.extrapolated.get(kind, 0.0))
