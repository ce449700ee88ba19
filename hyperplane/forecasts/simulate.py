"""Simulation of the units of a graph on worker processes: which unit runs where, and when.

Tasks start in the order of ``dask.order``. Those without inputs wait in one queue, as with Dask's
``worker-saturation``. Others run in a process that has one of their inputs, the one that can start
them first, as with Dask's scheduler: after the units that it has been given, and when it has copied
the other inputs, which takes their bytes divided by :data:`BANDWIDTH`. It copies them while its
threads run other units. An idle process takes a unit of the process that has most to do, if that is
faster. A process knows :data:`DELAY` later that a unit can start, and that a result is not needed
any more.

The memory of the processes is in :mod:`hyperplane.forecasts.simulated_memory`.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hyperplane.forecasts.memory_series import SeriesRecorder
from hyperplane.forecasts.simulated_memory import ProcessBaseline, SimulatedMemory
from hyperplane.forecasts.unit_cost import UnitCost

#: Seconds until a process knows that the inputs of a task have been computed, or that no other task
#: needs a result: messages to the scheduler and back. The thread that has computed the last input
#: begins with another task meanwhile, if one is ready.
DELAY = 0.003
#: Bytes per second with which a process copies results of others.
BANDWIDTH = 2e9
#: In place of the process in the event of a unit whose inputs are released, whose inputs have been
#: copied, or that is ready; at the same time in this order.
_RELEASED, _COPIED, _READY = -3, -2, -1


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
        recorder: SeriesRecorder | None = None,
    ) -> None:
        self.units, self.seed = units, seed
        self.processes, self.threads = processes, threads
        self._random, self._jitter = random.Random(seed), jitter  # noqa: S311
        self._missing = [len(unit.dependencies) for unit in units]
        self._dependents: list[list[int]] = [[] for _ in units]
        for number, unit in enumerate(units):
            for other in unit.dependencies:
                self._dependents[other].append(number)
        users = [len(others) for others in self._dependents]
        for number in set(targets):
            users[number] += 1  # the caller needs the result
        self._memory = SimulatedMemory(units, users, memory, processes, threads, recorder)
        self._roots: list[tuple[int, int]] = []
        self._ready: list[list[tuple[int, int]]] = [[] for _ in range(processes)]
        self._running = [0] * processes
        #: Running units and numbers of processes, also outdated ones.
        self._free = [(0, process) for process in range(processes)]
        self._waiting = 0  # units that could start
        #: Seconds of the units that a process runs or has been given, the process that a unit was
        #: given to, and the time until which each process copies results.
        self._backlog = [0.0] * processes
        self._given: dict[int, int] = {}
        self._copying = [0.0] * processes
        #: Process with the largest backlog, for all idle ones that look for a unit at one time.
        self._busiest: int | None = None
        #: Units that have ended in a process, whose inputs are not released yet.
        self._ended: list[dict[int, None]] = [{} for _ in range(processes)]
        #: Time, process and unit of those that end, or for which something else happens.
        self._events: list[tuple[float, int, int]] = []
        self._now = self._last_end = 0.0

    def run(self) -> Timeline:
        """Simulate all units."""
        for number, missing in enumerate(self._missing):
            if not missing:
                heapq.heappush(self._roots, (self.units[number].priority, number))
                self._waiting += 1
        while True:
            self._start_units()
            if not self._events:
                break
            self._now, process, number = heapq.heappop(self._events)
            self._memory.now = self._now
            if process >= 0:
                self._end(process, number)
            elif process == _RELEASED:
                self._release_inputs(number)
            elif process == _COPIED:
                self._make_startable(number)
            else:
                self._give([number])
        self._memory.record_all()
        memory = self._memory
        return Timeline(tuple(memory.peaks), memory.total, self._last_end, memory.terms, self.seed)

    def _start_units(self) -> None:
        """Start all units that can start now."""
        self._busiest = None
        idle = []
        while self._waiting and (process := self._find_free()) is not None:
            heapq.heappop(self._free)
            number = self._choose(process)
            if number is None:
                idle.append(process)
                continue
            self._waiting -= 1
            self._start(process, number)
            heapq.heappush(self._free, (self._running[process], process))
        for process in idle:
            heapq.heappush(self._free, (self._running[process], process))

    def _find_free(self) -> int | None:
        """Return the process that starts units next: that with the fewest running ones."""
        while self._free:
            running, process = self._free[0]
            if running == self._running[process] < self.threads:
                return process
            heapq.heappop(self._free)
        return None

    def _choose(self, process: int) -> int | None:
        """Return the next unit of a process; None if there is none."""
        if self._ready[process]:
            return heapq.heappop(self._ready[process])[1]
        if self._roots:
            number = heapq.heappop(self._roots)[1]
            self._backlog[process] += self.units[number].seconds
            self._busiest = None
            return number
        return self._take(process)

    def _take(self, process: int) -> int | None:
        """Return a unit of the process that has most to do, if this one is faster."""
        if self._busiest is None:
            self._busiest = self._backlog.index(max(self._backlog))
        busiest = self._busiest
        if self._running[busiest] < self.threads or not self._ready[busiest]:
            return None
        number = self._ready[busiest][0][1]
        unit = self.units[number]
        local, size = self._find_inputs(number)
        size -= local.get(process, 0.0)
        until_start = self._backlog[busiest] / self.threads - unit.seconds / 2
        # A partition of a shuffle can be taken in one process only.
        if unit.takes or unit.seconds + size / BANDWIDTH > until_start:
            return None
        heapq.heappop(self._ready[busiest])
        self._backlog[busiest] -= unit.seconds
        self._backlog[process] += unit.seconds
        self._busiest = None
        self._memory.copy_inputs(process, number)
        return number

    def _start(self, process: int, number: int) -> None:
        unit = self.units[number]
        if unit.seconds >= DELAY:
            # They are released before this unit has all its memory.
            for ended in list(self._ended[process]):
                self._release_inputs(ended)
        self._running[process] += 1
        self._memory.start_unit(process, number)
        factor = 1 + self._random.uniform(-self._jitter, self._jitter)
        heapq.heappush(self._events, (self._now + unit.seconds * factor, process, number))

    def _end(self, process: int, number: int) -> None:
        unit, self._last_end = self.units[number], self._now
        self._running[process] -= 1
        self._backlog[process] -= unit.seconds
        heapq.heappush(self._free, (self._running[process], process))
        self._memory.end_unit(process, number)
        self._given[number] = process
        if not self._memory.is_kept_as_view(number):
            self._ended[process][number] = None
            heapq.heappush(self._events, (self._now + DELAY, _RELEASED, number))
        for other in self._dependents[number]:
            self._missing[other] -= 1
            if not self._missing[other]:
                heapq.heappush(self._events, (self._now + DELAY, _READY, other))

    def _release_inputs(self, number: int) -> None:
        """Release the inputs of a unit that has ended, unless this has been done."""
        ended = self._ended[self._given[number]]
        if number in ended:
            del ended[number]
            self._memory.release_inputs(number)

    def _give(self, ready: list[int]) -> None:
        """Give units whose inputs have been computed to processes, by their priority."""
        while self._events and self._events[0][:2] == (self._now, _READY):
            ready.append(heapq.heappop(self._events)[2])
        for number in sorted(ready, key=lambda each: self.units[each].priority):
            process, size = self._find_process(number)
            self._given[number] = process
            self._backlog[process] += self.units[number].seconds
            if not size:
                self._make_startable(number)
                continue
            copied = max(self._now, self._copying[process]) + size / BANDWIDTH
            self._copying[process] = copied
            heapq.heappush(self._events, (copied, _COPIED, number))

    def _make_startable(self, number: int) -> None:
        """Let a unit start, whose process has or copies all its inputs."""
        process = self._given[number]
        self._memory.copy_inputs(process, number)
        heapq.heappush(self._ready[process], (self.units[number].priority, number))
        self._waiting += 1

    def _find_process(self, number: int) -> tuple[int, float]:
        """Return the process of a unit, and the bytes that it has to copy.

        That of its shuffled partition, or one that has inputs and can start it first.
        """
        unit = self.units[number]
        if unit.takes:
            return min(int(unit.takes[0][1] * self.processes), self.processes - 1), 0.0
        local, size = self._find_inputs(number)
        if not local:
            return min(range(self.processes), key=self._count_units), 0.0

        def find_start(process: int) -> tuple[float, float, int]:
            backlog = self._backlog[process] / self.threads
            return backlog + (size - local[process]) / BANDWIDTH, -local[process], process

        process = min(local, key=find_start)
        return process, max(0.0, size - local[process])

    def _find_inputs(self, number: int) -> tuple[dict[int, float], float]:
        """Return the bytes of the inputs of a unit that processes have, and of all."""
        local: dict[int, float] = {}
        total = 0.0
        for other, needed in self.units[number].list_inputs():
            size = min(needed, self.units[other].output) * self.units[other].copied
            if size:
                total += size
                for process, held in self._memory.holders[other].items():
                    local[process] = local.get(process, 0.0) + min(size, held)
        return local, total

    def _count_units(self, process: int) -> int:
        return len(self._ready[process]) + self._running[process]
