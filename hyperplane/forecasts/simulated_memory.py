"""Memory of simulated worker processes.

The memory of a process at a time is the sum of

- an empty worker, and what its allocators keep between tasks,
- the results that it has, with copies of those of other processes; views of a result take nothing
  where it is, but keep all of it,
- the transient memory of the units that it runs, in full from the start to the end of each, or what
  malloc has kept after earlier units, if that is more: the next ones use it first, except units
  with larger blocks, which do not fit into freed ones,
- the partition that waits for its following tasks while its thread has begun with the next one,
- its share of the rows that are in shuffles, and those of one input that are being divided.

Most events change one process. The rows in shuffles change all, but only grow until a barrier: the
memory of a process is recorded before it changes and before rows are released.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hyperplane.forecasts.heap_threads import find_heap_threads
from hyperplane.forecasts.memory_series import SeriesRecorder
from hyperplane.forecasts.unit_cost import UnitCost

#: Share of the rows of a shuffle that is in memory until its barrier. Measured: 0.4 to 1.0.
SHUFFLE_SHARE = 0.55
#: Buffer of a worker for rows that it writes to disk (distributed.p2p.storage.buffer).
DISK_BUFFER = 100 * 2**20
#: Tasks that a worker has at a time, for each thread (distributed.scheduler.worker-saturation).
SATURATION = 1.1
#: Ratio of the largest blocks of two units from which on those of one do not fit into those that
#: the other one has freed. Freed blocks beside each other become one.
LARGER_BLOCK = 1.6
#: Bytes below which a term of memory is nothing.
_LEAST_TERM = 1e-3
#: Names of the terms of memory that belong to no unit.
WORKER, ALLOCATOR, SHUFFLE = "an empty worker", "memory kept by allocators", "shuffle buffers"


@dataclass(frozen=True)
class ProcessBaseline:
    """Bytes of a process besides its units and results."""

    empty: float
    retained: float
    shuffle_buffer: float


class SimulatedMemory:
    """Memory of the processes of a simulation.

    Parameters
    ----------
    units : sequence of UnitCost
        All units of the graph.
    users : list of int
        For each unit how many units, and the caller, need its result.
    baseline : ProcessBaseline
        Memory of each process.
    processes, threads : int
        Number of processes, and threads of each.
    recorder : SeriesRecorder, optional
        Gets the memory of each process over the time.
    """

    def __init__(
        self,
        units: Sequence[UnitCost],
        users: list[int],
        baseline: ProcessBaseline,
        processes: int,
        threads: int,
        recorder: SeriesRecorder | None = None,
    ) -> None:
        self.units, self._baseline, self._users = units, baseline, users
        self.processes, self.threads = processes, threads
        self._recorder = recorder
        #: Time of the simulation.
        self.now = 0.0
        #: Bytes of the results of a unit in each process that has them or a copy.
        self.holders: list[dict[int, float]] = [{} for _ in units]
        #: Processes in which the result of a unit is a view.
        self._views: list[set[int]] = [set() for _ in units]
        #: Bytes of each process without shuffled rows and running units, and those of its units by
        #: their class.
        self._own = [baseline.empty] * processes
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
        self.peaks = [baseline.empty] * processes
        self._largest = baseline.empty
        self._sum = self.total = baseline.empty * processes
        #: Parts of the largest peak.
        self.terms: Mapping[tuple[str, int | str], float] = {}

    def start_unit(self, process: int, number: int) -> None:
        """Add the memory of a unit that starts."""
        unit = self.units[number]
        self._record(process)
        if not self._started[process]:
            self._add(process, self._baseline.retained)
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
        self._note_total()

    def end_unit(self, process: int, number: int) -> None:
        """Remove the memory of a unit that ends, and add its results."""
        unit = self.units[number]
        if unit.ends:
            self.record_all()
        else:
            self._record(process)
        transient = unit.transient + self._ahead[process].pop(number, 0.0)
        self._add_transient(process, -transient, number)
        self._keep_heap(process, number)
        if self._users[number]:
            self._hold(process, number)
        if unit.adds or unit.ends:
            self._change_shuffles(unit)
        self._note_total()

    def copy_inputs(self, process: int, number: int) -> None:
        """Add copies of the inputs of a unit that are in other processes."""
        for other, size in self.units[number].list_inputs():
            copied = self.units[other].copied
            self._hold(process, other, size * copied, self.units[other].output * copied)

    def release_inputs(self, number: int) -> None:
        """Release the inputs of a unit that no other one needs."""
        for other in self.units[number].dependencies:
            self._users[other] -= 1
            if not self._users[other]:
                self._release(other)

    def is_kept_as_view(self, number: int) -> bool:
        """Return whether the result of a unit keeps its input in memory until it is released."""
        return self.units[number].is_view and self._users[number] > 0

    def record_all(self) -> None:
        """Record the memory of all processes."""
        for process in range(self.processes):
            self._record(process)

    def _change_shuffles(self, unit: UnitCost) -> None:
        for shuffle, size in unit.adds.items():
            self._shuffled[shuffle] = self._shuffled.get(shuffle, 0.0) + size
            self._received[shuffle] = max(self._received.get(shuffle, 0.0), size)
        for shuffle in unit.ends:
            self._shuffled.pop(shuffle, None)
            self._received.pop(shuffle, None)
        share = SHUFFLE_SHARE * sum(self._shuffled.values()) / self.processes
        received = sum(self._received.values())
        self._shuffle = min(share, self._baseline.shuffle_buffer + DISK_BUFFER) + received

    def _hold(
        self, process: int, number: int, size: float = math.inf, most: float = math.inf
    ) -> None:
        """Have results of a unit in a process: all of it where it ran, and copies of others."""
        holders, unit = self.holders[number], self.units[number]
        before = holders.get(process)
        if before is None and unit.is_view and process in self.holders[unit.dependencies[0]]:
            self._views[number].add(process)
        if process in self._views[number]:
            holders[process] = unit.output
            return
        before = before or 0.0
        # Units that need the same results are not distinguished from those that need others.
        holders[process] = max(before, min(unit.output, most, before + size))
        self._add(process, holders[process] - before, ("result", unit.kind))

    def _release(self, number: int) -> None:
        unit = self.units[number]
        for process, size in self.holders[number].items():
            if process not in self._views[number]:
                self._record(process)
                self._add(process, -size, ("result", unit.kind))
        self.holders[number].clear()
        if unit.is_view:
            self.release_inputs(number)

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

    def _note_total(self) -> None:
        self.total = max(self.total, self._sum + self.processes * self._shuffle)

    def _record(self, process: int) -> None:
        """Record the memory of a process before it changes."""
        size = self._own[process] + self._find_running(process) + self._shuffle
        if self._recorder is not None:
            self._recorder.record(process, self.now, size)
        if size > self.peaks[process]:
            self.peaks[process] = size
            if size > self._largest:
                self._largest = size
                self.terms = self._list_terms(process)

    def _list_terms(self, process: int) -> dict[tuple[str, int | str], float]:
        terms: dict[tuple[str, int | str], float] = {
            ("process", WORKER): self._baseline.empty,
            ("process", ALLOCATOR): (self._baseline.retained if self._started[process] else 0.0)
            + max(0.0, self._heap[process] * self._heap_share - self._transient[process]),
            ("process", SHUFFLE): self._shuffle,
            **self._terms_of[process],
        }
        # Differences of sums of floats are not exactly zero.
        return {key: size for key, size in terms.items() if abs(size) >= _LEAST_TERM}
