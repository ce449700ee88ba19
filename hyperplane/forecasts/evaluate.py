"""Peak, interval and time of a sampled job on one layout of worker processes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from hyperplane.forecasts.heap_threads import find_heap_threads
from hyperplane.forecasts.intervals import Interval, find_demand, find_interval
from hyperplane.forecasts.layout import Layout
from hyperplane.forecasts.memory_series import MemorySeries, SeriesRecorder
from hyperplane.forecasts.model import GraphModel
from hyperplane.forecasts.simulate import Simulation, Timeline
from hyperplane.forecasts.simulated_memory import ALLOCATOR, ProcessBaseline
from hyperplane.spec.plan import ClusterPlan

#: Simulations with different durations of tasks.
SEEDS = 5
#: Units times processes from which on a single simulation takes seconds, and is the only one.
_LARGE = 10**6
#: Share of what malloc keeps after a task by which the memory of a thread grows each time that the
#: number of its tasks doubles, from four tasks on and up to 64. Blocks have many sizes, and results
#: remain between them: freed memory has gaps into which the next ones do not fit. A short sample
#: shows none. Blocks above MALLOC_MMAP_THRESHOLD_ leave none, and malloc keeps none of them.
_GAPS, _FIRST_TASKS, _LAST_TASKS = 0.2, 4, 64
#: The same of tasks that write files, in each thread: their pages and buffers remain longest, and
#: the growth is that of a power of the number of tasks. Measured: 12 and 216 tasks of each thread.
_GAPS_OF_WRITING, _POWER_OF_WRITING, _LAST_TASKS_OF_WRITING = 1.8, 1 / 3, 256
#: Share of what malloc keeps after a task from which on tasks of another class divide it.
_LIKE = 0.5
#: What a worker has in addition to the process of the sample, as connections and threads.
_WORKER = 10 * 10**6
#: Fraction of the limit above which a worker returns freed memory to the system.
_RETURNED = 0.5


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
    has_exchanges : bool
        Whether tasks of this package exchange rows between processes.
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
    has_exchanges: bool = False

    def find_interval(self, threads: int, *peaks: float) -> Interval:
        """Return the interval of peaks of simulations with some threads in each process."""
        tables = any(fitted.has_tables for fitted in self.model.classes)
        return find_interval(peaks, *self._kind, tables, threads)

    def find_demand(self, *peaks: float) -> float:
        """Return the memory that a process needs at most, from peaks of simulations."""
        return find_demand(peaks, *self._kind)

    @property
    def _kind(self) -> tuple[float, float, bool, bool, bool]:
        """What an interval depends on besides the peaks."""
        writes = self.model.written > 0
        # What of an exchange is in memory at a time differs between runs, too.
        in_files = any(fitted.in_files for fitted in self.model.classes)
        shuffles = self.has_shuffles or self.has_exchanges or in_files
        return self.model.empty, self.confidence, shuffles, writes, self.exact


@dataclass(frozen=True)
class LayoutForecast:
    """Forecast of a job on one layout.

    Parameters
    ----------
    interval : Interval
        Peak of the largest worker process, with freed memory that it keeps.
    demand : float
        Memory that it needs at most without spilling. Above half of its limit a worker returns
        freed memory, so that this is what limits are compared with.
    total, seconds : float
        Largest memory of all processes together, and time.
    typical : Timeline
        The simulation whose peak is next to that of the forecast.
    gaps : float
        Freed memory of a process that it cannot use again, which is no part of the simulations.
    """

    interval: Interval
    demand: float
    total: float
    seconds: float
    typical: Timeline
    gaps: float


def find_baseline(model: GraphModel, layout: Layout) -> ProcessBaseline:
    """Return the memory of a process besides its units and results."""
    retained = max(model.imported, model.retained)
    counts = Counter(unit.kind for unit in model.units) if model.library else {}
    for kind, size in model.library.items():
        # The sample, of one thread, has it once.
        retained += (min(layout.threads, counts[kind]) - 1) * size
    return ProcessBaseline(model.empty + _WORKER, retained, layout.shuffle_buffer)


def find_gaps(model: GraphModel, layout: Layout) -> float:
    """Return the freed memory of a process that is too fragmented to be used again."""
    threads = layout.processes * layout.threads
    heaps: dict[int, list[float]] = {}
    for unit in model.units:
        heaps.setdefault(unit.kind, []).append(unit.heap)
    # The median: a partition with a frequent key is larger than the others, but there is one.
    typical = {kind: median(kept) for kind, kept in heaps.items()}
    stages = _find_stages(model)
    grown = []
    for kind, size in typical.items():
        # Tasks of other classes between them divide the same freed memory, too.
        tasks = sum(
            len(heaps[other])
            for other, kept in typical.items()
            if kept >= _LIKE * size and stages[other] == stages[kind]
        )
        is_writing = model.classes[kind].written is not None
        last = _LAST_TASKS_OF_WRITING if is_writing else _LAST_TASKS
        ratio = min(max(tasks / threads, _FIRST_TASKS), last) / _FIRST_TASKS
        if is_writing:
            share = _GAPS_OF_WRITING * layout.threads * (ratio**_POWER_OF_WRITING - 1)
        else:
            share = _GAPS * find_heap_threads(layout.threads) * math.log2(ratio)
        grown.append(size * share)
    return max(grown, default=0.0)


def _find_stages(model: GraphModel) -> dict[int, int]:
    """Return for each class how many shuffles there are before its units."""
    of_units: list[int] = []
    for unit in model.units:
        before = max((of_units[other] for other in unit.dependencies), default=0)
        pieces = any(model.units[other].is_piece for other in unit.dependencies)
        is_next = bool(unit.takes) or pieces
        of_units.append(before + is_next)
    return {unit.kind: stage for unit, stage in zip(model.units, of_units, strict=True)}


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


def list_memory(model: GraphModel, layout: Layout, timeline: Timeline, gaps: float) -> MemorySeries:
    """Return the memory over the time of a simulation of a job, which is run again.

    Freed memory that cannot be used again is added from the first task on.
    """
    recorder = SeriesRecorder(layout.processes, timeline.seconds)
    memory = find_baseline(model, layout)
    memory = replace(memory, retained=memory.retained + gaps)
    Simulation(
        model.units, model.targets, memory, layout.processes, layout.threads, timeline.seed,
        recorder=recorder,
    ).run()  # fmt: skip
    return recorder.list_series()


def evaluate_timelines(
    job: SampledJob, timelines: Sequence[Timeline], layout: Layout
) -> LayoutForecast:
    """Return the forecast of a job from simulations on one layout."""
    peaks = [max(timeline.peaks) for timeline in timelines]
    value = median(peaks)
    gaps = find_gaps(job.model, layout)
    if layout.limit:
        gaps = min(gaps, max(0.0, _RETURNED * layout.limit - value))
    interval = job.find_interval(layout.threads, *(peak + gaps for peak in peaks))
    typical = min(timelines, key=lambda each: abs(max(each.peaks) - value))
    return LayoutForecast(
        _widen(interval, job.model, typical),
        job.find_demand(*peaks),
        median(timeline.total for timeline in timelines) + layout.processes * gaps,
        median(timeline.seconds for timeline in timelines),
        typical,
        gaps,
    )


def name_terms(
    terms: Mapping[tuple[str, int | str], float], kinds: tuple[str, ...], gaps: float
) -> list[tuple[str, int]]:
    """Return the parts of a peak with names, the largest first."""
    named: Counter[str] = Counter({ALLOCATOR: round(gaps)})
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
