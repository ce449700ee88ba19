"""Which classes of units get their own inputs, because they fail with those of others.

A sample replaces inputs that it has not computed by others of their class. Tasks that depend on the
positions or the lengths of their inputs fail with them, as those that take rows by their numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hyperplane.forecasts.collection_graph import CollectionGraph
from hyperplane.forecasts.sample_plan import (
    SampleStep,
    choose_exact,
    find_needed,
    find_outputs,
    plan_sample,
)

#: Most times that a sample is run again because tasks have failed.
MOST_REPEATED = 3
#: Most units without inputs that are run because others need their own results, and the share of
#: all those of a job: beyond both, the sample would be a large part of the job.
_MOST_SOURCES, _SHARE = 32, 0.1


def plan_steps(
    graph: CollectionGraph, budget: float, exact: Collection[int] = ()
) -> list[SampleStep]:
    """Return the steps of a sample of a graph; units of the classes ``exact`` get own inputs."""
    info = graph.info
    return plan_sample(
        graph.units, info.weights, info.takes, info.barriers, budget,
        splits=info.splits, constants=info.constants, exact=exact, receivers=info.receivers,
        taken=info.taken,
    )  # fmt: skip


def find_exact(
    graph: CollectionGraph, steps: Sequence[SampleStep], failed: int, exact: frozenset[int]
) -> frozenset[int]:
    """Return the classes that need their own inputs after a step has failed.

    These are that of the step and those of the same name: of the groups of an array each has
    another class. There are no more than before if the step has failed with its own inputs.
    """
    if failed in _find_own(graph, steps):
        return exact
    kinds = graph.units.kinds
    name = kinds[graph.units.units[steps[failed].unit].kind]
    return exact | {kind for kind, other in enumerate(kinds) if other == name}


def _find_own(graph: CollectionGraph, steps: Sequence[SampleStep]) -> set[int]:
    """Return the steps with the results that their units have in the job."""
    own: set[int] = set()
    for number, step in enumerate(steps):
        are_own = (
            place in own and steps[place].unit == graph.units.unit_of[key] and not step.pieces
            for key, (place, _) in step.inputs.items()
        )
        if all(are_own) and step.unit not in graph.info.takes:
            own.add(number)
    return own


def explain_limit(graph: CollectionGraph, exact: Collection[int]) -> str:
    """Return why classes cannot get their own inputs in a sample; empty if they can."""
    units, info = graph.units.units, graph.info
    needed = {
        number
        for kind in exact
        for number in find_needed(graph.units, choose_exact(graph.units.members_of(kind)))
    }
    shuffled = info.takes.keys() | info.barriers.keys() | info.splits.keys()
    names = ", ".join(sorted({repr(graph.units.kinds[kind]) for kind in exact}))
    if needed & (shuffled | find_outputs(graph.units, info.splits)):
        return f"{names} need the results of a shuffle of all data, of which a sample has a part"
    sources = {
        number
        for number, unit in enumerate(units)
        if not unit.dependencies and number not in info.constants
    }
    count = len(needed & sources)
    if count <= max(_MOST_SOURCES, _SHARE * len(sources)):
        return ""
    return (
        f"{names} need their own inputs, for which {count} of {len(sources)} first tasks would "
        "be run"
    )
