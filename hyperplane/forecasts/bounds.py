"""Least memory and least time of a job on any layout, without a simulation of it.

Every simulation has at least this memory and time, so that a layout for which they are too much
need not be simulated. They follow from what each simulation has at some time:

- a unit that runs, with its inputs, in one process;
- the first units, which all threads start together, in the order of their priority;
- all results for the caller, on all processes;
- all rows of a shuffle before its barrier, on all processes;

and from the work of all units on all threads, and the longest chain of units.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from hyperplane.forecasts.model import GraphModel
from hyperplane.forecasts.simulated_memory import DISK_BUFFER, SHUFFLE_SHARE, ProcessBaseline
from hyperplane.forecasts.unit_cost import UnitCost


class JobBounds:
    """Least memory and time of a job on layouts of worker processes.

    Parameters
    ----------
    model : GraphModel
        The job.
    """

    def __init__(self, model: GraphModel) -> None:
        units = model.units
        self._units = units
        self.work = sum(unit.seconds for unit in units)
        ends: list[float] = []
        depths: list[int] = []
        needs = [0.0]
        shuffles: dict[str, float] = {}
        # Units come after those that they depend on.
        for unit in units:
            others = unit.dependencies
            ends.append(unit.seconds + max((ends[other] for other in others), default=0.0))
            depths.append(1 + max((depths[other] for other in others), default=-1))
            needs.append(unit.transient + _sum_outputs(units, dict(unit.list_inputs())))
            for name, size in unit.adds.items():
                shuffles[name] = shuffles.get(name, 0.0) + size
        self.longest_chain = max(ends, default=0.0)
        #: Most units of which none needs another, of those with as many units before them.
        self.width = int(max(np.bincount(depths), default=1))
        self._largest_need = max(needs)
        self._results = _sum_outputs(units, dict.fromkeys(model.targets, math.inf))
        self._largest_shuffle = max(shuffles.values(), default=0.0)

    def find_peak(self, processes: int, threads: int, memory: ProcessBaseline) -> float:
        """Return bytes that the largest process has at least in every simulation."""
        rows = SHUFFLE_SHARE * self._largest_shuffle / processes
        return (
            memory.empty
            + memory.retained
            + max(
                self._largest_need,
                self._find_first(processes, threads),
                self._results / processes,
                min(rows, memory.shuffle_buffer + DISK_BUFFER),
            )
        )

    def find_seconds(self, threads: int) -> float:
        """Return the seconds that the job takes at least on all these threads together."""
        return max(self.longest_chain, self.work / threads)

    @cached_property
    def _sums_of_roots(self) -> np.ndarray:
        """Transient memory of the units without inputs together, in the order of their start."""
        found = sorted(
            (unit.priority, number, unit.transient)
            for number, unit in enumerate(self._units)
            if not unit.dependencies
        )
        return np.cumsum([transient for *_, transient in found])

    def _find_first(self, processes: int, threads: int) -> float:
        """Return the mean of the units that all processes start first."""
        sums = self._sums_of_roots
        first = min(processes * threads, len(sums))
        return float(sums[first - 1]) / processes if first else 0.0


def _sum_outputs(units: Sequence[UnitCost], chosen: Mapping[int, float]) -> float:
    """Return the bytes of results that are in memory together, at least.

    Of each chosen unit there are the bytes that are needed, at most those of a copy in another
    process. Views of one result together have no more than it.
    """
    sizes: dict[int, float] = {}
    for number, size in chosen.items():
        root, unit = number, units[number]
        while units[root].is_view:
            root = units[root].dependencies[0]
        most = units[root].output * units[root].copied
        needed = min(size, unit.output * unit.copied)
        sizes[root] = min(most, sizes.get(root, 0.0) + needed)
    return sum(sizes.values())
