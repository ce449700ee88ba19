"""CPU seconds and memory of a process and all that it started."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil


def _tree() -> list[psutil.Process]:
    me = psutil.Process()
    return [me, *me.children(recursive=True)]


def cpu_seconds() -> float:
    """User and system time of this process and its descendants, ended children included."""
    total = 0.0
    for process in _tree():
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += sum(times[:4])
    return total


def memory_mb() -> float:
    """Anonymous memory of this process and its descendants: what is not just file cache."""
    total = 0
    for process in _tree():
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            continue
        for line in status.splitlines():
            if line.startswith("RssAnon"):
                total += int(line.split()[1])
    return total / 1000


class _Peak(threading.Thread):
    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.highest = memory_mb()
        self._end = threading.Event()

    def run(self) -> None:
        while not self._end.wait(0.05):
            self.highest = max(self.highest, memory_mb())

    def end(self) -> float:
        self._end.set()
        self.join()
        return self.highest


def measured(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """Do some work; return its result and CPU seconds, wall seconds and peak memory."""
    idle = memory_mb()
    peak = _Peak()
    peak.start()
    cpu, wall = cpu_seconds(), time.perf_counter()
    result = work()
    figures = {"cpu_s": cpu_seconds() - cpu, "wall_s": time.perf_counter() - wall}
    highest = peak.end()
    return result, {**figures, "peak_mb": highest, "growth_mb": highest - idle}
