"""Worker plugin that records what is in the memory of a worker.

It reports two causes itself, because the process survives them: an error of an allocation in a
task, and results that do not fit in memory because the disk for spilled results is full.

Processes without this package receive this module by value.
"""

from __future__ import annotations

import logging
import math
import os
import re
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distributed.core import Status
from distributed.diagnostics.plugin import WorkerPlugin

from hyperplane.guard.freed_memory import FreedMemory, return_freed_memory
from hyperplane.guard.memory_record import (
    FILE,
    MemoryFile,
    ProcessMemory,
    read_shuffle_buffers,
    read_spilled,
    shorten_key,
)
from hyperplane.guard.memory_report import TOPIC, Cause, MemoryReport, RunningTask

if TYPE_CHECKING:
    from dask.typing import Key
    from distributed import Worker

#: Seconds between two samples of what the process holds.
INTERVAL = 0.25
#: Samples, 4 a second, after which the freed memory of a paused worker is returned to the system,
#: and after which it is stuck.
_TRIM_AFTER, _STUCK_AFTER = 4, 20
#: Name in reports of the rows of shuffles that are in memory.
SHUFFLE_BUFFERS = "buffers of shuffles"
#: States of a worker's task whose function may still run.
_RUNNING = {"executing", "long-running", "cancelled", "resumed"}
#: Texts (``repr``) of exceptions about an allocation that failed: only their beginning, because the
#: rest may quote another error.
_ALLOCATION = re.compile(
    r"([\w.]+\.)?(MemoryError|_?ArrayMemoryError|ArrowMemoryError)\b"
    r"|[\w.]+\(['\"](std::bad_alloc|malloc of size \d+ failed|Unable to allocate )"
)
#: Texts about the memory of a GPU, for which CuPy, RMM and others use the same classes.
_GPU = re.compile(r"cuda|\brmm\b|cupy|\bhip\b|device memory|\bgpu\b", re.IGNORECASE)
_REQUESTED = re.compile(r"Unable to allocate ([\d.]+) ([KMGTPE]?)i?B|malloc of size (\d+) failed")
#: Shape and bits of the type of the array in ``MemoryError((10, 10), dtype('float64'))``.
_ARRAY = re.compile(r"MemoryError\(\(([\d, ]+)\), dtype\('[a-z]+(\d*)")
#: Logger of Dask's spilling, which keeps data in memory and logs why; it raises nothing.
_SPILL_LOGGER = "distributed.spill"
_SPILL_FAILURES = ("Spill file on disk reached capacity", "Spill to disk failed")


def is_allocation_error(text: str) -> bool:
    """Return whether the text of an exception is that of a failed allocation, not on a GPU."""
    return _ALLOCATION.match(text) is not None and _GPU.search(text) is None


def requested_bytes(text: str) -> int:
    """Return the bytes that a failed allocation requested; 0 if its text does not say."""
    found = _REQUESTED.search(text)
    if found is None:
        return _array_bytes(text)
    if found[3]:
        return int(found[3])
    return int(float(found[1]) * 1024 ** (" KMGTPE".index(found[2]) if found[2] else 0))


def _array_bytes(text: str) -> int:
    """Return the bytes of the array in the arguments of NumPy's exception; 0 without it."""
    found = _ARRAY.search(text)
    if found is None:
        return 0
    shape = [int(length) for length in found[1].split(",") if length.strip()]
    return math.prod(shape) * int(found[2] or 64) // 8


class _SpillFailures(logging.Handler):
    """Handler that remembers when Dask last logged that results could not be spilled."""

    failed_at = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        if str(record.msg).startswith(_SPILL_FAILURES):
            self.failed_at = time.monotonic()


class MemoryRecorder(WorkerPlugin):
    """Worker plugin that writes running tasks and held results to a MemoryFile."""

    name = "hyperplane-memory-recorder"

    def setup(self, worker: Worker) -> None:
        """Create the file and start to sample."""
        self._ended = threading.Event()
        self._ended.set()  # other methods do nothing if this one fails
        self._worker = worker
        self._memory = ProcessMemory()
        self._freed = FreedMemory(self._memory)
        self._empty = self._memory.read()[0]
        self._file = MemoryFile(Path(worker.local_directory, FILE), create=True)
        # At once, because a first task that holds the GIL prevents samples.
        self._file.write_held(self._empty, self._empty, 0, {})
        self._held: dict[str, int] = {}
        self._sizes: dict[Key, tuple[str, int]] = {}
        self._running: set[Key] = set()
        self._spill_failures = _SpillFailures()
        self._paused_samples, self._paused_at = 0, (0, 0)
        logging.getLogger(_SPILL_LOGGER).addHandler(self._spill_failures)
        self._ended.clear()
        self._sampler = threading.Thread(
            target=self._sample_repeatedly, name="hyperplane-memory", daemon=True
        )
        self._sampler.start()

    def teardown(self, worker: Worker) -> None:
        """Stop to sample, and close the file."""
        del worker
        if self._ended.is_set():
            return
        self._ended.set()
        self._sampler.join(timeout=5)
        logging.getLogger(_SPILL_LOGGER).removeHandler(self._spill_failures)
        self._file.close()
        self._memory.close()

    def transition(self, key: Key, start: str, finish: str, **kwargs: Any) -> None:
        """Record tasks that begin and end, and results that come and go."""
        if self._ended.is_set():
            return
        if finish == "executing":
            self._begin(key)
        elif key in self._running and finish not in _RUNNING:
            if finish == "error":
                self._report_allocation(key)
            self._running.discard(key)
            self._file.end_task(key)
        if finish == "memory":
            task = self._worker.state.tasks[key]
            size = task.nbytes or 0
            self._sizes[key] = task.prefix, size
            self._held[task.prefix] = self._held.get(task.prefix, 0) + size
        elif start == "memory" and key in self._sizes:
            prefix, size = self._sizes.pop(key)
            self._held[prefix] -= size
            if self._held[prefix] <= 0:
                del self._held[prefix]

    def _begin(self, key: Key) -> None:
        task = self._worker.state.tasks[key]
        # Before the task needs it: a sample may come too late.
        limit = self._worker.memory_manager.memory_limit
        memory, reserved = self._freed.return_if_useful(limit, in_loop=True)
        fast = getattr(self._worker.data, "fast", self._worker.data)  # without results on disk
        begun = RunningTask(
            key="",  # of the file
            prefix=task.prefix,
            seconds=0.0,
            memory_before=memory,
            inputs=sum(each.nbytes or 0 for each in task.dependencies),
            reserved_before=reserved,
            inputs_held=sum(each.nbytes or 0 for each in task.dependencies if each.key in fast),
            held_before=sum(self._describe_held().values()),
        )
        self._running.add(key)
        self._file.begin_task(key, begun)

    def _describe_held(self) -> dict[str, int]:
        """Return the bytes of results by the prefix of their task, and of shuffles."""
        buffers = read_shuffle_buffers(self._worker)
        return {**self._held, SHUFFLE_BUFFERS: buffers} if buffers else dict(self._held)

    def _sample_repeatedly(self) -> None:
        while not self._ended.wait(INTERVAL):
            try:
                self._sample()
            except (RuntimeError, ValueError):  # a dict changed meanwhile, or the file was closed
                continue

    def _sample(self) -> None:
        memory, _ = self._freed.return_if_useful(self._worker.memory_manager.memory_limit)
        spilled = read_spilled(self._worker.data)
        self._file.write_held(memory, self._empty, spilled, self._describe_held())
        self._check_paused(memory, spilled)

    def _check_paused(self, memory: int, spilled: int) -> None:
        """Report a worker that stays paused without a running task, and whose memory does not fall.

        Memory that Dask has freed by spilling may not have left the process. It rises for a while
        each time that Dask pickles a result for which the disk has no room.
        """
        limit = self._worker.memory_manager.memory_limit or 1
        unchanged = memory > self._paused_at[0] - 0.01 * limit and spilled == self._paused_at[1]
        if self._worker.status != Status.paused or self._running or not unchanged:
            self._paused_samples, self._paused_at = 0, (memory, spilled)
            return
        self._paused_samples += 1
        if self._paused_samples == _TRIM_AFTER:
            return_freed_memory()
        elif self._paused_samples == _STUCK_AFTER:
            failed = self._spill_failures.failed_at and getattr(self._worker.data, "fast", True)
            cause: Cause = "spill disk" if failed else "paused"
            self._worker.loop.add_callback(self._send, cause, ())

    def _report_allocation(self, key: Key) -> None:
        text = self._worker.state.tasks[key].exception_text
        if is_allocation_error(text):
            record = self._file.read()
            tasks = tuple(task for task in record.running if task.key == shorten_key(key))
            self._send("allocation", tasks, requested_bytes(text))

    def _send(self, cause: Cause, running: tuple[RunningTask, ...], requested: int = 0) -> None:
        """Send a report through the connection that also tells the scheduler of errors."""
        worker = self._worker
        memory, reserved = self._memory.read()
        report = MemoryReport(
            worker=worker.address,
            name=str(worker.name),
            cause=cause,
            peak=memory,
            limit=int(worker.memory_manager.memory_limit or 0),
            running=running or self._file.read().running,
            held=self._describe_held(),
            spilled=read_spilled(worker.data),
            threads=worker.state.nthreads,
            pid=os.getpid(),
            time=time.time(),
            empty=self._empty,
            reserved=reserved + requested,
        )
        worker.log_event(TOPIC, report.as_event())
