"""Forecast of a job from the records of its earlier runs, without a sample.

A run counts if its program, or its pipeline and step, and the structure of its graph are the same,
its workers had as many threads, and nothing disturbed it: no pause, no data on disk, no replaced
worker, no other computation at the same time, no results of earlier ones.

The growth of a worker process over an empty one is a power of the input per process. Between the
exponents 0 (each partition is processed for itself) and 1 (all data is held) the present job may
have any. It is estimated together with the scatter of the runs, by a regression of the logarithms
with the prior values below: with one run these decide, with more runs their measured figures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from statistics import NormalDist, fmean

from hyperplane.core.units import format_bytes, format_local_time, plural
from hyperplane.forecasts.collection_graph import CollectionGraph
from hyperplane.forecasts.intervals import (
    PAST_CPU_DEVIATION,
    PAST_WALL_DEVIATION,
    find_time_interval,
)
from hyperplane.forecasts.layout import Layout
from hyperplane.forecasts.result import Forecast
from hyperplane.guard.graph_structure import SourceSizes, find_sources, find_structure
from hyperplane.history.figures import ComputationUsage
from hyperplane.history.program import identify_program
from hyperplane.history.run_record import RunRecord
from hyperplane.history.store import iterate_runs

#: Ratio of the input per process beyond which the job is sampled again: 2, for files that differ
#: in size.
FARTHEST = 2.1
#: Most runs that are used, the newest.
MOST_RUNS = 10
#: Exponent of the growth before any run was compared, and its standard deviation.
EXPONENT, EXPONENT_DEVIATION = 0.3, 0.3
#: Scatter of the logarithm of the growth of two runs of one job, and how many runs it is worth.
#: These four were chosen by six of the eleven jobs of docs/explanation/forecast.md.
SCATTER, SCATTER_RUNS = 0.05, 4.0
#: Share of the growth, and bytes, that earlier results may have in memory.
_HELD_SHARE, _HELD = 0.1, 10 * 10**6
#: Least growth, so that its logarithm exists, and bytes that two runs of one job differ at least.
_LEAST_GROWTH, _LEAST = 10 * 10**6, 15 * 10**6


@dataclass(frozen=True)
class PastRun:
    """An earlier computation of the same job."""

    record: RunRecord
    usage: ComputationUsage

    @property
    def growth(self) -> float:
        """Memory of the largest worker process beyond that of an empty one, in bytes."""
        return float(max(_LEAST_GROWTH, self.usage.peak - self.usage.empty))

    @property
    def day(self) -> str:
        """When it began."""
        return format_local_time(self.usage.started, "%Y-%m-%d %H:%M")


@dataclass(frozen=True)
class JobSize:
    """Size of a job, in which it is compared with its earlier runs.

    Parameters
    ----------
    structure : str
        Digest of its graph.
    input : int
        Bytes that it reads from local files, or has in its graph; 0 if unknown.
    sources : int
        Number of its tasks without inputs.
    """

    structure: str
    input: int
    sources: int

    @classmethod
    def of(cls, graph: CollectionGraph) -> JobSize:
        """Return the size of a graph."""
        sources = find_sources(graph.tasks)
        return cls(find_structure(graph.tasks), SourceSizes(sources).measure(), len(sources))

    def ratio_to(self, usage: ComputationUsage) -> float | None:
        """Return how many times the input of an earlier run this is; None if that is unknown."""
        if self.input and usage.input:
            return self.input / usage.input
        if self.input or usage.input or not usage.sources:
            return None
        return self.sources / usage.sources


def find_past_runs(size: JobSize, layout: Layout, program: str) -> list[PastRun]:
    """Return the earlier runs of a job with which it can be compared, the newest first."""
    if not size.structure:
        return []
    here = {**identify_program(), "program": program}
    found = []
    for record in iterate_runs(lambda file: None):
        is_step = bool(record.step) and (record.pipeline, record.step) == (
            here["pipeline"],
            here["step"],
        )
        if not is_step and not (program and record.program == program):
            continue
        found += [
            PastRun(record, usage)
            for usage in record.computations
            if usage.structure == size.structure and _is_comparable(usage, layout)
        ]
    return found


def _is_comparable(usage: ComputationUsage, layout: Layout) -> bool:
    growth = usage.peak - usage.empty
    return (
        usage.peak > 0
        and usage.empty > 0
        and usage.processes > 0
        and usage.threads == layout.threads
        and not (usage.failed or usage.shared or usage.disturbed or usage.spilled)
        and usage.held <= max(_HELD, _HELD_SHARE * growth)
    )


@dataclass(frozen=True)
class Regression:
    """Predicted logarithm of the growth: its center, scale and degrees of freedom."""

    center: float
    scale: float
    freedom: float
    exponent: float

    def quantile(self, confidence: float) -> float:
        """Return how far the limits of an interval are from the center."""
        normal = NormalDist().inv_cdf((1 + confidence) / 2)
        # Student's distribution by the expansion of Cornish and Fisher.
        first = (normal**3 + normal) / (4 * self.freedom)
        second = (5 * normal**5 + 16 * normal**3 + 3 * normal) / (96 * self.freedom**2)
        return (normal + first + second) * self.scale


def predict_growth(ratios: Sequence[float], growths: Sequence[float]) -> Regression:
    """Predict the growth of a job from that of runs.

    Parameters
    ----------
    ratios : sequence of float
        How many times the input per process of each run the job has.
    growths : sequence of float
        Growth of each run in bytes.

    Examples
    --------
    Without a change of the input the forecast is what was measured:

    >>> found = predict_growth([1.0], [500e6])
    >>> round(math.exp(found.center) / 1e6)
    500

    A growth that has doubled with the input is expected to go on so:

    >>> found = predict_growth([2.0, 2.0, 1.0, 1.0], [500e6, 510e6, 990e6, 1020e6])
    >>> 0.7 < found.exponent < 1.0
    True
    """
    # Centered on the runs; the input of the job is at 0.
    places = [-math.log(ratio) for ratio in ratios]
    values = [math.log(growth) for growth in growths]
    count, place, value = len(values), fmean(places), fmean(values)
    prior = SCATTER**2 / EXPONENT_DEVIATION**2
    spread = sum((each - place) ** 2 for each in places)
    joint = sum((x - place) * (y - value) for x, y in zip(places, values, strict=True))
    exponent = (joint + prior * EXPONENT) / (spread + prior)
    exponent = min(1.0, max(0.0, exponent))
    errors = sum(
        (y - value - exponent * (x - place)) ** 2 for x, y in zip(places, values, strict=True)
    )
    freedom = SCATTER_RUNS + count - 1
    variance = (SCATTER_RUNS * SCATTER**2 + errors) / freedom
    scale = math.sqrt(variance * (1 + 1 / count + place**2 / (spread + prior)))
    return Regression(value - exponent * place, scale, freedom, exponent)


def forecast_from_runs(
    graph: CollectionGraph, layout: Layout, confidence: float, program: str
) -> tuple[Forecast | None, str]:
    """Return the forecast of a job from its earlier runs, or None, and why there is none.

    The text is empty if there is a forecast, or if the job has not run before.
    """
    size = JobSize.of(graph)
    past = find_past_runs(size, layout, program)
    runs = []
    for run in past:
        ratio = size.ratio_to(run.usage)
        if ratio is not None:
            share = ratio * run.usage.processes / layout.processes
            runs.append((run, ratio, share))
    if not runs:
        return None, ""
    nearest = min(runs, key=lambda each: abs(math.log(each[2])))
    if abs(math.log(nearest[2])) > math.log(FARTHEST) + 1e-9:
        run, _, share = nearest
        return None, (
            f"run {run.record.name} of {run.day} is not used: the input for each process is now "
            f"{share:.2g} times as large, and at most a factor of {FARTHEST:g} is scaled"
        )
    near = [each for each in runs if abs(math.log(each[2])) <= math.log(FARTHEST) + 1e-9]
    return _combine(near[:MOST_RUNS], size, graph, layout, confidence), ""


def _combine(
    runs: Sequence[tuple[PastRun, float, float]],
    size: JobSize,
    graph: CollectionGraph,
    layout: Layout,
    confidence: float,
) -> Forecast:
    """Return the forecast from runs with the ratios of their input, in all and per process."""
    found = predict_growth([share for _, _, share in runs], [run.growth for run, _, _ in runs])
    width = found.quantile(confidence)
    empty = fmean(run.usage.empty for run, _, _ in runs)
    growth = math.exp(found.center)
    peak = empty + growth
    low = min(empty + growth * math.exp(-width), peak - _LEAST)
    high = max(empty + growth * math.exp(width), peak + _LEAST)
    totals = [
        layout.processes
        * (run.usage.total / run.usage.processes - run.usage.empty)
        * share**found.exponent
        for run, _, share in runs
    ]
    threads = layout.processes * layout.threads
    walls = [
        run.usage.seconds * ratio * run.usage.processes * run.usage.threads / threads
        for run, ratio, _ in runs
    ]
    # Several runs have a mean, whose scatter is smaller than that of a single one.
    scatter = math.sqrt((1 + 1 / len(runs)) / 2)
    cpu = find_time_interval(
        fmean(run.usage.cpu_seconds * ratio for run, ratio, _ in runs),
        PAST_CPU_DEVIATION * scatter,
        confidence,
    )
    wall = find_time_interval(fmean(walls), PAST_WALL_DEVIATION * scatter, confidence)
    return Forecast(
        peak=round(peak),
        low=round(max(0.0, low)),
        high=round(high),
        total=round(max(peak, empty * layout.processes + fmean(totals))),
        cpu_s=cpu.value,
        cpu_low=cpu.low,
        cpu_high=cpu.high,
        wall_s=wall.value,
        wall_low=wall.low,
        wall_high=wall.high,
        refused=False,
        reasons=tuple(_describe(runs, size)),
        cost=0.0,
        confidence=confidence,
        layout=str(layout),
        limit=layout.limit,
        read=size.input,
        tasks=len(graph.tasks),
        runs=tuple(run.record.name for run, _, _ in runs),
    )


def _describe(runs: Sequence[tuple[PastRun, float, float]], size: JobSize) -> list[str]:
    """Return what a forecast is based on."""
    run, ratio, _ = runs[0]
    usage = run.usage
    others = f" and in {plural(len(runs) - 1, 'earlier run')}" if len(runs) > 1 else ""
    unit = "input" if size.input else "partitions"
    amount = f"the same {unit}" if abs(ratio - 1) < 0.005 else f"{ratio:.3g} times the {unit}"
    place = f"{plural(usage.processes, 'worker process')} x {plural(usage.threads, 'thread')}"
    texts = [
        f"measured in run {run.record.name} of {run.day}{others}: {format_bytes(usage.peak)} in "
        f"{place}; this job has {amount}"
    ]
    versions = run.record.versions
    changed = [
        f"{name} {versions[name]}"
        for name, present in _present_versions().items()
        if versions.get(name, present) != present
    ]
    if changed:
        texts.append(f"that run had {', '.join(changed)}")
    return texts


def _present_versions() -> dict[str, str]:
    return {name: version(name) for name in ("dask", "distributed")}
