"""What each computation of a cluster takes: the tasks that one call of ``compute`` submits.

Schedulers without this package receive this module by value.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dask.utils import key_split

from hyperplane.guard.graph_structure import Key, SourceSizes, find_structure
from hyperplane.guard.process_usage import ProcessUsage
from hyperplane.history.figures import ComputationUsage

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import WorkerState

#: Most computations of different structure that are kept.
MAX_COMPUTATIONS = 200
#: States in which a wanted result needs no more work.
ENDS = ("memory", "erred", "forgotten")


def process_metrics(worker: WorkerState) -> dict[str, float]:
    """Return what a worker's process has told about itself; empty without the plugin for it."""
    return worker.metrics.get(ProcessUsage.metric) or {}


class OpenComputation:
    """A computation whose results are not there yet, or whose last figures are not.

    Parameters
    ----------
    usage : ComputationUsage
        Its figures.
    wanted : set
        Keys of the results that are still missing.
    """

    def __init__(self, usage: ComputationUsage, wanted: set[Key]) -> None:
        self.usage, self.wanted = usage, wanted
        self.began = time.monotonic()
        self.has_ended = False
        #: What the processes had taken when it began, by their addresses.
        self._before: dict[str, dict[str, float]] = {}

    def start(self, workers: Iterable[WorkerState]) -> None:
        """Remember what the workers have taken before."""
        for worker in workers:
            self._before[worker.address] = process_metrics(worker)
            self.usage.held = max(self.usage.held, int(worker.nbytes))

    def end(self) -> None:
        """Remember that all its results are there."""
        self.has_ended = True
        self.usage.seconds = time.monotonic() - self.began

    def measure(self, workers: Iterable[WorkerState]) -> None:
        """Take the present figures of the workers."""
        usage = self.usage
        total = spilled = 0
        cpu = read = 0.0
        for worker in workers:
            memory = worker.metrics.get("memory") or 0
            total += memory
            spilled += (worker.metrics.get("spilled_bytes") or {}).get("disk", 0)
            now = process_metrics(worker)
            before = self._before.get(worker.address, {})
            highest = int(now.get("peak", 0))
            # The peak since the start of the process is that of this computation if it has risen.
            if highest > before.get("peak", 0):
                memory = max(memory, highest)
            usage.peak = max(usage.peak, memory)
            cpu += now.get("cpu", 0.0) - before.get("cpu", 0.0)
            read += now.get("read", 0.0) - before.get("read", 0.0)
            usage.disturbed |= worker.status.name == "paused"
        usage.total = max(usage.total, total, usage.peak)
        usage.spilled = max(usage.spilled, spilled)
        usage.cpu_seconds = max(usage.cpu_seconds, cpu)
        usage.read = max(usage.read, int(read))


class Computations:
    """All computations of a cluster, in the plugin of its scheduler that measures."""

    def __init__(self) -> None:
        self._open: list[OpenComputation] = []
        self._done: dict[str, ComputationUsage] = {}
        #: Keys of missing results, with the computations that want them.
        self.wanted: dict[Key, list[OpenComputation]] = {}
        #: Memory of an idle worker process in bytes: that of the largest one.
        self.empty = 0

    def begin(self, scheduler: Scheduler, keys: Iterable[Key], tasks: Iterable[Key]) -> None:
        """Add a computation whose graph has come to the scheduler."""
        states = {key: scheduler.tasks[key] for key in tasks if key in scheduler.tasks}
        missing = {
            key for key in keys if key in scheduler.tasks and scheduler.tasks[key].state not in ENDS
        }
        nodes = {key: state.run_spec for key, state in states.items() if state.run_spec is not None}
        if not missing or not nodes:
            return
        self.finish_ended(scheduler.workers.values())
        workers = scheduler.workers.values()
        sources = [node for node in nodes.values() if not node.dependencies]
        usage = ComputationUsage(
            name=key_split(next(iter(missing))),
            structure=find_structure(nodes),
            tasks=len(nodes),
            sources=len(sources),
            processes=len(workers),
            threads=max((worker.nthreads for worker in workers), default=0),
            started=time.time(),
            empty=self.empty,
            shared=bool(self._open),
        )
        measure_input(usage, SourceSizes(sources))
        for other in self._open:
            other.usage.shared = True
        computation = OpenComputation(usage, missing)
        computation.start(workers)
        self._open.append(computation)
        for key in missing:
            self.wanted.setdefault(key, []).append(computation)

    def end_key(self, key: Key, finish: str) -> bool:
        """Note that a wanted result is there, or will not be; return whether that ends one."""
        has_ended = False
        for computation in self.wanted.pop(key, ()):
            computation.wanted.discard(key)
            computation.usage.failed += finish != "memory"
            if not computation.wanted:
                computation.end()
                has_ended = True
        return has_ended

    def disturb(self) -> None:
        """Note that workers have come or gone."""
        for computation in self._open:
            computation.usage.disturbed = True

    def measure(self, workers: Iterable[WorkerState]) -> None:
        """Take the present figures of the workers."""
        workers = list(workers)
        for computation in self._open:
            computation.measure(workers)

    def finish_ended(self, workers: Iterable[WorkerState]) -> None:
        """Take the last figures of the computations that have ended, and keep them."""
        ended = [computation for computation in self._open if computation.has_ended]
        if ended:
            self.measure(workers)
        for computation in ended:
            self._open.remove(computation)
            self._keep(computation.usage)

    def _keep(self, usage: ComputationUsage) -> None:
        """Add a computation to those of its structure."""
        key = usage.structure or usage.name
        known = self._done.pop(key, None)
        if known is not None:
            usage.count += known.count
            if (known.input, known.peak) > (usage.input, usage.peak):
                known.count, usage = usage.count, known
        self._done[key] = usage
        if len(self._done) > MAX_COMPUTATIONS:
            shortest = min(self._done, key=lambda key: self._done[key].seconds)
            del self._done[shortest]

    def list_done(self) -> list[ComputationUsage]:
        """Return the computations that have ended."""
        return list(self._done.values())


def measure_input(usage: ComputationUsage, sizes: SourceSizes) -> None:
    """Set the input of a computation; in a thread if files are asked for their sizes.

    A file system of the network may not answer, and the scheduler must go on.
    """

    def measure() -> None:
        usage.input = sizes.measure()

    if sizes.has_files:
        threading.Thread(target=measure, name="hyperplane-input", daemon=True).start()
    else:
        measure()
