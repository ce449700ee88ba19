"""What each computation of a cluster takes: the tasks that one call of ``compute`` submits.

Schedulers without this package receive this module by value.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from dask.utils import key_split

from hyperplane.guard.graph_structure import Key, SourceSizes, find_sources, find_structure
from hyperplane.guard.process_usage import ProcessUsage
from hyperplane.history.figures import ComputationUsage

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import WorkerState

#: Most computations of different structure that are kept.
MAX_COMPUTATIONS = 200
#: Most computations that are measured at a time: each call of ``Client.submit`` is one.
MAX_OPEN = 20
#: Most computations whose files wait to be asked for their sizes.
MAX_INPUTS = 100
#: States in which a wanted result needs no more work.
ENDS = ("memory", "erred", "forgotten")


def process_metrics(worker: WorkerState) -> dict[str, float]:
    """Return what a worker's process has told about itself; empty without the plugin for it."""
    return worker.metrics.get(ProcessUsage.metric) or {}


class ProcessFigures(NamedTuple):
    """Memory of a worker process, its peak since its start, CPU seconds, and bytes read."""

    memory: int = 0
    peak: int = 0
    cpu: float = 0.0
    read: float = 0.0


class ClusterFigures:
    """Figures of all workers at one time, which all open computations share.

    Parameters
    ----------
    workers : iterable of WorkerState
        The connected workers.
    """

    def __init__(self, workers: Iterable[WorkerState]) -> None:
        self.processes: dict[str, ProcessFigures] = {}
        self.total = self.spilled = self.threads = self.held = 0
        self.paused = False
        for worker in workers:
            metrics, told = worker.metrics, process_metrics(worker)
            memory = metrics.get("memory") or 0
            self.processes[worker.address] = ProcessFigures(
                memory, int(told.get("peak", 0)), told.get("cpu", 0.0), told.get("read", 0.0)
            )
            self.total += memory
            self.spilled += (metrics.get("spilled_bytes") or {}).get("disk", 0)
            self.threads = max(self.threads, worker.nthreads)
            self.held = max(self.held, int(worker.nbytes))
            self.paused |= worker.status.name == "paused"


class OpenComputation:
    """A computation whose results are not there yet, or whose last figures are not.

    Parameters
    ----------
    usage : ComputationUsage
        Its figures.
    wanted : set
        Keys of the results that are still missing.
    before : ClusterFigures
        Figures of the workers when it began.
    """

    def __init__(self, usage: ComputationUsage, wanted: set[Key], before: ClusterFigures) -> None:
        self.usage, self.wanted = usage, wanted
        self.began = time.monotonic()
        self.has_ended = False
        self._before = before.processes

    def end(self) -> None:
        """Remember that all its results are there."""
        self.has_ended = True
        self.usage.seconds = time.monotonic() - self.began

    def measure(self, figures: ClusterFigures) -> None:
        """Take the present figures of the workers."""
        usage, nothing = self.usage, ProcessFigures()
        cpu = read = 0.0
        for address, now in figures.processes.items():
            before = self._before.get(address, nothing)
            usage.peak = max(usage.peak, now.memory)
            # The peak since the start of the process is that of this computation if it has risen.
            if now.peak > before.peak:
                usage.peak = max(usage.peak, now.peak)
            cpu += now.cpu - before.cpu
            read += now.read - before.read
        usage.disturbed |= figures.paused
        usage.total = max(usage.total, figures.total, usage.peak)
        usage.spilled = max(usage.spilled, figures.spilled)
        usage.cpu_seconds = max(usage.cpu_seconds, cpu)
        usage.read = max(usage.read, int(read))


class Computations:
    """All computations of a cluster, in the plugin of its scheduler that measures."""

    def __init__(self) -> None:
        self._open: list[OpenComputation] = []
        self._done: dict[str, ComputationUsage] = {}
        #: Keys of missing results, with the measured computations that want them.
        self.wanted: dict[Key, list[OpenComputation]] = {}
        #: Those of them that computations want which are not measured.
        self._unmeasured: set[Key] = set()
        #: Made when the first file is measured: its lock cannot be pickled with the plugin.
        self._inputs: InputQueue | None = None
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
        before = None
        if any(computation.has_ended for computation in self._open):
            before = ClusterFigures(scheduler.workers.values())
            self._finish_ended(before)
        if len(self._open) == 1:  # of several, each is shared already
            self._open[0].usage.shared = True
        if len(self._open) >= MAX_OPEN:
            self._unmeasured |= missing
            for key in missing:
                self.wanted.setdefault(key, [])
            return
        before = before or ClusterFigures(scheduler.workers.values())
        sources = find_sources(nodes)
        usage = ComputationUsage(
            name=key_split(next(iter(missing))),
            structure=find_structure(nodes),
            tasks=len(nodes),
            sources=len(sources),
            processes=len(before.processes),
            threads=before.threads,
            started=time.time(),
            empty=self.empty,
            held=before.held,
            shared=bool(self._open or self._unmeasured),
        )
        self._measure_input(usage, SourceSizes(sources))
        computation = OpenComputation(usage, missing, before)
        self._open.append(computation)
        for key in missing:
            self.wanted.setdefault(key, []).append(computation)

    def _measure_input(self, usage: ComputationUsage, sizes: SourceSizes) -> None:
        """Set the input of a computation; in a thread if files are asked for their sizes."""
        if not sizes.has_files:
            usage.input = sizes.measure()
            return
        if self._inputs is None:
            self._inputs = InputQueue()
        self._inputs.add(usage, sizes)

    def end_key(self, key: Key, finish: str) -> bool:
        """Note that a wanted result is there, or will not be; return whether that ends one."""
        has_ended = False
        self._unmeasured.discard(key)
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
        """Take the present figures of the workers; they are the last of what has ended."""
        if not self._open:
            return
        figures = ClusterFigures(workers)
        for computation in self._open:
            if not computation.has_ended:
                computation.measure(figures)
        self._finish_ended(figures)

    def _finish_ended(self, figures: ClusterFigures) -> None:
        """Take the last figures of the computations that have ended, and keep them."""
        ended = [computation for computation in self._open if computation.has_ended]
        for computation in ended:
            computation.measure(figures)
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


class InputQueue:
    """Computations whose files are asked for their sizes, one after another in a thread.

    A file system of the network may not answer, and the scheduler must go on. The input of a
    computation remains unknown if too many others wait.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[ComputationUsage, SourceSizes]] = deque()
        self._lock = threading.Lock()
        self._is_running = False

    def add(self, usage: ComputationUsage, sizes: SourceSizes) -> None:
        """Measure the input of a computation unless too many wait."""
        with self._lock:
            if len(self._waiting) >= MAX_INPUTS:
                return
            self._waiting.append((usage, sizes))
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="hyperplane-input", daemon=True).start()

    def _run(self) -> None:
        """Measure until none waits: no thread is left when the cluster has ended."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._is_running = False
                    return
                usage, sizes = self._waiting.popleft()
            usage.input = sizes.measure()
