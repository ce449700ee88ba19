"""Simulation of the candidates of a search for a layout."""

from __future__ import annotations

import math
from dataclasses import replace

from hyperplane.core.units import round_bytes
from hyperplane.forecasts.bounds import JobBounds
from hyperplane.forecasts.evaluate import (
    SEEDS,
    LayoutForecast,
    SampledJob,
    evaluate_timelines,
    find_baseline,
    simulate_layout,
)
from hyperplane.forecasts.layout import Layout, LayoutTemplate, find_shuffle_method
from hyperplane.forecasts.layout_search import LayoutCandidate, MeasuredOption
from hyperplane.forecasts.reasons import find_unequal
from hyperplane.forecasts.simulate import Simulation, Timeline
from hyperplane.forecasts.simulated_memory import ProcessBaseline
from hyperplane.sizing.machine_fit import MIN_RAM
from hyperplane.spec.pool import PoolSpec
from hyperplane.spec.worker import WorkerSpec

#: Proposed memory of a process of this machine is a multiple of 10 MB.
_STEP = 10**7
#: Units of all simulations of a layout together, besides the first: those of a large graph differ
#: less.
_UNITS = 5_000


class LayoutSimulator:
    """Simulates a sampled job on candidates.

    Parameters
    ----------
    job : SampledJob
        The job.
    is_priced : bool
        Whether the cost is the price of nodes; otherwise it is core-hours.
    is_local : bool
        Whether the candidates are layouts of this machine, whose processes get no more memory than
        they need.
    """

    def __init__(self, job: SampledJob, is_priced: bool, is_local: bool) -> None:
        self.job, self.is_priced, self.is_local = job, is_priced, is_local
        self.bounds = JobBounds(job.model)
        self.template = LayoutTemplate(job.plan, job.layout)
        self._method = find_shuffle_method(job.layout)
        self._seeds = range(min(SEEDS, _UNITS // len(job.model.units)))
        self._same_graph = {few: self._builds_same_graph(1 if few else 2) for few in (True, False)}
        self._baselines: dict[tuple[int, float], ProcessBaseline] = {}
        self._buffers: dict[int, float] = {}
        self._timelines: dict[tuple[int, int, float], Timeline] = {}
        self._forecasts: dict[tuple[int, int, float], LayoutForecast] = {}
        #: Threads of all processes and times of simulations; first of one thread for each unit.
        units = len(job.model.units)
        self._known: list[tuple[int, float]] = []
        self._simulate_evenly(self._make_layout(WorkerSpec(1, units, MIN_RAM, units), 1))

    def find_least_seconds(self, threads: int) -> float:
        """Return the seconds that the job takes at least on so many threads."""
        known = [seconds for others, seconds in self._known if others >= threads]
        return max(self.bounds.find_seconds(threads), max(known, default=0.0))

    def find_cost(self, pool: PoolSpec, nodes: int, seconds: float) -> float:
        """Return the cost of nodes for a time: their price, or core-hours."""
        rate = pool.price_per_hour if self.is_priced else None
        return nodes * (pool.cores if rate is None else rate) * seconds / 3600

    def has_same_graph(self, processes: int) -> bool:
        """Return whether a client of so many processes would build the graph of the sample."""
        return self._same_graph[processes == 1]

    def _builds_same_graph(self, processes: int) -> bool:
        if not self.job.depends_on_method:
            return True
        layout = self.template.make_layout(WorkerSpec(processes, 1, MIN_RAM, processes), 1)
        return find_shuffle_method(layout) == self._method

    def find_memory(self, worker: WorkerSpec) -> ProcessBaseline:
        """Return the memory of a process of a layout besides its units and results."""
        return self._find_baseline(self._make_layout(worker, 1))

    def _find_baseline(self, layout: Layout) -> ProcessBaseline:
        key = layout.threads, layout.shuffle_buffer
        if key not in self._baselines:
            self._baselines[key] = find_baseline(self.job.model, layout)
        return self._baselines[key]

    def _find_buffer(self, worker: WorkerSpec) -> float:
        if not self.job.has_shuffles:
            return self.job.layout.shuffle_buffer
        ram = worker.ram_per_proc
        if ram not in self._buffers:
            self._buffers[ram] = self.template.make_layout(worker, 2).shuffle_buffer
        return self._buffers[ram]

    def simulate(self, candidate: LayoutCandidate) -> MeasuredOption | str:
        """Return the option of a candidate, or the reason why the job does not fit on it."""
        worker, nodes = candidate.worker, candidate.nodes
        limit = self.template.usable * worker.ram_per_proc
        layout = self._make_layout(worker, nodes)
        timeline = self._simulate_evenly(layout)
        high = self.job.find_demand(max(timeline.peaks))
        if high <= limit:
            found = self._forecast(layout)
            high = found.demand
        if high > limit:
            return (
                f"with {worker} on each node up to {round_bytes(round(high))} are needed in a "
                f"process, of which {round_bytes(round(limit))} are usable"
            )
        unequal = find_unequal(self.job.kinds, self.job.model, found.typical)
        if unequal:
            return unequal[0]
        if self.is_local:
            worker, found = self._reduce_memory(worker, nodes, found)
        peak = max(found.typical.peaks)
        return MeasuredOption(
            candidate.pool,
            nodes,
            worker,
            # Without freed memory that cannot be used again, which is returned above half a limit.
            peak=round(peak),
            # The interval has that memory, and may begin above the peak.
            low=round(min(found.interval.low, peak)),
            high=round(found.demand),
            total=round(found.total),
            seconds=timeline.seconds,
            cost=self.find_cost(candidate.pool, nodes, timeline.seconds),
            is_local=self.is_local,
        )

    def _make_layout(self, worker: WorkerSpec, nodes: int) -> Layout:
        return Layout(
            nodes * worker.nprocs, worker.nthreads, shuffle_buffer=self._find_buffer(worker)
        )

    def _simulate_evenly(self, layout: Layout) -> Timeline:
        """Simulate the forecast durations; others would have other times than the bounds."""
        key = layout.processes, layout.threads, layout.shuffle_buffer
        if key not in self._timelines:
            model, memory = self.job.model, self._find_baseline(layout)
            simulation = Simulation(
                model.units, model.targets, memory, layout.processes, layout.threads, jitter=0.0
            )
            self._timelines[key] = simulation.run()
            threads = layout.processes * layout.threads
            self._known.append((threads, self._timelines[key].seconds))
        return self._timelines[key]

    def _forecast(self, layout: Layout) -> LayoutForecast:
        key = layout.processes, layout.threads, layout.shuffle_buffer
        if key not in self._forecasts:
            others = simulate_layout(self.job.model, layout, self._seeds)
            timelines = [self._simulate_evenly(layout), *others]
            self._forecasts[key] = evaluate_timelines(self.job, timelines, layout)
        return self._forecasts[key]

    def _reduce_memory(
        self, worker: WorkerSpec, nodes: int, found: LayoutForecast
    ) -> tuple[WorkerSpec, LayoutForecast]:
        """Return a layout whose processes have no more memory than they need."""
        # The buffers of shuffles are a share of the memory, so that less memory is needed then.
        for _ in range(2 if self.job.has_shuffles else 1):
            needed = math.ceil(found.demand / self.template.usable / _STEP) * _STEP
            ram = min(worker.ram_per_proc, max(MIN_RAM, needed))
            worker = replace(worker, ram_per_proc=ram)
            found = self._forecast(self._make_layout(worker, nodes))
        return worker, found
