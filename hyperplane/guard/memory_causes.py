"""Which task ended a worker process, and whether it would do so again.

Schedulers without this package receive this module by value.
"""

from __future__ import annotations

from collections.abc import Sequence

from hyperplane.guard.memory_report import MemoryReport, RunningTask

#: Causes that end the process; after the others it goes on.
PROCESS_ENDS = {"terminate", "kernel", "cgroup"}
#: Share of the limit that a process may use before its nanny ends it is 0.95 by default, and a
#: report is made some time before or after that.
USABLE = 0.9
#: Share of the memory for each thread of a worker that a partition may have to be shuffled.
_SHUFFLED_SHARE = 1 / 16
#: The same for workers below 2 GB: of what a process leaves that has imported pandas and shuffled.
#: ``set_index`` of partitions of 1 / 12.5 of it lost no worker of 0.5 GB, 1 / 11 four of 0.6 GB.
_SHUFFLED_REST, _SHUFFLING_PROCESS = 1 / 14, 250_000_000
#: Share below which no smaller partitions are proposed, because the memory cannot suffice.
_SMALLEST_SHARE = 1 / 64
#: Beginnings of the prefixes of tasks that fill buffers which all tasks of the worker share.
_SHARED_BUFFERS = ("shuffle-transfer", "shuffle-barrier", "hash-join-transfer", "rechunk-transfer")


def uses_shared_buffers(prefix: str) -> bool:
    """Return whether tasks of this prefix fill the buffers of a peer-to-peer shuffle."""
    return prefix.startswith(_SHARED_BUFFERS)


def find_shuffled_size(limit: float, threads: int) -> float:
    """Return the bytes that a partition may have to be shuffled by processes with this limit.

    Examples
    --------
    >>> [round(find_shuffled_size(limit, 1) / 1e6) for limit in (16e9, 1e9, 0.5e9)]
    [1000, 54, 18]
    """
    rest = (limit - _SHUFFLING_PROCESS) * _SHUFFLED_REST
    return max(limit * _SMALLEST_SHARE, min(limit * _SHUFFLED_SHARE, rest)) / max(1, threads)


def find_shuffling_memory(size: float, threads: int) -> float:
    """Return the memory of a process in bytes that can shuffle partitions of a size."""
    in_use = size * max(1, threads)
    return max(in_use / _SHUFFLED_SHARE, in_use / _SHUFFLED_REST + _SHUFFLING_PROCESS)


def own_growth(report: MemoryReport, task: RunningTask) -> int:
    """Return the bytes that a task that ran alone needs: its growth, and inputs in memory before.

    Inputs that were on disk are part of the growth. Results and rows of shuffles that came from
    other workers meanwhile are not.

    Examples
    --------
    >>> task = RunningTask("x", "x", 1.0, memory_before=300, inputs=150, inputs_held=150)
    >>> report = MemoryReport(
    ...     "", "", "terminate", 950, 1000, (task,), {}, 0, 1, 1, 0.0, empty=100
    ... )
    >>> own_growth(report, task)
    800
    """
    inputs = min(task.inputs_held, max(0, task.memory_before - report.empty))
    arrived = max(0, sum(report.held.values()) - task.held_before)
    return max(0, report.peak - task.memory_before - arrived) + inputs


def own_reservation(report: MemoryReport, task: RunningTask) -> int:
    """Return the bytes that the process allocated while the task ran, used or not."""
    if not task.reserved_before:
        return 0
    return max(0, report.reserved - task.reserved_before)


def is_certain(report: MemoryReport, task: RunningTask) -> bool:
    """Return whether the task would end an empty worker of the same size again.

    It would if it ran alone and what it used itself, with its inputs, does not fit beside what an
    empty worker needs. The memory of tasks that run together cannot be separated. Memory that was
    allocated and not used proves nothing: Arrow's allocator reserves 1 GB when it is first used.
    """
    if report.cause not in PROCESS_ENDS or uses_shared_buffers(task.prefix):
        return False
    if len(report.running) != 1:
        return False
    return report.empty + own_growth(report, task) >= USABLE * report.limit


def select_reports(reports: Sequence[MemoryReport], key: str) -> tuple[MemoryReport, ...]:
    """Return the reports of processes in which a task ran."""
    return tuple(report for report in reports if any(task.key == key for task in report.running))
