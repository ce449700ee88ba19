"""Memory and cores of a process of this machine, measured without packages.

``jobs/step_wrapper.py`` imports this file without the package, and containers get it with
``jobs/runners/measured_program.py``, whose Python may be 3.7.
"""

from __future__ import annotations

import os
import time

#: Seconds between two measurements.
MEASURE_SECONDS = 1.0
#: The clock of the start times of processes, where the system has it.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class UsageMeter:
    """Memory and cores of a process with all that it has started, from the files of Linux.

    Elsewhere nothing is measured but what the system tells about processes that have ended. The
    first process of a container also measures those whose parents have ended, such as daemons,
    which become its children.
    """

    def __init__(self, pid: int) -> None:
        self._pid, self._peak, self._cores = pid, 0, 0.0
        self._last = time.clock_gettime(_CLOCK)
        #: CPU seconds of each process, and of those that it has waited for, by its id and start.
        self._cpu: dict[tuple[int, float], tuple[float, float]] = {}
        #: CPU seconds of processes that have ended, which no other process has yet.
        self._missing = 0.0
        self._page, self._tick = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")

    def measure_if_due(self) -> None:
        """Measure if a second has passed; it takes about 0.1 ms for each thread."""
        now = time.clock_gettime(_CLOCK)
        passed = now - self._last
        if passed < MEASURE_SECONDS:
            return
        own, shared, cpu = 0, 0, {}
        pending, seen = [self._pid], set()
        if os.getpid() == 1:
            pending += _list_children(1)
        while pending:
            pid = pending.pop()
            if pid in seen:
                continue
            seen.add(pid)
            try:
                sizes = _read(f"/proc/{pid}/statm").split()
                figures = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
                pages, common = int(sizes[1]), int(sizes[2])
                *times, started = (int(figures[at]) / self._tick for at in (11, 12, 13, 14, 19))
            except (OSError, ValueError, IndexError):  # it has ended, or there are no such files
                continue
            # What processes share, such as libraries, counts once.
            own += (pages - common) * self._page
            shared = max(shared, common * self._page)
            cpu[pid, started] = (sum(times[:2]), sum(times[2:]))
            pending += _list_children(pid)
        self._peak = max(self._peak, own + shared)
        self._cores = max(self._cores, self._sum_increases(cpu) / passed)
        self._last, self._cpu = now, cpu

    def _sum_increases(self, cpu: dict[tuple[int, float], tuple[float, float]]) -> float:
        """Return the CPU seconds that processes have used since the last measurement.

        The time of a process that has ended becomes part of that of its parent, perhaps only at the
        next measurement: what was counted before is subtracted from it. An older process that was
        not found the last time counts from now on: all its time would be that of one second.
        """
        used = ended = 0.0
        for process, (own, of_ended) in cpu.items():
            is_new = not self._cpu or process[1] >= self._last
            before = self._cpu.get(process, (0.0, 0.0) if is_new else (own, of_ended))
            used += own - before[0]
            ended += of_ended - before[1]
        gone = sum(sum(self._cpu[process]) for process in self._cpu.keys() - cpu.keys())
        missing = gone + self._missing - ended
        self._missing = min(gone, max(0.0, missing))
        return used + max(0.0, -missing)

    def describe(self, largest: int, cpu: float) -> str:
        """Return peak, CPU seconds, cores, and bytes read and written, of an ended process.

        ``largest`` is the memory of one process.
        """
        read, written = count_bytes_of_ended()
        return f"{max(self._peak, largest)} {cpu:.3f} {self._cores:.3f} {read} {written}"

    def write(self, path: str, largest: int, cpu: float) -> None:
        """Write the figures of a process that has ended to a file."""
        try:
            with open(path, "w") as file:  # noqa: PTH123
                file.write(self.describe(largest, cpu))
        except OSError:  # a full disk: the attempt has no figures
            return


def count_bytes_of_ended() -> tuple[int, int]:
    """Return the bytes that ended processes, which this one has waited for, have read and written.

    Zeros where the system does not count them. The kernel adds the counts of an ended process to
    those of the one that waits for it; without the threads of this process, that is what is left.
    """
    try:
        counts = _read_counts("/proc/self/io")
        for thread in os.listdir("/proc/self/task"):  # noqa: PTH208
            own = _read_counts(f"/proc/self/task/{thread}/io")
            counts = [max(0, each - mine) for each, mine in zip(counts, own)]  # noqa: B905
    except (OSError, ValueError, IndexError):
        return 0, 0
    return counts[0], counts[1]


def _read_counts(path: str) -> list[int]:
    """Return the bytes of calls that read and that write, of all files, pipes and terminals."""
    return [int(line.split()[1]) for line in _read(path).splitlines()[:2]]


def _list_children(pid: int) -> list[int]:
    """Return the processes that the threads of a process have started."""
    children: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            try:
                children += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
            except OSError:  # this thread has ended
                continue
    except OSError:  # the process has ended
        pass
    return children


def _read(path: str) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123
        return file.read()
