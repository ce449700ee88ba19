"""Why a job cannot be forecast, or only within a wide interval."""

from __future__ import annotations

from collections.abc import Sequence

from dask.utils import key_split

from hyperplane.collections.frames.helper_steps import GROUP, JOIN, SHUFFLE, SORT
from hyperplane.core.units import format_bytes, plural
from hyperplane.forecasts.collection_graph import CollectionGraph, find_writers
from hyperplane.forecasts.model import GraphModel
from hyperplane.forecasts.records import NOTABLE_SHARE, SampleResult
from hyperplane.forecasts.sample_plan import SampleStep
from hyperplane.forecasts.simulate import Timeline

#: Classes of units beyond which a graph has no repeated parts that a sample could show.
MOST_CLASSES = 300
#: Units of a graph beyond which a simulation takes minutes.
MOST_UNITS = 100_000
#: Share of a peak from which on a class of units decides about it.
DECISIVE = 0.2
#: Ratio of two runs of one task, and of two tasks of the same size, that makes a forecast useless.
REPEATED, UNEQUAL = 1.1, 2.0
#: Ratio of the memory of a task with one of its inputs in place of all to that with several, from
#: which on the sample is not like the job.
MULTIPLIED = 1.5
#: Ratio of the largest source to the largest one that was sampled.
LARGER_SOURCE = 4.0
#: Ratio of a unit's pieces of data to those of the sample beyond which the growth is unknown.
EXTRAPOLATED = 10.0
#: Multiple of an even share of the rows from which on a key makes a partition large.
FREQUENT = 2.0
#: What to do about a frequent key.
_FREQUENT_ADVICE = {
    JOIN: "hyperplane.dataframe.join leaves the rows of the larger table where they are if the "
    "other one is small; or add a column of random numbers to the key of one table, and each of "
    "these numbers to the rows of the other",
    SHUFFLE: "use aggregations that are combined, such as sum and mean, or a further key column",
    SORT: "hyperplane.dataframe.sort_values divides such rows if the table has more than a quarter "
    "of the cluster's memory",
}
#: What to do about a frequent key of a helper of this package.
_HELPER_ADVICE = {
    JOIN: "add a column of random numbers to the key of one table, and each of these numbers to "
    "the rows of the other",
    SORT: "sort_values divides such rows only if the table has more than a quarter of the "
    "cluster's memory and its rows were not shuffled before",
    GROUP: "use aggregations that are combined, such as sum and mean, or a further key column",
}
#: Bytes below which differences of memory are noise.
_NOISE = 20 * 10**6


def find_graph_reasons(graph: CollectionGraph) -> list[str]:
    """Return why a graph is not sampled at all."""
    found = []
    writers = find_writers(graph.tasks)
    if writers:
        found.append(
            f"the tasks {', '.join(writers)} would write to their target in the sample; of writing "
            "jobs only hyperplane.save and to_parquet can be forecast, with compute=False. "
            "Forecast one of these, or the collection before it is written"
        )
    if any(type(node).__name__ == "Future" for node in graph.tasks.values()) or any(
        "Future" in type(getattr(node, "value", None)).__name__ for node in graph.tasks.values()
    ):
        found.append("results of the graph are on a cluster; forecast it before persist()")
    if len(graph.units.units) > MOST_UNITS:
        found.append(
            f"the graph has {len(graph.units.units)} chains of tasks; more than {MOST_UNITS} take "
            "too much time and memory to simulate. Forecast a part of the data"
        )
    if len(graph.units.kinds) > MOST_CLASSES:
        kinds = plural(len(graph.units.kinds), "class")
        found.append(f"the graph has {kinds} of different tasks, too many for a sample")
    return found


def find_sample_refusals(
    graph: CollectionGraph, steps: Sequence[SampleStep], result: SampleResult
) -> list[str]:
    """Return what makes the figures unreliable on any layout."""
    return [
        *_find_repeated(result),
        *_find_multiplied(graph, steps, result),
        *_find_larger_sources(graph, steps),
    ]


def _find_repeated(result: SampleResult) -> list[str]:
    """Return whether a task returned another size when it was run again."""
    if result.repeated is None or not result.records:
        return []
    first, second = sum(result.repeated.outputs), sum(result.records[0].outputs)
    first += sum(result.repeated.added.values())
    second += sum(result.records[0].added.values())
    low, high = sorted((first, second))
    if high <= REPEATED * low or high - low < 1000:
        return []
    return [
        f"a task returned {format_bytes(first)}, and {format_bytes(second)} when it was run again: "
        "the graph is not deterministic"
    ]


def _find_multiplied(
    graph: CollectionGraph, steps: Sequence[SampleStep], result: SampleResult
) -> list[str]:
    """Return which tasks need more with fewer different inputs, each of them more often.

    A join does: a key that is in both tables several times has as many rows as their product.
    """
    found = []
    pairs = zip(steps, steps[1:], result.records, result.records[1:], strict=False)
    for wide, narrow, record, following in pairs:
        if not narrow.narrow or narrow.unit != wide.unit or not following.inputs:
            continue
        need = (record.peak - record.before) * following.inputs / max(1, record.inputs)
        more = following.peak - following.before
        if more > MULTIPLIED * need and more - need > _NOISE:
            found.append(
                f"sampled tasks {graph.units.kinds[graph.units.units[wide.unit].kind]!r} have the "
                "results of a few tasks in place of all, and need "
                f"{format_bytes(round(need))} with these and {format_bytes(round(more))} with one "
                "of them, as a join of equal keys: the sample does not show what they need. "
                "Forecast the job with fewer files, of which a sample has more"
            )
    return found


def find_unequal(kinds: Sequence[str], model: GraphModel, timeline: Timeline) -> list[str]:
    """Return which classes of units decide about a peak although their memory varies."""
    found = []
    peak = sum(timeline.terms.values())
    for kind, fitted in enumerate(model.classes):
        need = timeline.terms.get(("run", kind), 0.0)
        if fitted.spread > UNEQUAL and need > max(DECISIVE * peak, _NOISE):
            found.append(
                f"sampled tasks {kinds[kind]!r} of the same size needed memory that differs by a "
                f"factor of {fitted.spread:.1f}: it depends on values, and tasks that were not "
                "sampled may need more"
            )
    return found


def _find_larger_sources(graph: CollectionGraph, steps: Sequence[SampleStep]) -> list[str]:
    weights = graph.info.weights
    found = []
    for kind, name in enumerate(graph.units.kinds):
        members = graph.units.members_of(kind)
        sampled = [step.unit for step in steps if graph.units.units[step.unit].kind == kind]
        largest = max(weights.get(number, 0.0) for number in members)
        seen = max((weights.get(number, 0.0) for number in sampled), default=0.0)
        if seen and largest > LARGER_SOURCE * seen:
            found.append(
                f"the largest source of {name!r} has {format_bytes(round(largest))} and was not "
                f"sampled; the largest sampled one has {format_bytes(round(seen))}"
            )
    return found


def find_frequent_keys(
    graph: CollectionGraph, result: SampleResult, model: GraphModel
) -> list[str]:
    """Return the keys that make one output partition of a shuffle larger than the others."""
    in_graph = max(
        (count for takes in graph.info.takes.values() for _, _, count in takes),
        default=max((split.outputs for split in graph.info.splits.values()), default=0),
    )
    found = []
    for key in result.keys:
        is_of_dask = key.receivers is None
        advice = (_FREQUENT_ADVICE if is_of_dask else _HELPER_ADVICE).get(key.operation)
        partitions = in_graph if key.receivers is None else key.receivers
        if advice and partitions and key.share >= max(NOTABLE_SHARE, FREQUENT / partitions):
            size = ""
            if is_of_dask and len(graph.shuffles) == 1:
                size = f", {format_bytes(round(key.share * model.shuffled))}"
            found.append(
                f"{round(100 * key.share)} % of the rows of the {key.operation} have the key "
                f"{', '.join(key.names)} = {key.frequent}: one of {partitions} partitions gets all "
                f"of them{size}; {advice}"
            )
    return found


def find_notes(
    graph: CollectionGraph, result: SampleResult, model: GraphModel, timeline: Timeline
) -> list[str]:
    """Return what makes an interval wide."""
    found = []
    peak = sum(timeline.terms.values())
    for kind, ratio in model.extrapolated.items():
        share = timeline.terms.get(("run", kind), 0.0) + timeline.terms.get(("result", kind), 0.0)
        growth = max(model.classes[kind].output.exponent, model.classes[kind].transient.exponent)
        if ratio > EXTRAPOLATED and share > DECISIVE * peak:
            found.append(
                f"the results of {graph.units.kinds[kind]!r} grow with the data, and the sample "
                f"has a {ratio:.0f}th of it: the peak is rather an upper bound"
            )
        elif share * (1 - ratio**-growth) > DECISIVE * peak:
            found.append(
                f"the results of {graph.units.kinds[kind]!r} grow with the data, of which the "
                f"sample has {round(100 / ratio)} %: how they grow further is an estimate"
            )
    found += find_frequent_keys(graph, result, model)
    if graph.unmeasured:
        found.append(
            f"the sizes of {plural(graph.unmeasured, 'file')} of object stores were not found: the "
            "tasks that read from there are taken to be as large as the sampled ones, and the "
            "bytes that are read do not include them"
        )
    if any(str(key_split(key)).startswith("rechunk-split") for key in graph.tasks):
        found.append(
            "tasks rechunk an array: Dask chose them because there was no cluster when the array "
            "was made, or few chunks. With array.rechunk.method = 'p2p' the graph is another one"
        )
    if graph.shuffles:
        found.append("how many rows of a shuffle are in memory at a time differs between runs")
    if not result.exact:
        found.append("this system does not record peaks of memory, so that short ones are missed")
    return found
