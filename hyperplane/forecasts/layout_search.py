"""Search of the layouts on which a job fits into memory, with the time and cost of each.

A layout is a number of nodes of a pool, with processes and threads on each. Not all are simulated:

- those whose least memory (:mod:`hyperplane.forecasts.bounds`), which holds for every simulation,
  is too much;
- those with as many or more processes and threads on each of as many or fewer nodes as a layout of
  the same pool on which the job did not fit;
- those for which another option of the same pool, or of any pool beside another option of the same
  one, takes at most ``TOLERANCE`` of the least time and cost of theirs. The least time follows from
  the work and the longest chain of units, and from the simulations with as many or more threads:
  fewer threads are taken not to be faster.

The second and third rule may leave out a layout that is better. What is found has been simulated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from hyperplane.sizing.fit import STEP, balanced_layout
from hyperplane.sizing.recommend import PoolOption
from hyperplane.spec.pool import PoolSpec
from hyperplane.spec.worker import WorkerSpec

#: Ratio of times or costs that count as equal: forecasts of times are not better.
TOLERANCE = 1.1


@dataclass(frozen=True)
class LayoutCandidate:
    """Nodes of a pool with worker processes, and the least memory, time and cost on them.

    Parameters
    ----------
    pool : PoolSpec
        Type of node.
    nodes : int
        Number of nodes.
    worker : WorkerSpec
        Worker processes of each node, with all its memory.
    high : float
        Least upper end of the peak of a process in bytes.
    seconds, cost : float
        Least time, and cost for it.
    """

    pool: PoolSpec
    nodes: int
    worker: WorkerSpec
    high: float
    seconds: float
    cost: float

    @property
    def processes(self) -> int:
        """Number of worker processes of all nodes."""
        return self.nodes * self.worker.nprocs


@dataclass(frozen=True)
class MeasuredOption(PoolOption):
    """Nodes of a pool on which a job fits, with its forecast.

    Parameters
    ----------
    peak, low : int
        Largest memory of the largest worker process, and the lower end of its interval, in bytes.
    high : int
        Memory that it needs at most without spilling, in bytes.
    total : int
        Largest memory of all worker processes together, in bytes.
    seconds : float
        Time from the first to the last task.
    cost : float
        By what options are compared: the price, or core-hours if a pool has no price.
    is_local : bool
        Whether the node is this machine.
    """

    peak: int
    low: int
    high: int
    total: int
    seconds: float
    cost: float
    is_local: bool = False

    @property
    def core_hours(self) -> float:
        """Core-hours of whole nodes, with the cores that no process uses."""
        return self.nodes * self.pool.cores * self.seconds / 3600

    @property
    def price(self) -> float | None:
        """Price of the nodes for the time of the job; None if the pool has no price."""
        hourly = self.cost_per_hour
        return None if hourly is None else hourly * self.seconds / 3600

    def as_arguments(self) -> dict[str, Any]:
        """Return the option as arguments of ``initialize_cluster``."""
        where = {"engine": "local"} if self.is_local else {"pool": self.pool}
        return {"num_workers": self.nodes, **where, **self.worker.to_dict()}

    def to_dict(self) -> dict[str, Any]:
        """Return the option as values that JSON can represent."""
        return {
            **super().to_dict(),
            "is_local": self.is_local,
            "peak": self.peak,
            "low": self.low,
            "high": self.high,
            "total": self.total,
            "seconds": self.seconds,
            "core_hours": self.core_hours,
            "price": self.price,
        }


def list_workers(pool: PoolSpec) -> Iterator[WorkerSpec]:
    """Yield all layouts of a node: processes and threads, with its memory divided evenly."""
    cores = pool.whole_cores
    for nprocs in range(1, cores + 1):
        share = pool.allocatable_ram // nprocs
        for nthreads in range(1, cores // nprocs + 1):
            yield WorkerSpec(nprocs, nthreads, share // STEP * STEP or share, nprocs * nthreads)


def list_node_counts(most: int) -> Iterator[int]:
    """Yield powers of two, and up to 16 also one and a half times these.

    Examples
    --------
    >>> list(list_node_counts(70))
    [1, 2, 3, 4, 6, 8, 12, 16, 32, 64]
    """
    power = 1
    while power <= most:
        yield power
        if 1 < power < 16 and power * 3 // 2 <= most:
            yield power * 3 // 2
        power *= 2


def find_distance(pool: PoolSpec, worker: WorkerSpec) -> float:
    """Return how far a layout is from the one that the rule of layouts proposes for a pool."""
    processes, threads = balanced_layout(pool.whole_cores)
    return abs(math.log(worker.nprocs * threads / (worker.nthreads * processes)))


class SupportsLayouts(Protocol):
    """A job that can be simulated on candidates."""

    def simulate(self, candidate: LayoutCandidate) -> MeasuredOption | str:
        """Return the option of a candidate, or the reason why it is none."""
        ...

    def find_least_seconds(self, threads: int) -> float:
        """Return the seconds that the job takes at least on so many threads."""
        ...

    def find_cost(self, pool: PoolSpec, nodes: int, seconds: float) -> float:
        """Return the cost of nodes for a time."""
        ...


class LayoutSearch:
    """Simulates candidates, the cheapest first, and keeps those on which the job fits.

    Parameters
    ----------
    job : SupportsLayouts
        The job.
    usable : float
        Fraction of the memory of a process that the upper end of a peak must not exceed.
    """

    def __init__(self, job: SupportsLayouts, usable: float) -> None:
        self._job, self._usable = job, usable
        self.found: list[MeasuredOption] = []
        self.simulated = 0
        #: Names of pools -> why a layout that was simulated is no option.
        self.refused: dict[str, str] = {}
        self._too_large: list[LayoutCandidate] = []
        #: What was found for a candidate, by its ``id``.
        self._tried: dict[int, MeasuredOption | None] = {}
        self._bisected: set[str] = set()

    def search(self, candidates: Sequence[LayoutCandidate]) -> None:
        """Add the options on which the job fits to ``found``."""

        def order(candidate: LayoutCandidate) -> tuple[float, ...]:
            distance = find_distance(candidate.pool, candidate.worker)
            # Rounded, because costs that are equal differ in their last digits.
            return float(f"{candidate.cost:.6g}"), candidate.nodes, candidate.seconds, distance

        least = [each for each in candidates if each.worker.total_threads == 1]
        for candidate in sorted(candidates, key=order):
            if self._is_beyond(candidate) or self._is_covered(candidate):
                continue
            name, option = candidate.pool.name, self._try(candidate)
            if option is not None:
                self.found.append(option)
            elif name in self.refused and name not in self._bisected:
                self._bisected.add(name)
                self._bisect([each for each in least if each.pool.name == name])

    def _try(self, candidate: LayoutCandidate) -> MeasuredOption | None:
        """Return the option of a candidate; None if the job does not fit on it."""
        if candidate.high > self._usable * candidate.worker.ram_per_proc:
            return None
        if id(candidate) in self._tried:
            return self._tried[id(candidate)]
        self.simulated += 1
        found = self._job.simulate(candidate)
        option = None if isinstance(found, str) else found
        if isinstance(found, str):
            self.refused[candidate.pool.name] = found
            self._too_large.append(candidate)
        self._tried[id(candidate)] = option
        return option

    def _bisect(self, candidates: Sequence[LayoutCandidate]) -> None:
        """Find the fewest nodes of a pool on which the job fits with one thread on each.

        Fewer nodes are then left out.
        """
        ordered = sorted(candidates, key=lambda each: each.nodes)
        low, high = 0, len(ordered)
        while low < high:
            middle = (low + high) // 2
            if self._try(ordered[middle]) is None:
                low = middle + 1
            else:
                high = middle

    def _is_beyond(self, candidate: LayoutCandidate) -> bool:
        """Return whether the job did not fit on a layout with as few processes and threads."""
        return any(
            each.pool.name == candidate.pool.name
            and each.nodes >= candidate.nodes
            and each.worker.nprocs <= candidate.worker.nprocs
            and each.worker.nthreads <= candidate.worker.nthreads
            for each in self._too_large
        )

    def _is_covered(self, candidate: LayoutCandidate) -> bool:
        """Return whether an option is as good, within the tolerance, as a candidate can be."""
        pool, nodes = candidate.pool, candidate.nodes
        of_pool = [each for each in self.found if each.pool.name == pool.name]
        if not of_pool:  # each pool is to have an option, also if another pool is better
            return False
        seconds = self._job.find_least_seconds(nodes * candidate.worker.total_threads)
        cost = self._job.find_cost(pool, nodes, seconds)
        return any(
            each.seconds <= TOLERANCE * seconds and each.cost <= TOLERANCE * cost
            for each in self.found
        )


def choose_option(options: Sequence[MeasuredOption]) -> MeasuredOption:
    """Return the cheapest option.

    Of options whose costs are equal within the tolerance it is the one with the fewest nodes, of
    these the fastest, and of equally fast ones the one next to the layout that the rule proposes.
    """
    least = min(each.cost for each in options)
    cheap = [each for each in options if each.cost <= TOLERANCE * least]
    fewest = min(each.nodes for each in cheap)
    few = [each for each in cheap if each.nodes == fewest]
    fastest = min(each.seconds for each in few)
    fast = [each for each in few if each.seconds <= TOLERANCE * fastest]
    return min(fast, key=lambda each: (find_distance(each.pool, each.worker), each.seconds))


def find_front(options: Sequence[MeasuredOption]) -> list[MeasuredOption]:
    """Return the options than which no other is both faster and cheaper, the fastest first."""
    least = math.inf
    front = []
    for option in sorted(options, key=lambda each: (each.seconds, each.cost)):
        if option.cost < least:
            least = option.cost
            front.append(option)
    return front
