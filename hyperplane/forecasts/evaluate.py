"""Peak, interval and time of a sampled job on one layout of worker processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from hyperplane.forecasts.intervals import Interval, find_interval
from hyperplane.forecasts.layout import Layout
from hyperplane.forecasts.model import GraphModel
from hyperplane.forecasts.simulate import ProcessBaseline, Simulation, Timeline
from hyperplane.spec.plan import ClusterPlan

#: Simulations with different durations of tasks.
SEEDS = 5
#: Units times processes from which on a single simulation takes seconds, and is the only one.
_LARGE = 10**6
#: What the allocators of a thread keep after many tasks, which a short sample does not show, in
#: bytes and as a share of what the largest task needs: medians of measured runs.
_KEPT, _KEPT_SHARE = 20 * 10**6, 0.35
#: What a process keeps after many tasks relative to the sample, without imported modules.
_DRIFT = 1.5


@dataclass(frozen=True)
class SampledJob:
    """A job whose sample has run: what simulations of any layout need.

    Parameters
    ----------
    model : GraphModel
        Cost of all units.
    kinds : tuple of str
        Names of the classes of units.
    layout : Layout
        Worker processes for which the graph was built.
    plan : ClusterPlan or None
        Plan of these; None for a running cluster.
    confidence : float
        Nominal probability that a peak is in its interval.
    has_shuffles : bool
        Whether rows or chunks move between workers in a peer-to-peer shuffle.
    depends_on_method : bool
        Whether another method of shuffles would result in another graph.
    exact : bool
        Whether the kernel has measured the peaks of the sample.
    refusals : tuple of str
        Why the figures are not reliable on any layout.
    notes : tuple of str
        What makes the interval wide.
    tasks : int
        Number of tasks.
    read : int
        Bytes of local files that are read.
    """

    model: GraphModel
    kinds: tuple[str, ...]
    layout: Layout
    plan: ClusterPlan | None
    confidence: float
    has_shuffles: bool
    depends_on_method: bool
    exact: bool
    refusals: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    tasks: int = 0
    read: int = 0

    def find_interval(self, *peaks: float) -> Interval:
        """Return the interval of peaks of simulations."""
        return find_interval(
            peaks, self.model.empty, self.confidence, self.has_shuffles, self.exact
        )


@dataclass(frozen=True)
class LayoutForecast:
    """Forecast of a job on one layout.

    Parameters
    ----------
    interval : Interval
        Peak of the largest worker process.
    total, seconds : float
        Largest memory of all processes together, and time.
    typical : Timeline
        The simulation whose peak is next to that of the forecast.
    """

    interval: Interval
    total: float
    seconds: float
    typical: Timeline


def find_baseline(model: GraphModel, layout: Layout) -> ProcessBaseline:
    """Return the memory of a process besides its units and results."""
    largest = max(unit.transient for unit in model.units)
    kept = layout.threads * min(_KEPT, _KEPT_SHARE * largest)
    drift = _DRIFT * max(0.0, model.retained - model.imported)
    return ProcessBaseline(model.empty, model.imported + drift + kept, layout.shuffle_buffer)


def simulate_layout(
    model: GraphModel, layout: Layout, seeds: Sequence[int] | None = None
) -> list[Timeline]:
    """Simulate a job on a layout several times, with different durations of its tasks.

    Parameters
    ----------
    model : GraphModel
        The job.
    layout : Layout
        The worker processes.
    seeds : sequence of int, optional
        Seeds of the durations; by default five, and one for a large graph.
    """
    memory = find_baseline(model, layout)
    if seeds is None:
        is_large = len(model.units) * layout.processes >= _LARGE
        seeds = range(1 if is_large else SEEDS)
    return [
        Simulation(model.units, model.targets, memory, layout.processes, layout.threads, seed).run()
        for seed in seeds
    ]


def evaluate_timelines(job: SampledJob, timelines: Sequence[Timeline]) -> LayoutForecast:
    """Return the forecast of a job from simulations on one layout."""
    peaks = [max(timeline.peaks) for timeline in timelines]
    interval = job.find_interval(*peaks)
    typical = min(timelines, key=lambda each: abs(max(each.peaks) - interval.value))
    return LayoutForecast(
        _widen(interval, job.model, typical),
        median(timeline.total for timeline in timelines),
        median(timeline.seconds for timeline in timelines),
        typical,
    )


def name_terms(
    terms: Mapping[tuple[str, int | str], float], kinds: tuple[str, ...]
) -> list[tuple[str, int]]:
    """Return the parts of a peak with names, the largest first."""
    named: Counter[str] = Counter()
    for (what, which), size in terms.items():
        if what == "process":
            named[str(which)] += round(size)
        else:
            kind = kinds[int(which)]
            label = f"running {kind}" if what == "run" else f"results of {kind}"
            named[label] += round(size)
    return [(name, size) for name, size in named.most_common() if size > 0]


def _widen(interval: Interval, model: GraphModel, timeline: Timeline) -> Interval:
    """Return an interval down to a peak at which results do not grow beyond those of the sample."""
    low = interval.low
    for kind, ratio in model.extrapolated.items():
        growth = max(model.classes[kind].output.exponent, model.classes[kind].transient.exponent)
        of_kind = timeline.terms.get(("run", kind), 0.0) + timeline.terms.get(("result", kind), 0.0)
        low = min(low, interval.low - of_kind * (1 - ratio**-growth))
    return replace(interval, low=max(low, model.empty))
