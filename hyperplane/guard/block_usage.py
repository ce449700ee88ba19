"""What a cluster takes during one block of a program.

Schedulers without this package receive this module by value, and those that it imports.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hyperplane.guard.computation_usage import process_metrics
from hyperplane.guard.usage import UsageMonitor
from hyperplane.history.figures import WorkerUsage

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import WorkerState

#: Most workers of which a block measures the memory twice a second; of more every two seconds.
_MANY_WORKERS = 64


class BlockMonitor(UsageMonitor):
    """Scheduler plugin that measures what a cluster takes until its client ends the block.

    It warns about nothing: that is for the monitor of the whole cluster.

    Parameters
    ----------
    block : str
        Unique id of the block.
    client : str
        Id of the client that runs it; when it leaves, the measurement ends.
    """

    def __init__(self, block: str, client: str) -> None:
        super().__init__(spill=False, warn=_ignore)
        self.name = f"hyperplane-block-{block}"
        #: Scheduler handler that ends the measurement and returns the figures.
        self.handler = f"hyperplane_end_block_{block}"
        self._client = client
        #: Whether the client has given up the measurement, perhaps before the scheduler has it.
        self.is_cancelled = False
        #: Largest memory of each process before the block, and when it began by the clock of its
        #: machine, by the addresses of the workers.
        self._peaks: dict[str, int] = {}
        self._began: dict[str, float] = {}

    async def start(self, scheduler: Scheduler) -> None:
        """Start to measure; what processes have taken before does not count."""
        self.scheduler = scheduler
        await self._ask_all()
        self._told = {each.address: process_metrics(each) for each in scheduler.workers.values()}
        self._peaks = {name: int(told.get("peak", 0)) for name, told in self._told.items()}
        self._began = {name: told.get("time", 0.0) for name, told in self._told.items()}
        if not self.is_cancelled:
            await super().start(scheduler)

    def _add_handlers(self, scheduler: Scheduler) -> None:
        scheduler.handlers[self.handler] = self.finish

    async def finish(self) -> dict[str, Any]:
        """Return the figures of the block, and end the measurement.

        ``plan`` is that of the cluster if this package has started it; else it is empty.
        """
        try:
            await self.ask_workers()
            usage = self.usage()
        finally:
            self._end()
        monitor = self.scheduler.plugins.get(UsageMonitor.name)
        usage["plan"] = dict(getattr(monitor, "plan", {}))
        # An earlier task can look as if it still ran, until the next heartbeat of its worker.
        return {**usage, "tasks": [each for each in usage["tasks"] if each["count"]]}

    def cancel(self) -> None:
        """End the measurement without its figures, on a scheduler of this process."""
        self.is_cancelled = True
        if hasattr(self, "_samples"):
            self._end()

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        """End the measurement if its client has left."""
        del scheduler
        if client == self._client:
            self._end()

    def _end(self) -> None:
        self._watch.stop()
        self._samples.stop()
        self.scheduler.handlers.pop(self.handler, None)
        with suppress(ValueError):
            self.scheduler.remove_plugin(name=self.name)

    def _sample(self) -> None:
        """Measure between two measurements of a long run: a block may be short."""
        super()._sample()
        if len(self.scheduler.workers) <= _MANY_WORKERS:
            self.measure()

    def _note_empty(self, figures: WorkerUsage, process: int) -> None:
        """Leave it unknown: earlier work of the process may have left something."""

    def _read_memory(self, worker: WorkerState) -> int:
        """Return the memory of a process; 0 if its last heartbeat has that before the block."""
        is_old = worker.metrics.get("time", 0.0) < self._began.get(worker.address, 0.0)
        return 0 if is_old else super()._read_memory(worker)

    def _find_peak(self, address: str, told: dict[str, float]) -> int:
        """Return the largest memory since the start of the process if this block has raised it."""
        peak = super()._find_peak(address, told)
        return peak if peak > self._peaks.get(address, 0) else 0


def _ignore(text: str) -> None:
    """Drop a warning."""
