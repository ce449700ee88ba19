"""Warnings about workers that lack memory for long.

Schedulers without this package receive this module by value, and those that it imports.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hyperplane.guard.usage_texts import describe_pressure, find_cause

if TYPE_CHECKING:
    from distributed.scheduler import WorkerState

#: Seconds that a worker must be paused, or above its spill threshold, until there is a warning. A
#: worker whose results are spilled in time is above it for a few seconds only.
PAUSED_SECONDS, SPILL_SECONDS = 6.0, 20.0


class PressureWarnings:
    """Decide when a worker has lacked memory for so long that there is a warning.

    Parameters
    ----------
    spill : float or False
        Threshold of the memory policy above which a worker is watched; False for none.
    name_operation : callable
        Returns the name under which tasks with a prefix count; there is one warning for each.
    """

    def __init__(self, spill: float | bool, name_operation: Callable[[str], str]) -> None:
        self.spill = spill
        self.name_operation = name_operation
        #: Times since when workers lack memory, by address.
        self.since: dict[str, float] = {}
        #: What warnings were about: the operation, and whether its results or its tasks.
        self.issued: set[tuple[str, str]] = set()

    def check(self, worker: WorkerState, process: int, spilled: int, now: float) -> str:
        """Return a warning if a worker has been paused or above its threshold for long, or "".

        Parameters
        ----------
        worker : distributed.scheduler.WorkerState
            The worker.
        process, spilled : int
            Memory of its process, and bytes of its results on disk.
        now : float
            Seconds of a monotonic clock.
        """
        paused = worker.status.name == "paused"
        limit = worker.memory_limit
        if not limit or not (paused or (self.spill and process > self.spill * limit)):
            self.since.pop(worker.address, None)
            return ""
        seconds = now - self.since.setdefault(worker.address, now)
        if seconds < (PAUSED_SECONDS if paused else SPILL_SECONDS):
            return ""
        operation, held = find_cause(worker, process + spilled)
        known = self.name_operation(operation) if operation else ""
        subject = known, "results" if held else "tasks"
        if subject in self.issued:
            return ""
        self.issued.add(subject)
        return describe_pressure(
            str(worker.name),
            process,
            limit,
            paused=paused,
            seconds=seconds,
            operation=operation,
            held=held,
            nthreads=worker.nthreads,
        )
