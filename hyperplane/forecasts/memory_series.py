"""Memory of simulated worker processes over the time: the largest value in each of equal parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: Parts into which the time of a simulation is divided.
PARTS = 160


@dataclass(frozen=True)
class MemorySeries:
    """Memory of all processes over a simulated run.

    Parameters
    ----------
    seconds : float
        Time from the first to the last task.
    processes : tuple of tuple of float
        For each process the largest memory, in bytes, in each of equal parts of the time.
    """

    seconds: float
    processes: tuple[tuple[float, ...], ...]

    @property
    def peaks(self) -> tuple[float, ...]:
        """Largest memory of each process in bytes."""
        return tuple(max(values) for values in self.processes)


class SeriesRecorder:
    """Records the memory of processes whenever it changes, as the largest value of each part.

    Parameters
    ----------
    processes : int
        Number of processes.
    seconds : float
        Time of the simulation, which is known from an earlier one with the same durations.
    parts : int
        Number of parts of the time.
    """

    def __init__(self, processes: int, seconds: float, parts: int = PARTS) -> None:
        self._seconds, self._parts = seconds, parts
        self._values = [[0.0] * parts for _ in range(processes)]
        self._since = [0] * processes

    def record(self, process: int, now: float, size: float) -> None:
        """Record that a process had this memory from its last change until now."""
        share = now / self._seconds if self._seconds else 1.0
        last = min(int(share * self._parts), self._parts - 1)
        values = self._values[process]
        for part in range(self._since[process], last + 1):
            values[part] = max(values[part], size)
        self._since[process] = last

    def list_series(self) -> MemorySeries:
        """Return what was recorded."""
        values: Sequence[Sequence[float]] = self._values
        return MemorySeries(self._seconds, tuple(map(tuple, values)))
