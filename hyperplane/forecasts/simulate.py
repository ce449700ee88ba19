"""Simulation of the units of a graph on worker processes: memory of each over the time.

Tasks start in the order of ``dask.order``. Those without inputs wait in one queue, as with Dask's
``worker-saturation``; others run where most of their inputs are, which are copied if needed. An
idle process takes a task of the process that has most waiting. A result is released after the
last unit that needs it. The memory of a process at a time is the sum of

- an empty worker, and what its allocators keep between tasks,
- the results that it has, with copies,
- the transient memory of the units that it runs, in full from the start to the end of each,
- its share of the rows that are in shuffles.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

#: Share of the rows of a shuffle that is in memory until its barrier. Measured: 0.4 to 1.0.
SHUFFLE_SHARE = 0.85
#: Buffer of a worker for rows that it writes to disk (distributed.p2p.storage.buffer).
DISK_BUFFER = 100 * 2**20
#: Names of the terms of memory that belong to no unit.
WORKER, ALLOCATOR, SHUFFLE = "an empty worker", "memory kept by allocators", "shuffle buffers"


@dataclass(frozen=True)
class UnitCost:
    """What a unit takes.

    Parameters
    ----------
    kind : int
        Class of the unit.
    priority : int
        Order of its start.
    dependencies : tuple of int
        Numbers of the units that must end before.
    output : float
        Bytes of its results.
    transient : float
        Bytes that its process has in addition while it runs, the results included.
    seconds : float
        Duration.
    adds : mapping of str to float
        Bytes that it adds to each shuffle.
    ends : tuple of str
        Shuffles whose barrier it is.
    takes : tuple of (str, float)
        Shuffle and relative position, 0 to 1, of the partition that it takes out of it.
    """

    kind: int
    priority: int
    dependencies: tuple[int, ...]
    output: float
    transient: float
    seconds: float
    adds: Mapping[str, float] = field(default_factory=dict)
    ends: tuple[str, ...] = ()
    takes: tuple[tuple[str, float], ...] = ()


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
    """

    peaks: tuple[float, ...]
    total: float
    seconds: float
    terms: Mapping[tuple[str, int | str], float]


class Simulation:
    """Simulation of one graph on ``processes`` processes of ``threads`` threads."""

    def __init__(
        self,
        units: Sequence[UnitCost],
        targets: Sequence[int],
        memory: ProcessBaseline,
        processes: int,
        threads: int,
        seed: int = 0,
        jitter: float = 0.25,
    ) -> None:
        self.units, self.memory = units, memory
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
        self._running: list[set[int]] = [set() for _ in range(processes)]
        self._holders: list[set[int]] = [set() for _ in units]
        self._results = [0.0] * processes
        self._transient = [0.0] * processes
        self._held: list[Counter[int]] = [Counter() for _ in range(processes)]
        self._shuffled: dict[str, float] = {}
        self._peaks = [memory.empty] * processes
        self._total = memory.empty * processes
        self._terms: Mapping[tuple[str, int | str], float] = {}
        self._has_run = [False] * processes
        self._waiting = 0  # units that could start

    def run(self) -> Timeline:
        """Simulate all units."""
        for number, missing in enumerate(self._missing):
            if not missing:
                heapq.heappush(self._roots, (self.units[number].priority, number))
                self._waiting += 1
        events: list[tuple[float, int, int]] = []
        now = 0.0
        while True:
            for process in self._find_free():
                while self._waiting and len(self._running[process]) < self.threads:
                    chosen = self._choose(process)
                    self._waiting -= 1
                    self._start(process, chosen)
                    factor = 1 + self._random.uniform(-self._jitter, self._jitter)
                    end = now + self.units[chosen].seconds * factor
                    heapq.heappush(events, (end, chosen, process))
            if not events:
                break
            now, number, process = heapq.heappop(events)
            self._end(process, number)
        return Timeline(tuple(self._peaks), self._total, now, self._terms)

    def _find_free(self) -> list[int]:
        """Return the processes that can start a unit now, those with the fewest units first."""
        if not self._waiting:
            return []
        free = [each for each in range(self.processes) if len(self._running[each]) < self.threads]
        return sorted(free, key=lambda each: len(self._running[each]))

    def _choose(self, process: int) -> int:
        """Return the next unit of a process: its own, one of the queue, or one of another."""
        if self._ready[process]:
            return heapq.heappop(self._ready[process])[1]
        if self._roots:
            return heapq.heappop(self._roots)[1]
        return heapq.heappop(max(self._ready, key=len))[1]

    def _start(self, process: int, number: int) -> None:
        unit = self.units[number]
        for other in unit.dependencies:
            self._hold(process, other)
        self._running[process].add(number)
        self._transient[process] += unit.transient
        self._has_run[process] = True
        self._record()

    def _end(self, process: int, number: int) -> None:
        unit = self.units[number]
        self._running[process].discard(number)
        self._transient[process] -= unit.transient
        for shuffle, size in unit.adds.items():
            self._shuffled[shuffle] = self._shuffled.get(shuffle, 0.0) + size
        for shuffle in unit.ends:
            self._shuffled.pop(shuffle, None)
        if self._users[number]:
            self._hold(process, number)
        for other in unit.dependencies:
            self._users[other] -= 1
            if not self._users[other]:
                self._release(other)
        for other in self._dependents[number]:
            self._missing[other] -= 1
            if not self._missing[other]:
                where = self._find_process(other)
                heapq.heappush(self._ready[where], (self.units[other].priority, other))
                self._waiting += 1
        self._record()

    def _find_process(self, number: int) -> int:
        """Return the process of a unit: that of its shuffled partition, or of most input bytes."""
        unit = self.units[number]
        if unit.takes:
            return min(int(unit.takes[0][1] * self.processes), self.processes - 1)
        local = [0.0] * self.processes
        for other in unit.dependencies:
            for process in self._holders[other]:
                local[process] += self.units[other].output
        waiting = [
            len(ready) + len(running)
            for ready, running in zip(self._ready, self._running, strict=True)
        ]
        return max(range(self.processes), key=lambda each: (local[each], -waiting[each]))

    def _hold(self, process: int, number: int) -> None:
        if process not in self._holders[number]:
            self._holders[number].add(process)
            self._results[process] += self.units[number].output
            self._held[process][number] = 1

    def _release(self, number: int) -> None:
        for process in self._holders[number]:
            self._results[process] -= self.units[number].output
            del self._held[process][number]
        self._holders[number].clear()

    def _record(self) -> None:
        share = SHUFFLE_SHARE * sum(self._shuffled.values()) / self.processes
        shuffle = min(share, self.memory.shuffle_buffer + DISK_BUFFER)
        total = 0.0
        for process in range(self.processes):
            retained = self.memory.retained if self._has_run[process] else 0.0
            size = self.memory.empty + retained + shuffle
            size += self._results[process] + self._transient[process]
            total += size
            if size > self._peaks[process]:
                if size > max(self._peaks):
                    self._terms = self._list_terms(process, retained, shuffle)
                self._peaks[process] = size
        self._total = max(self._total, total)

    def _list_terms(
        self, process: int, retained: float, shuffle: float
    ) -> dict[tuple[str, int | str], float]:
        terms: dict[tuple[str, int | str], float] = {
            ("process", WORKER): self.memory.empty,
            ("process", ALLOCATOR): retained,
            ("process", SHUFFLE): shuffle,
        }
        for number in self._running[process]:
            key = ("run", self.units[number].kind)
            terms[key] = terms.get(key, 0.0) + self.units[number].transient
        for number in self._held[process]:
            key = ("result", self.units[number].kind)
            terms[key] = terms.get(key, 0.0) + self.units[number].output
        return {key: size for key, size in terms.items() if size}
