"""Simulation of the units of a graph on worker processes: memory of each over the time.

Tasks start in the order of ``dask.order``. Those without inputs wait in one queue, as with Dask's
``worker-saturation``; others run where most of their inputs are, which are copied if needed. An
idle process takes a task of the process that has most waiting, if all threads of that one are
busy. A process knows :data:`DELAY` later that a task can start, and that a result is not needed any
more. The memory of a process at a time is the sum of

- an empty worker, and what its allocators keep between tasks,
- the results that it has, with copies, which it makes as soon as a task can start, also while its
  threads run others; parts that are views of a result keep all of it,
- the transient memory of the units that it runs, in full from the start to the end of each, or what
  malloc has kept after earlier units, if that is more: the next ones use it first, except units
  with larger blocks, which do not fit into freed ones,
- the partition that waits for its following tasks while its thread has begun with the next one,
- its share of the rows that are in shuffles, and those of one input that are being divided.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hyperplane.forecasts.heap_threads import find_heap_threads
from hyperplane.forecasts.memory_series import SeriesRecorder
from hyperplane.forecasts.unit_cost import UnitCost

#: Share of the rows of a shuffle that is in memory until its barrier. Measured: 0.4 to 1.0.
SHUFFLE_SHARE = 0.55
#: Tasks that a worker has at a time, for each thread (distributed.scheduler.worker-saturation).
SATURATION = 1.1
#: Buffer of a worker for rows that it writes to disk (distributed.p2p.storage.buffer).
DISK_BUFFER = 100 * 2**20
#: Ratio of the largest blocks of two units from which on those of one do not fit into those that
#: the other one has freed; blocks of equal units differ a little.
LARGER_BLOCK = 1.25
#: Seconds until a process knows that the inputs of a task have been computed, or that no other task
#: needs a result: messages to the scheduler and back. The thread that has computed the last input
#: begins with another task meanwhile, if one is ready.
DELAY = 0.003
#: Bytes below which a term of memory is nothing.
_LEAST_TERM = 1e-3
#: In place of the process in the event of a unit that is ready, or whose inputs are released, which
#: is first if both are at the same time.
_READY, _RELEASED = -1, -2
#: Names of the terms of memory that belong to no unit.
WORKER, ALLOCATOR, SHUFFLE = "an empty worker", "memory kept by allocators", "shuffle buffers"


@dataclass(frozen=True)
class ProcessBaseline:
    """Bytes of a process besides its units and results."""

    empty: float
    retained: float
    shuffle_buffer: float


@dataclass(frozen=True)
class Timeline:
    """Result of a simulation.

    Parameters
    ----------
    peaks : tuple of float
        Largest memory of each process, in bytes.
    total : float
        Largest memory of all processes at a time, in bytes.
    seconds : float
        Time from the first to the last unit.
    terms : mapping of (str, int or str) to float
        Bytes of the process with the largest memory at that time: ``("run", class)``,
        ``("result", class)`` and ``("process", name)``.
    seed : int
        Seed of the durations.
    """

    peaks: tuple[float, ...]
    total: float
    seconds: float
    terms: Mapping[tuple[str, int | str], float]
    seed: int = 0


class Simulation:
    """Simulation of one graph on ``processes`` processes of ``threads`` threads.

    Most events change one process. The rows in shuffles change all, but only grow until a barrier:
    the memory of a process is recorded before it changes and before rows are released.
    """

    def __init__(
        self,
        units: Sequence[UnitCost],
        targets: Sequence[int],
        memory: ProcessBaseline,
        processes: int,
        threads: int,
        seed: int = 0,
        jitter: float = 0.25,
        recorder: SeriesRecorder | None = None,
    ) -> None:
        self.units, self.memory = units, memory
        self.seed = seed
        self._recorder, self._now, self._last_end = recorder, 0.0, 0.0
        self.processes, self.threads = processes, threads
        self._random, self._jitter = random.Random(seed), jitter  # noqa: S311
        self._missing = [len(unit.dependencies) for unit in units]
        self._dependents: list[list[int]] = [[] for _ in units]
        for number, unit in enumerate(units):
            for other in unit.dependencies:
                self._dependents[other].append(number)
        self._users = [len(others) for others in self._dependents]
        for number in set(targets):
            self._users[number] += 1  # the caller needs the result
        self._roots: list[tuple[int, int]] = []
        self._ready: list[list[tuple[int, int]]] = [[] for _ in range(processes)]
        self._running = [0] * processes
        #: Running units and numbers of processes, also outdated ones.
        self._free = [(0, process) for process in range(processes)]
        #: Bytes of the results of a unit in each process that has them or a copy.
        self._holders: list[dict[int, float]] = [{} for _ in units]
        #: Process to which the inputs of a unit were copied, and that of a unit that has ended and
        #: whose inputs are not released yet.
        self._places: dict[int, int] = {}
        self._unreleased: dict[int, int] = {}
        #: Processes in which the result of a unit is a view.
        self._views: list[set[int]] = [set() for _ in units]
        #: Bytes of each process without shuffled rows and running units, and those of its units by
        #: their class.
        self._own = [memory.empty] * processes
        #: Transient memory of running units, and what malloc has kept in each thread.
        self._transient = [0.0] * processes
        self._heap = [0.0] * processes
        self._heap_share = find_heap_threads(threads) / threads
        self._heaps = [[0.0] * threads for _ in range(processes)]
        #: Largest block that was freed, running units with larger ones, and their memory.
        self._blocks = [0.0] * processes
        self._unfit: list[set[int]] = [set() for _ in range(processes)]
        self._apart = [0.0] * processes
        #: Partitions that wait during running units, and how many of them there can be.
        self._ahead: list[dict[int, float]] = [{} for _ in range(processes)]
        self._most_ahead = math.ceil(SATURATION * threads) - threads
        self._terms_of: list[dict[tuple[str, int | str], float]] = [{} for _ in range(processes)]
        self._started = [0] * processes
        #: Rows of each shuffle, and those of its largest input, which are received and divided in
        #: addition to what the buffers have.
        self._shuffled: dict[str, float] = {}
        self._received: dict[str, float] = {}
        self._shuffle = 0.0  # shuffled rows in each process
        self._peaks = [memory.empty] * processes
        self._largest = memory.empty
        self._sum = self._total = memory.empty * processes
        self._terms: Mapping[tuple[str, int | str], float] = {}
        self._waiting = 0  # units that could start
        #: Time, process and unit of those that end, or that are ready or released.
        self._events: list[tuple[float, int, int]] = []

    def run(self) -> Timeline:
        """Simulate all units."""
        for number, missing in enumerate(self._missing):
            if not missing:
                heapq.heappush(self._roots, (self.units[number].priority, number))
                self._waiting += 1
        events = self._events
        while True:
            while self._waiting and (free := self._find_free()) is not None:
                while self._waiting and self._running[free] < self.threads:
                    process, chosen = self._choose(free)
                    self._waiting -= 1
                    self._start(process, chosen)
                    if process != free:
                        heapq.heappush(self._free, (self._running[process], process))
                    factor = 1 + self._random.uniform(-self._jitter, self._jitter)
                    end = self._now + self.units[chosen].seconds * factor
                    heapq.heappush(events, (end, process, chosen))
                heapq.heappush(self._free, (self._running[free], free))
            if not events:
                break
            self._now, process, number = heapq.heappop(events)
            if process >= 0:
                self._end(process, number)
                continue
            if process == _RELEASED:
                self._forget_inputs(number)
                continue
            self._make_ready(number)
            # All units that are ready at this time can start, in the order of their priority.
            while events and events[0][:2] == (self._now, _READY):
                self._make_ready(heapq.heappop(events)[2])
        self._record_all()
        return Timeline(tuple(self._peaks), self._total, self._last_end, self._terms, self.seed)

    def _find_free(self) -> int | None:
        """Return the process that starts units next: that with the fewest running ones."""
        while self._free:
            running, process = self._free[0]
            if running == self._running[process] < self.threads:
                return process
            heapq.heappop(self._free)
        return None

    def _choose(self, process: int) -> tuple[int, int]:
        """Return the next unit, and its process: one that is free, or the one where its data is."""
        if self._ready[process]:
            return process, heapq.heappop(self._ready[process])[1]
        if self._roots:
            return process, heapq.heappop(self._roots)[1]
        lengths = list(map(len, self._ready))
        busiest = lengths.index(max(lengths))
        if self._running[busiest] < self.threads:
            process = busiest
        return process, heapq.heappop(self._ready[busiest])[1]

    def _start(self, process: int, number: int) -> None:
        unit = self.units[number]
        self._record(process)
        if not self._started[process]:
            self._add(process, self.memory.retained)
        self._copy_inputs(process, number)
        if unit.seconds >= DELAY:
            # They are released before this unit has all its memory.
            for ended in [each for each, where in self._unreleased.items() if where == process]:
                self._forget_inputs(ended)
        self._running[process] += 1
        transient = unit.transient
        # No partition waits yet when a thread begins its first one.
        can_wait = self._started[process] >= self.threads
        if unit.waiting and can_wait and len(self._ahead[process]) < self._most_ahead:
            # Several threads are rarely at their peaks together while a partition waits.
            self._ahead[process][number] = unit.waiting / self.threads
            transient += unit.waiting / self.threads
        if self._heap[process] and unit.block > LARGER_BLOCK * self._blocks[process]:
            self._unfit[process].add(number)
        self._add_transient(process, transient, number)
        self._started[process] += 1
        self._total = max(self._total, self._sum + self.processes * self._shuffle)

    def _end(self, process: int, number: int) -> None:
        unit, self._last_end = self.units[number], self._now
        if unit.ends:
            self._record_all()
        else:
            self._record(process)
        self._running[process] -= 1
        heapq.heappush(self._free, (self._running[process], process))
        transient = unit.transient + self._ahead[process].pop(number, 0.0)
        self._add_transient(process, -transient, number)
        self._keep_heap(process, number)
        if self._users[number]:
            self._hold(process, number)
        if not unit.is_view or not self._users[number]:
            self._unreleased[number] = process
            heapq.heappush(self._events, (self._now + DELAY, _RELEASED, number))
        for other in self._dependents[number]:
            self._missing[other] -= 1
            if not self._missing[other]:
                heapq.heappush(self._events, (self._now + DELAY, _READY, other))
        if unit.adds or unit.ends:
            self._change_shuffles(unit)
        self._total = max(self._total, self._sum + self.processes * self._shuffle)

    def _make_ready(self, number: int) -> None:
        """Let a unit start whose inputs have been computed, where it is to run."""
        process = self._find_process(number)
        self._copy_inputs(process, number)
        heapq.heappush(self._ready[process], (self.units[number].priority, number))
        self._waiting += 1

    def _change_shuffles(self, unit: UnitCost) -> None:
        for shuffle, size in unit.adds.items():
            self._shuffled[shuffle] = self._shuffled.get(shuffle, 0.0) + size
            self._received[shuffle] = max(self._received.get(shuffle, 0.0), size)
        for shuffle in unit.ends:
            self._shuffled.pop(shuffle, None)
            self._received.pop(shuffle, None)
        share = SHUFFLE_SHARE * sum(self._shuffled.values()) / self.processes
        received = sum(self._received.values())
        self._shuffle = min(share, self.memory.shuffle_buffer + DISK_BUFFER) + received

    def _find_process(self, number: int) -> int:
        """Return the process of a unit: that of its shuffled partition, or of most input bytes."""
        unit = self.units[number]
        if unit.takes:
            return min(int(unit.takes[0][1] * self.processes), self.processes - 1)
        local: dict[int, float] = {}
        for other, needed in unit.list_inputs():
            for process, held in self._holders[other].items():
                if size := min(needed, held):
                    local[process] = local.get(process, 0.0) + size
        if not local:
            return min(range(self.processes), key=self._count_units)
        return min(local, key=lambda each: (-local[each], self._count_units(each), each))

    def _count_units(self, process: int) -> int:
        return len(self._ready[process]) + self._running[process]

    def _hold(
        self, process: int, number: int, size: float = math.inf, most: float = math.inf
    ) -> None:
        """Have results of a unit in a process: all of it where it ran, and copies of others."""
        holders, unit = self._holders[number], self.units[number]
        before = holders.get(process)
        if before is None and unit.is_view and process in self._holders[unit.dependencies[0]]:
            self._views[number].add(process)
        if process in self._views[number]:
            holders[process] = unit.output
            return
        before = before or 0.0
        # Units that need the same results are not distinguished from those that need others.
        holders[process] = max(before, min(unit.output, most, before + size))
        self._add(process, holders[process] - before, ("result", unit.kind))

    def _copy_inputs(self, process: int, number: int) -> None:
        """Copy the inputs of a unit to the process that is to run it, which may run others."""
        if self._places.get(number) != process:
            self._places[number] = process
            for other, size in self.units[number].list_inputs():
                copied = self.units[other].copied
                self._hold(process, other, size * copied, self.units[other].output * copied)

    def _forget_inputs(self, number: int) -> None:
        """Release the inputs of a unit that no other one needs, unless this has been done."""
        if self._unreleased.pop(number, None) is None:
            return
        for other in self.units[number].dependencies:
            self._users[other] -= 1
            if not self._users[other]:
                self._release(other)

    def _release(self, number: int) -> None:
        unit = self.units[number]
        for process, size in self._holders[number].items():
            if process not in self._views[number]:
                self._record(process)
                self._add(process, -size, ("result", unit.kind))
        self._holders[number].clear()
        if unit.is_view:
            self._unreleased[number] = _RELEASED
            self._forget_inputs(number)

    def _add(self, process: int, size: float, term: tuple[str, int | str] | None = None) -> None:
        self._own[process] += size
        self._sum += size
        if term is not None:
            terms = self._terms_of[process]
            terms[term] = terms.get(term, 0.0) + size

    def _add_transient(self, process: int, size: float, number: int) -> None:
        before = self._find_running(process)
        if number in self._unfit[process]:
            self._apart[process] += size
        else:
            self._transient[process] += size
        self._sum += self._find_running(process) - before
        term = ("run", self.units[number].kind)
        terms = self._terms_of[process]
        terms[term] = terms.get(term, 0.0) + size

    def _find_running(self, process: int) -> float:
        """Return the memory of running units, or what malloc has kept, if that is more."""
        kept = self._heap[process] * self._heap_share
        return max(self._transient[process], kept) + self._apart[process]

    def _keep_heap(self, process: int, number: int) -> None:
        """Note what malloc keeps in the thread of a unit: in that which has kept the least."""
        unit = self.units[number]
        # Blocks that did not fit are at the end of the memory of malloc, which is returned.
        self._unfit[process].discard(number)
        if unit.heap:
            self._blocks[process] = max(self._blocks[process], unit.block)
        least = self._heaps[process][0]
        if unit.heap > least:
            heapq.heapreplace(self._heaps[process], unit.heap)
            before = self._find_running(process)
            self._heap[process] += unit.heap - least
            self._sum += self._find_running(process) - before

    def _record_all(self) -> None:
        for process in range(self.processes):
            self._record(process)

    def _record(self, process: int) -> None:
        """Record the memory of a process before it changes."""
        size = self._own[process] + self._find_running(process) + self._shuffle
        if self._recorder is not None:
            self._recorder.record(process, self._now, size)
        if size > self._peaks[process]:
            self._peaks[process] = size
            if size > self._largest:
                self._largest = size
                self._terms = self._list_terms(process)

    def _list_terms(self, process: int) -> dict[tuple[str, int | str], float]:
        terms: dict[tuple[str, int | str], float] = {
            ("process", WORKER): self.memory.empty,
            ("process", ALLOCATOR): (self.memory.retained if self._started[process] else 0.0)
            + max(0.0, self._heap[process] * self._heap_share - self._transient[process]),
            ("process", SHUFFLE): self._shuffle,
            **self._terms_of[process],
        }
        # Differences of sums of floats are not exactly zero.
        return {key: size for key, size in terms.items() if abs(size) >= _LEAST_TERM}
