"""CPU seconds and memory of a process and its descendants."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

#: Seconds between two runs, in which allocators return memory.
_IDLE_SECONDS = 6.0


def _tree() -> list[psutil.Process]:
    me = psutil.Process()
    return [me, *me.children(recursive=True)]


def cpu_seconds() -> float:
    """Return user and system time of this process and its descendants, also of ended ones."""
    total = 0.0
    for process in _tree():
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += sum(times[:4])
    return total


def memory_mb() -> float:
    """Return the memory (without file cache) of this process and its descendants.

    Memory that they share is counted for each of them.
    """
    total = 0
    for process in _tree():
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            continue
        for line in status.splitlines():
            if line.startswith(("RssAnon", "RssShmem")):
                total += int(line.split()[1])
    return total / 1000


def wait_until_cold() -> None:
    """Wait until the workers of hyperplane, if there are any, hold no tables of former runs.

    They keep the right side of a join for five seconds, and would not read it in the next run.
    """
    time.sleep(_IDLE_SECONDS)
    if "distributed" not in sys.modules:
        return
    from distributed import get_client

    try:
        client = get_client()
    except ValueError:  # no cluster
        return
    while sum(client.run(_count_shared_tables).values()):
        time.sleep(1.0)


def _count_shared_tables() -> int:
    """Return the number of tables that the tasks of a worker process share."""
    module = sys.modules.get("hyperplane.collections.frames.shared_tables")
    return 0 if module is None else len(module.SHARED_TABLES)


class _PeakMemoryThread(threading.Thread):
    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.highest = memory_mb()
        self.cpu_seconds = 0.0  # of this thread, which lists all processes of the machine
        self._end = threading.Event()

    def run(self) -> None:
        while not self._end.wait(0.05):
            self.highest = max(self.highest, memory_mb())
            self.cpu_seconds = time.thread_time()

    def end(self) -> float:
        self._end.set()
        self.join()
        return self.highest


def measure(function: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """Call a function; return its result and its CPU seconds, wall seconds and peak memory."""
    idle = memory_mb()
    peak = _PeakMemoryThread()
    peak.start()
    cpu, wall = cpu_seconds(), time.perf_counter()
    result = function()
    used, wall_seconds = cpu_seconds() - cpu, time.perf_counter() - wall
    highest = peak.end()
    figures = {"cpu_s": used - peak.cpu_seconds, "wall_s": wall_seconds}
    return result, {**figures, "peak_mb": highest, "growth_mb": highest - idle}
