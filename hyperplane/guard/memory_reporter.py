"""Nanny plugin that reports what was in the memory of a worker process when it was ended.

Before Dask ends a process for its memory, the plugin stops it, so that it does not grow further,
and sends the report; the scheduler then knows the reason before it sees the worker leave. The
report of a process that the kernel ends follows the end.

Nannies without this package receive this module by value.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from distributed.diagnostics.plugin import NannyPlugin

from hyperplane.core.dask_internals import nannies
from hyperplane.guard.memory_record import FILE, MemoryFile, MemoryRecord
from hyperplane.guard.memory_report import EXIT_TOPIC, NEAR_LIMIT, TOPIC, Cause, MemoryReport
from hyperplane.guard.oom_counters import OomCounters

if TYPE_CHECKING:
    from distributed import Nanny

logger = logging.getLogger("distributed.nanny.memory")

#: Exit code of a process that SIGKILL ended.
_KILLED = -9
#: Share of its limit that the memory of a killed process must have reached shortly before if no
#: counter of the kernel has grown; those of a batch system's or a container's own limit may not be
#: readable. Below it, the reason is more likely a scheduler of jobs or a person.
_LARGE = 0.85
#: Seconds before its end for which the memory of a process counts, and number of kept samples.
_RECENT, _SAMPLES = 2.0, 1000
#: Seconds that the scheduler may take to accept a report.
_SEND_SECONDS = 2.0
#: The same before the process is ended; it is stopped, and a busy scheduler may need longer.
_GROW_SECONDS = 10.0
#: Requests for a larger limit in turn that a busy scheduler may leave without an answer.
_MAX_UNANSWERED = 3
_STATUS = re.compile(r"^(VmHWM|VmRSS|VmData):\s+(\d+) kB", re.MULTILINE)


def read_process_memory(pid: int) -> tuple[int, int, int] | None:
    """Return memory now, its peak and the allocated memory of a process, in bytes.

    None if it has ended. Without Linux's files the peak is that of now, and nothing is allocated.
    """
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except FileNotFoundError:
        with suppress(psutil.Error):
            memory = psutil.Process(pid).memory_info().rss
            return memory, memory, 0
        return None
    except OSError:
        return None
    sizes = {name: int(size) * 1024 for name, size in _STATUS.findall(text)}
    if "VmRSS" not in sizes:  # it has ended, and its parent has not noticed
        return None
    return sizes["VmRSS"], sizes["VmHWM"], sizes["VmData"]


class PeakSamples:
    """Samples of the memory of a process, from which the peak since a time is known.

    A later sample replaces those before it that are smaller, so that few are kept.
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque(maxlen=_SAMPLES)
        self._time, self._largest = 0.0, 0

    def add(self, now: float, memory: int, largest: int) -> None:
        """Add a sample: memory now, and the largest memory since the process began.

        The time of a new largest memory is that of the sample before it, because the task that
        runs now may have begun later.
        """
        if self._largest and largest > self._largest:
            self._push(self._time, largest)
        self._push(now, memory)
        self._time, self._largest = now, largest

    def _push(self, now: float, memory: int) -> None:
        while self._samples and self._samples[-1][1] <= memory:
            self._samples.pop()
        self._samples.append((now, memory))

    def find_peak(self, since: float) -> int:
        """Return the largest memory since a time in seconds; 0 without a sample."""
        return next((memory for time, memory in self._samples if time >= since), 0)


@contextmanager
def _stop_process(pid: int) -> Iterator[None]:
    """Stop a process during the block; a signal that ends it takes effect after the block."""
    stop = getattr(signal, "SIGSTOP", None)
    if stop is None:
        yield
        return
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, stop)
    try:
        yield
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGCONT)


class MemoryReporter(NannyPlugin):
    """Nanny plugin that sends a MemoryReport when its worker process is ended for memory."""

    name = "hyperplane-memory-reporter"

    def setup(self, nanny: Nanny) -> None:
        """Start to sample the memory of the worker process."""
        self._nanny = nanny
        self._counters = OomCounters()
        self._pid, self._ended_address = 0, ""
        self._forget()
        nannies.precede_memory_check(nanny, self._watch)
        nannies.precede_worker_exit(nanny, self._report_exit)

    def teardown(self, nanny: Nanny) -> None:
        """Stop to sample."""
        nannies.remove_memory_check(nanny)
        nannies.remove_worker_exit(nanny)
        self._close_file()

    def _forget(self) -> None:
        self._address, self._is_ending, self._is_reported = "", False, False
        self._unanswered = 0
        self._samples, self._reserved = PeakSamples(), 0
        self._file: MemoryFile | None = None

    async def _watch(self, check: Callable[[], object]) -> None:
        """Sample the memory; report before Dask's check ends the process."""
        process = nannies.get_process(self._nanny)
        if process is None:
            return
        pid, address, folder, self._is_ending = process
        if pid != self._pid:
            self._forget()
            self._pid, self._is_ending = pid, process[3]
        self._address = address or self._address
        if self._file is None and folder:
            with suppress(OSError, ValueError):  # the worker has not written it yet
                self._file = MemoryFile(Path(folder, FILE))
        memory = read_process_memory(pid)
        if memory is None:
            check()
            return
        self._counters.refresh()
        self._samples.add(time.time(), *memory[:2])
        self._reserved = memory[2]
        if self._is_reported or not nannies.exceeds_terminate(self._nanny, memory[0]):
            check()
            return
        with _stop_process(pid):
            is_answered = await self._send("terminate", NEAR_LIMIT)
            self._unanswered = 0 if is_answered else self._unanswered + 1
            if not nannies.exceeds_terminate(self._nanny, memory[0]):
                return  # its limit has grown
            if 0 < self._unanswered <= _MAX_UNANSWERED:
                return  # a busy scheduler: it is asked again at the next check
            self._is_reported = True
            await self._send("terminate")
            check()
            # Dask ends the process in another thread; until then it must not continue.
            await asyncio.sleep(0.05)

    async def _report_exit(self, exit_code: int) -> None:
        """Report a process that has ended, but not by its nanny."""
        # It may have ended before it was watched.
        latest = nannies.get_latest_address(self._nanny)
        if latest != self._ended_address:
            self._address = self._ended_address = latest
        if not self._is_reported and not self._is_ending:
            cause = self._counters.find_cause() if exit_code == _KILLED else None
            recent = self._samples.find_peak(time.time() - _RECENT)
            is_large = exit_code == _KILLED and recent > _LARGE * self._get_limit()
            if cause is not None or is_large:
                await self._send("cgroup" if cause == "cgroup" else "kernel")
            else:
                await self._send_exit(exit_code)
        self._close_file()
        self._forget()
        self._pid = 0

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _get_limit(self) -> int:
        limit = self._nanny.memory_manager.memory_limit
        return int(limit or psutil.virtual_memory().total)

    def _read_record(self) -> MemoryRecord:
        if self._file is not None:
            with suppress(ValueError, struct.error):  # the process ended while it wrote
                return self._file.read()
        return MemoryRecord()

    def _find_peak(self, record: MemoryRecord) -> int:
        """Return the largest memory since the first running task began, or shortly before now."""
        now = time.time()
        if not record.running:
            return self._samples.find_peak(now - _RECENT) or record.memory
        before = max(task.memory_before for task in record.running)
        return max(before, self._samples.find_peak(now - record.running[0].seconds))

    async def _send_exit(self, exit_code: int) -> None:
        """Report a process that did not end for its memory, unless it closed without a task."""
        record = self._read_record()
        if exit_code == 0 and not record.running:
            return
        report = {
            "worker": self._address,
            "name": str(self._nanny.name),
            "exit_code": exit_code,
            "running": [task.key for task in record.running],
            "peak": self._find_peak(record),
            "limit": self._get_limit(),
        }
        with suppress(Exception):  # the nanny must go on without the report
            sending = self._nanny.scheduler.log_event(topic=EXIT_TOPIC, msg=report)
            await asyncio.wait_for(sending, _SEND_SECONDS)

    async def _send(self, cause: Cause, topic: str = TOPIC) -> bool:
        """Send a report to the scheduler; return whether it has accepted it."""
        record = self._read_record()
        report = MemoryReport(
            worker=self._address,
            name=str(self._nanny.name),
            cause=cause,
            peak=self._find_peak(record),
            limit=self._get_limit(),
            running=record.running,
            held=dict(record.held or {}),
            spilled=record.spilled,
            threads=self._nanny.nthreads,
            pid=self._pid,
            time=time.time(),
            empty=record.empty,
            reserved=self._reserved,
        )
        try:
            sending = self._nanny.scheduler.log_event(topic=topic, msg=report.as_event())
            await asyncio.wait_for(sending, _SEND_SECONDS if topic == TOPIC else _GROW_SECONDS)
        except Exception as error:  # noqa: BLE001 - the nanny must go on without the report
            reason = str(error) or type(error).__name__
            logger.warning("no report of the memory of worker %s: %s", self._address, reason)
            return False
        return True
