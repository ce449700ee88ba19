"""Which units of a graph are run as a sample, and which results replace those that are not run.

A few units of each class are run. If an input was not computed, a computed one of the same class
replaces it: a reduction of 64 inputs then has 64 inputs of the true size, some of them several
times. Values that are in the graph itself, such as numbers of rows to take, are not replaced. Nor
are the inputs of classes that fail with others: all that such a unit needs is run. A unit with
replaced inputs is run a second time with only one of the computed inputs of each class, which
shows whether its result grows with the number of different inputs, as that of a group-by does.

A shuffle with tasks divides each partition into pieces, and puts together an output partition from
one piece of each. The pieces that replace those of other inputs have other numbers: with the same
number they would have the same keys again, and a join of them far too many rows. So it is with the
tables that a join of this package has divided into lists of pieces.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from hyperplane.forecasts.task_units import Key, TablePiece, UnitGraph

#: Fewest units of a class that are run, if it has as many.
FEWEST = 3
#: Share of the budget by which units are run. Of a job of 60 CPU seconds, with a budget of 5 %, the
#: start of the process of the sample takes about half; later units, as those of a reduction, take
#: their share, too.
SHARE = 0.25
#: Units that take partitions out of a shuffle.
SHUFFLE_OUTPUTS = 2
#: A source that is larger than this multiple of the median is sampled, too.
UNEQUAL = 1.5


@dataclass(frozen=True)
class SampleStep:
    """One run of a unit in the sample.

    Parameters
    ----------
    unit : int
        Number of the unit.
    inputs : mapping
        Keys of the unit's inputs -> number of the step and key of the result that is used.
    leaves : frozenset of int
        Steps whose independent pieces of data are in the inputs; itself for a first unit.
    narrow : bool
        Whether only one computed input of each class is used.
    pieces : mapping
        Inputs that are a piece of the result that is used, with the number of that piece.
    most_pieces : int
        How many different numbers of pieces are used.
    rotated : mapping
        Inputs that are a list of pieces of which others are used each time -> how often the list
        has been used before, and whether no piece is used again.
    """

    unit: int
    inputs: Mapping[Key, tuple[int, Key]]
    leaves: frozenset[int]
    narrow: bool = False
    pieces: Mapping[Key, int] = field(default_factory=dict)
    most_pieces: int = 1
    rotated: Mapping[Key, tuple[int, bool]] = field(default_factory=dict)


def count_samples(units: int, budget: float) -> int:
    """Return how many units of a class of ``units`` are run.

    Examples
    --------
    >>> count_samples(2, 0.05), count_samples(40, 0.05), count_samples(1000, 0.05)
    (2, 3, 13)
    """
    return min(units, max(FEWEST, math.ceil(SHARE * budget * units)))


def choose_positions(count: int, samples: int, seed: int = 0) -> list[int]:
    """Return numbers of samples, one in each of ``samples`` equal parts.

    All tables are sampled at the same relative positions, so that joins of tables in the same order
    find partners; ``seed`` moves all of them.

    Examples
    --------
    >>> choose_positions(80, 3), choose_positions(40, 3), choose_positions(2, 2)
    ([13, 40, 66], [6, 20, 33], [0, 1])
    """
    if samples >= count:
        return list(range(count))
    shift = 0.5 if not seed else (0.5 + 0.618034 * seed) % 1
    return sorted({int((each + shift) / samples * count) for each in range(samples)})


def plan_sample(
    graph: UnitGraph,
    weights: Mapping[int, float],
    takes: Collection[int] = (),
    barriers: Collection[int] = (),
    budget: float = 0.05,
    seed: int = 0,
    splits: Mapping[int, TablePiece] | None = None,
    constants: Collection[int] = (),
    exact: Collection[int] = (),
    receivers: Collection[int] = (),
    taken: Collection[int] = (),
) -> list[SampleStep]:
    """Return the steps of a sample, in the order in which they can be run.

    Parameters
    ----------
    graph : UnitGraph
        The units.
    weights : mapping of int to float
        Sizes of the sources of units that have any, such as bytes of files.
    takes : collection of int
        Units that take a partition out of a shuffle.
    barriers : collection of int
        Units that are barriers of shuffles: all of them are run.
    budget : float
        Share of the work that the sample may take.
    seed : int
        Changes which units are run.
    splits : mapping of int to TablePiece, optional
        Units whose result is a piece of that of their only dependency.
    constants : collection of int
        Units whose result is a small value in the graph.
    exact : collection of int
        Classes whose units get their own inputs only.
    receivers : collection of int
        Units that join what they receive of tables that were divided into lists of pieces.
    taken : collection of int
        Units that take for a receiver its piece out of such a list.
    """
    planner = _Planner(graph, frozenset(takes), splits or {}, budget, frozenset(constants))
    planner.add_receivers(receivers, taken)
    # The first step shows what a process keeps after its first task, which a value does not.
    kinds = sorted(
        range(len(graph.kinds)), key=lambda kind: graph.members_of(kind)[0] in planner.constants
    )
    while kinds:
        # Some units of a class may need classes with larger numbers. The first unit of the graph
        # whose class has no sample needs none, so that at least one class is planned each time.
        later = []
        for kind in kinds:
            members = planner.find_possible(graph.members_of(kind))
            if not members:
                later.append(kind)
            elif members[0] in barriers:
                planner.add_barriers(members)
            elif not graph.units[members[0]].dependencies:
                planner.add_first(_choose_sources(members, weights, budget, seed))
            elif kind in exact:
                planner.add_exact(members)
            else:
                planner.add_later(members, budget, seed)
        kinds = later
    return planner.steps


def find_outputs(graph: UnitGraph, splits: Mapping[int, TablePiece]) -> frozenset[int]:
    """Return the units that put together an output partition from pieces of others."""
    return frozenset(
        number
        for number, unit in enumerate(graph.units)
        if any(other in splits for other in unit.dependencies)
    )


def choose_exact(members: Sequence[int]) -> list[int]:
    """Return the units of a class that are run with their own inputs."""
    return [members[at] for at in choose_positions(len(members), min(len(members), FEWEST))]


def find_needed(graph: UnitGraph, units: Collection[int]) -> list[int]:
    """Return units and all that they need, in the order in which they can be run."""
    found = set(units)
    remaining = list(units)
    while remaining:
        others = [o for o in graph.units[remaining.pop()].dependencies if o not in found]
        found.update(others)
        remaining += others
    return sorted(found)


def _count_pieces(
    graph: UnitGraph, splits: Mapping[int, TablePiece], budget: float
) -> dict[int, int]:
    """Return how many different numbers of pieces output partitions of the sample have.

    For shuffles with the same number of output partitions, as those of a join: as few as the table
    has that needs the fewest. If both tables use the same numbers, their rows match.
    """
    most: dict[int, int] = {}
    kinds = {
        (split.outputs, graph.units[graph.units[number].dependencies[0]].kind)
        for number, split in splits.items()
    }
    for outputs, kind in sorted(kinds):
        count = len(graph.members_of(kind))
        pieces = math.ceil(count / count_samples(count, budget))
        most[outputs] = min(pieces, most.get(outputs, pieces))
    return most


def _choose_sources(
    members: Sequence[int], weights: Mapping[int, float], budget: float, seed: int
) -> list[int]:
    positions = choose_positions(len(members), count_samples(len(members), budget), seed)
    chosen = [members[position] for position in positions]
    known = sorted(weights.get(number, 0.0) for number in members)
    largest = max(members, key=lambda number: weights.get(number, 0.0))
    if known[-1] > UNEQUAL * known[len(known) // 2] and largest not in chosen:
        chosen[-1] = largest
    return sorted(chosen)


class _Planner:
    def __init__(
        self,
        graph: UnitGraph,
        takes: frozenset[int],
        splits: Mapping[int, TablePiece],
        budget: float,
        constants: frozenset[int],
    ) -> None:
        self.graph, self.splits, self.constants = graph, splits, constants
        #: Units with an output partition of a shuffle, which are independent pieces of data.
        self.takes = takes | find_outputs(graph, splits)
        self._receivers: frozenset[int] = frozenset()
        self._taken: frozenset[int] = frozenset()
        self._most_pieces = _count_pieces(graph, splits, budget)
        self.steps: list[SampleStep] = []
        self._of_unit: dict[int, int] = {}
        self._of_kind: dict[int, list[int]] = {}
        self._narrow: dict[int, int] = {}

    def add_receivers(self, receivers: Collection[int], taken: Collection[int]) -> None:
        """Let units get other pieces of a list that they get several times."""
        self._receivers, self._taken = frozenset(receivers), frozenset(taken)
        self.takes |= self._receivers

    def find_possible(self, members: Sequence[int]) -> list[int]:
        """Return the units of a class whose inputs have samples, or that have none."""
        units = self.graph.units
        return [
            number
            for number in members
            if all(units[other].kind in self._of_kind for other in units[number].dependencies)
        ]

    def add_first(self, units: Sequence[int]) -> None:
        """Add units without inputs."""
        for number in units:
            if number not in self._of_unit:
                self._add_first(number)

    def _add_first(self, number: int) -> None:
        leaves = frozenset() if number in self.constants else frozenset({len(self.steps)})
        self._add(SampleStep(number, {}, leaves))

    def add_barriers(self, members: Sequence[int]) -> None:
        """Add all units of a class, as each shuffle has its own barrier."""
        for number in members:
            self._add_with_inputs(number, narrow=False)

    def add_exact(self, members: Sequence[int]) -> None:
        """Add units of a class, and all that they need."""
        for number in find_needed(self.graph, choose_exact(members)):
            if number in self._of_unit:
                continue
            if self.graph.units[number].dependencies:
                self._add_with_inputs(number, narrow=False)
            else:
                self._add_first(number)

    def add_later(self, members: Sequence[int], budget: float, seed: int) -> None:
        """Add units of a class whose inputs are results of earlier steps."""
        complete = [
            number
            for number in members
            if all(
                other in self._of_unit or other in self.splits or other in self.constants
                for other in self.graph.units[number].dependencies
            )
        ]
        if complete:
            is_output = complete[0] in self.takes
            most = SHUFFLE_OUTPUTS if is_output else count_samples(len(members), budget)
            positions = choose_positions(len(complete), min(most, len(complete)), seed)
            if not is_output and len(complete) <= most + 1:
                positions = list(range(len(complete)))
            for position in positions:
                self._add_with_inputs(complete[position], narrow=False)
            return
        # The last one may have fewer inputs than the others.
        most_inputs = max(members, key=lambda number: len(self.graph.units[number].inputs))
        wide = self._add_with_inputs(most_inputs, narrow=False)
        if len(wide.leaves) > 1:
            self._add_with_inputs(most_inputs, narrow=True)

    def _add_with_inputs(self, number: int, narrow: bool) -> SampleStep:
        unit = self.graph.units[number]
        inputs: dict[Key, tuple[int, Key]] = {}
        chosen: dict[int, int] = {}
        counters: dict[int, int] = {}
        pieces: dict[Key, int] = {}
        most_pieces = 1
        for other in unit.dependencies:
            is_piece = other in self.splits or other in self._taken
            source = self.graph.units[other].dependencies[0] if is_piece else other
            chosen[other] = self._choose_input(source, counters, narrow)
        for key in unit.inputs:
            other = self.graph.unit_of[key]
            step, used = chosen[other], key
            if other in self.splits:
                pieces[key] = self.splits[other].number
                most_pieces = self._most_pieces[self.splits[other].outputs]
            if other in self.splits or other in self._taken:
                used = self.graph.units[other].inputs[0]
            inputs[key] = (step, self._matching_key(used, step))
        leaves: frozenset[int] = frozenset().union(
            *(self.steps[step].leaves for step in chosen.values())
        )
        if number in self.takes or not leaves:
            leaves = frozenset({len(self.steps)})
        rotated = self._rotate(inputs) if number in self._receivers else {}
        for key in inputs:  # of a table of one partition, whose list is used once
            if self.graph.unit_of[key] in self._taken:
                rotated.setdefault(key, (0, False))
        return self._add(SampleStep(number, inputs, leaves, narrow, pieces, most_pieces, rotated))

    def _rotate(self, inputs: Mapping[Key, tuple[int, Key]]) -> dict[Key, tuple[int, bool]]:
        """Return which pieces are used of lists that are used several times.

        All tables of a join use the same numbers, as many as that one has that is used the fewest
        times; of it no piece is used again, so that each row has the partners that it has in the
        job, and not their product.
        """
        uses: dict[int, dict[Key, int]] = {}
        counts: Counter[int] = Counter()
        for key, (step, _) in inputs.items():
            kind = self.graph.units[self.steps[step].unit].kind
            uses.setdefault(kind, {})[key] = counts[step]
            counts[step] += 1
        # Other inputs, such as the frequent keys, are one result.
        times = {kind: max(used.values()) + 1 for kind, used in uses.items() if len(used) > 1}
        if not times:
            return {}
        fewest = min(reversed(times), key=lambda kind: times[kind])
        most = times[fewest]
        return {
            key: (use % most, kind == fewest) for kind in times for key, use in uses[kind].items()
        }

    def _choose_input(self, other: int, counters: dict[int, int], narrow: bool) -> int:
        kind = self.graph.units[other].kind
        if other in self.constants:
            if other not in self._of_unit:
                self._add_first(other)
            return self._of_unit[other]
        available = self._of_kind[kind]
        if narrow:
            return self._narrow.get(kind, available[0])
        if other in self._of_unit:
            return self._of_unit[other]
        counters[kind] = counters.get(kind, -1) + 1
        return available[counters[kind] % len(available)]

    def _matching_key(self, key: Key, step: int) -> Key:
        """Return the result of a step that has the place of ``key`` in its unit."""
        outputs = self.graph.units[self.graph.unit_of[key]].outputs
        others = self.graph.units[self.steps[step].unit].outputs
        return others[min(outputs.index(key), len(others) - 1)]

    def _add(self, step: SampleStep) -> SampleStep:
        kind = self.graph.units[step.unit].kind
        if step.narrow:
            self._narrow[kind] = len(self.steps)
        else:
            self._of_unit[step.unit] = len(self.steps)
            self._of_kind.setdefault(kind, []).append(len(self.steps))
        self.steps.append(step)
        return step
