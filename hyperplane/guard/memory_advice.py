"""Explanation of a failure for memory: its facts, a text, and one fix computed from them.

Schedulers without this package receive this module by value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from hyperplane.guard.memory_causes import (
    find_shuffled_size,
    own_growth,
    own_reservation,
    uses_shared_buffers,
)
from hyperplane.guard.memory_report import Cause, MemoryReport, RunningTask

#: Share of a process's memory that its tasks and results can use: Dask ends it at 0.95.
_USABLE = 0.9
#: Margin for what differs between two runs, such as the order of tasks.
_MARGIN = 1.15
#: Bytes that a process may need at least beyond its limit, if it was ended while it grew. Twice a
#: limit of 0.5 GB was too little in each of four jobs with objects of other kinds than those of the
#: tests; 2 GB beyond it cost little.
_UNKNOWN_GROWTH = 2 * 10**9
#: Bytes to which the memory of advice is rounded.
_STEP = 10**8
#: Prefixes of Dask's keys -> the operation in the words of the collections.
_OPERATIONS = (
    (r"shuffle-transfer", "shuffle (sending rows)"),
    (r"shuffle-barrier", "shuffle"),
    (r"hash-join-transfer", "merge (sending rows)"),
    (r"hashjoinp2p|hash-join|merge", "merge"),
    (r"p2pshuffle|shuffle_p2p|shuffle-p2p", "shuffle (receiving rows)"),
    (r"rechunk-(transfer|p2p)|rechunk", "rechunk"),
    (r"repartitiontofewer|finalize", "concatenation of partitions, as in compute()"),
    (r"operation", "function on the rows of a shuffle, such as groupby-apply, sort or set_index"),
)
_ENDINGS = re.compile(r"(_(agg|chunk|combine))?-(tree|aggregate|chunk|combine|partial|part)$")
#: Prefixes of tasks that combine the results of many partitions into one.
_COMBINES = re.compile(r"-(tree|aggregate|combine)$")
#: Number of parts that such a task combines, by default (``split_every`` of Dask).
_PARTS_OF_COMBINATION = 8
#: Prefixes of tasks that put many partitions into one; smaller partitions do not change its size.
#: Not "concat": dd.concat() makes partitions of partitions.
_CONCATENATIONS = ("repartitiontofewer", "finalize")
#: Bytes beyond which no process for a concatenation is advised, if the memory of nodes is unknown.
_LARGE_PROCESS = 64 * 10**9
#: Bytes of a process that has imported pandas, for tasks that have not begun.
_STARTED_PROCESS = 250_000_000
#: What to do instead of a concatenation.
_WRITE = (
    "do not put all partitions into one: write them, as with to_parquet or hyperplane.save, reduce "
    "them, or take a part of them"
)
_FRAMES = ("pandas.", "dask_expr", "cudf.", "DataFrame", "Series")
#: Causes that leave the process running.
_PAUSES = ("spill disk", "paused")
#: Share of the limit above which memory that is no result is listed.
_UNMANAGED_SHARE = 0.2
_CAUSES: dict[Cause, str] = {
    "terminate": "ended by its nanny at {share:.0%} of its limit",
    "kernel": "killed by signal 9 from outside; the kernel does that if there is no memory left",
    "cgroup": "killed by the kernel at the limit of its control group (batch job or container)",
    "spill disk": "paused because its disk for results is full (or max-spill is reached)",
    "paused": "paused at {share:.0%} of its limit by memory that is not that of results",
    "allocation": "refused an allocation of memory",
    "inputs": "not given it, because its inputs are larger than the limit",
}
#: With Dask's settings ``target`` and ``spill`` switched off.
_PAUSED_BY_RESULTS = "paused at {share:.0%} of its limit by results that are not written to disk"


@dataclass(frozen=True)
class WorkerLayout:
    """What advice may change in a cluster.

    Parameters
    ----------
    ram_per_proc : int
        Memory of a worker process in bytes.
    nprocs, nthreads : int
        Worker processes of a node, and threads of each.
    nodes : int
        Nodes that are processes of the same machine.
    node_ram : int
        Memory of a node, or of that machine, for worker processes; 0 if unknown.
    pools : mapping
        Memory of a node by the name of its pool, for engines with pools.
    """

    ram_per_proc: int = 0
    nprocs: int = 1
    nthreads: int = 1
    nodes: int = 1
    node_ram: int = 0
    pools: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class MemoryFailure:
    """Facts about a task that failed for memory.

    Parameters
    ----------
    task : str
        Its key.
    prefix : str
        Its prefix.
    cause : str
        See ``memory_report.Cause``.
    reports : tuple of MemoryReport
        Reports of the processes that ended or paused with it; the last is the latest.
    input_type : str
        Name of the type of its inputs; empty if there are none.
    attempts : int
        How often it was tried; by default the number of reports.
    results : int
        Estimated bytes of all results on a worker when the computation is complete.
    detail : str
        Text of the exception that an allocation or a shuffle raised.
    """

    task: str
    prefix: str
    cause: Cause
    reports: tuple[MemoryReport, ...]
    input_type: str = ""
    detail: str = ""
    results: int = 0
    attempts: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "attempts", max(self.attempts, len(self.reports)))

    @property
    def report(self) -> MemoryReport:
        """The report with the largest peak."""
        return max(self.reports, key=lambda report: report.peak)

    @property
    def running(self) -> RunningTask | None:
        """The task itself in that report; None if it did not run then."""
        found = [task for task in self.report.running if task.key == self.task]
        return found[0] if found else None

    @property
    def inputs(self) -> int:
        """Size of the inputs of the task in bytes."""
        return self.running.inputs if self.running is not None else 0


def describe_operation(prefix: str) -> str:
    """Return the operation of a key's prefix in the words of Dask's collections.

    Examples
    --------
    >>> describe_operation("sum-tree")
    'sum'
    >>> describe_operation("hashjoinp2p")
    'merge'
    """
    for pattern, words in _OPERATIONS:
        if re.match(pattern, prefix):
            return words
    return _ENDINGS.sub("", prefix)


def needed_memory(failure: MemoryFailure, available: int = 0) -> int:
    """Return the memory of a process in bytes that would have held the peak, with a margin.

    A process that was ended shows only a lower bound: also after an allocation that it had not used
    yet, others may have followed. So the estimate is at least twice the limit, and 2 GB more than
    the limit, or what is available if that is less.
    """
    report, task = failure.report, failure.running
    if failure.cause == "inputs":  # in memory twice while they are combined
        return math.ceil((_STARTED_PROCESS + 2 * failure.inputs) * _MARGIN / _USABLE)
    growth = own_growth(report, task) if task is not None else report.peak - report.empty
    reserved = own_reservation(report, task) if task is not None else 0
    if failure.cause == "allocation" and task is not None:
        growth = 0
    needed = (report.empty + max(growth, reserved)) * _MARGIN / _USABLE
    if failure.cause in _PAUSES:
        held = max(failure.results, sum(report.held.values()))
        needed = (report.empty + held) * _MARGIN / _USABLE
    larger = 2 * report.limit
    if failure.cause not in _PAUSES:
        larger = max(larger, report.limit + _UNKNOWN_GROWTH)
    return math.ceil(max(needed, _MARGIN * report.limit, min(larger, available or math.inf)))


def advise(failure: MemoryFailure, layout: WorkerLayout) -> str:
    """Return one change to paste that holds the measured peak."""
    if (threads := _fewer_threads(failure)) is not None:
        return f"initialize_cluster(..., nthreads={threads})"
    if partitions := _smaller_partitions(failure):
        return partitions
    # Rounded down, because the argument is rounded up.
    available = max((layout.node_ram, *layout.pools.values())) // _STEP * _STEP
    needed = needed_memory(failure, available)
    is_concatenation = failure.prefix.startswith(_CONCATENATIONS)
    if layout.node_ram and needed > available:
        return (
            f"{_WRITE if is_concatenation else 'smaller partitions or chunks'}: a process needs "
            f"about {_size(needed)}, and no node has more than {_size(available)} for it"
        )
    if is_concatenation and not layout.node_ram and needed > _LARGE_PROCESS:
        return f"{_WRITE}: a process needs about {_size(needed)}"
    arguments = [
        *_fewer_processes(needed, layout),
        f"ram_gb_per_proc={math.ceil(needed / _STEP) / 10:g}",
    ]
    fitting = [(ram, name) for name, ram in layout.pools.items() if ram >= needed]
    if fitting and needed > layout.node_ram:
        arguments.insert(0, f'pool="{min(fitting)[1]}"')
    return f"initialize_cluster(..., {', '.join(arguments)})"


def _fewer_processes(needed: int, layout: WorkerLayout) -> list[str]:
    """Return the arguments for the processes of a size that fit on a node; empty if all do."""
    fitting = layout.node_ram // max(1, needed)
    if not layout.node_ram or not fitting or fitting >= layout.nodes * layout.nprocs:
        return []
    if fitting >= layout.nodes:
        return [f"nprocs={fitting // layout.nodes}"]
    return [f"num_workers={fitting}", "nprocs=1"]


def _fewer_threads(failure: MemoryFailure) -> int | None:
    """Return the number of tasks that fit together; None if that is not what helps."""
    report = failure.report
    count = len(report.running)
    if count < 2 or report.threads == 1 or failure.cause in (*_PAUSES, "allocation"):
        return None
    before = min(task.memory_before for task in report.running)
    growth = max(0, report.peak - before) / count
    reserved_before = min(task.reserved_before for task in report.running)
    reserved = max(0, report.reserved - reserved_before) / count if reserved_before else 0
    share = max(growth, reserved)
    free = _USABLE * report.limit - report.empty
    if not share or share * _MARGIN > free:
        return None
    if reserved < 1.3 * growth:
        return 1  # they were still growing, so that their number is not known
    return max(1, min(count - 1, int(free / (share * _MARGIN))))


def _smaller_partitions(failure: MemoryFailure) -> str | None:
    """Return a change of the partitions of a frame whose one partition is too large."""
    task, limit = failure.running, failure.report.limit
    if task is None or not failure.input_type.startswith(_FRAMES):
        return None
    if not failure.task.startswith("("):  # not a partition of a collection
        return None
    if failure.cause in _PAUSES or task.inputs < 0.15 * limit:
        return None
    if uses_shared_buffers(task.prefix):
        size = max(1, int(find_shuffled_size(limit, failure.report.threads) / 1e6))
        smaller = f'df.repartition(partition_size="{size}MB")'
        if task.prefix.startswith("hash-join"):  # the other frame may be as large
            return f"left, right = ({smaller} for df in (left, right))"
        return f"df = {smaller}"
    if "p2p" in task.prefix or task.prefix == "operation":
        return None
    if _COMBINES.search(task.prefix):
        # Several partitions of the result need a shuffle of the parts. The usual limit is the
        # smallest one, because a task that is tried again may have had more memory.
        usual = min(report.limit for report in failure.reports)
        part = task.inputs / _PARTS_OF_COMBINATION
        if part > find_shuffled_size(usual, failure.report.threads):
            return None
        pieces = max(2, math.ceil(8 * task.inputs / limit))
        return f"split_out={pieces} in the aggregation"
    if task.prefix.startswith(_CONCATENATIONS) or failure.cause == "inputs":
        return None
    growth = max(own_growth(failure.report, task), own_reservation(failure.report, task))
    factor = max(1.0, growth / task.inputs)
    size = max(1, int(0.1 * limit / factor / 1e6))
    return f'df = df.repartition(partition_size="{size}MB")'


def describe_end(failure: MemoryFailure) -> str:
    """Return what happened to the process, its peak and its limit."""
    report = failure.report
    results = sum(report.held.values()) - report.spilled
    by_results = failure.cause == "paused" and results > (report.peak - report.empty) / 2
    happened = _PAUSED_BY_RESULTS if by_results else _CAUSES[failure.cause]
    happened = happened.format(share=report.peak / max(1, report.limit))
    peak = f"Peak {_size(report.peak)} of {_size(report.limit)}"
    return f"worker {report.worker} was {happened}.\n{peak}"


def explain(failure: MemoryFailure, layout: WorkerLayout) -> str:
    """Return the text of the error: what happened, the figures, and the fix."""
    report = failure.report
    lines = [
        f"task {failure.task} ({describe_operation(failure.prefix)}) did not fit in the memory of "
        f"a worker: {describe_end(failure)}; inputs of the task {_size(failure.inputs)}; "
        + (f"an empty worker uses {_size(report.empty)}; " if report.empty else "")
        + _describe_attempts(failure),
        f"Also in memory: {_describe_others(failure)}.",
    ]
    if failure.detail:
        lines.append(f"Reported as: {failure.detail[:300]}")
    lines.append(f"Fix: {advise(failure, layout)}")
    return "\n".join(lines)


def _describe_attempts(failure: MemoryFailure) -> str:
    if failure.cause == "inputs":
        return "not started."
    return "tried once." if failure.attempts == 1 else f"tried {failure.attempts} times."


def _describe_others(failure: MemoryFailure) -> str:
    report = failure.report
    others = [task for task in report.running if task.key != failure.task]
    parts = []
    if others:
        names = ", ".join(sorted({describe_operation(task.prefix) for task in others}))
        # A task that waits for others (worker_client) fails with its process, for their memory.
        grown = max(0, report.peak - min(task.memory_before for task in others))
        count = f"{len(others)} other running tasks" if others[1:] else "1 other running task"
        began = "they" if others[1:] else "it"
        parts.append(f"{count} ({names}; the process grew by {_size(grown)} since {began} began)")
    held = sorted(report.held.items(), key=lambda item: -item[1])
    if held:
        sizes = ", ".join(f"{name} {_size(size)}" for name, size in held[:4])
        parts.append(f"results ({sizes})")
    if report.spilled:
        parts.append(f"of these {_size(report.spilled)} on disk")
    if (unmanaged := _unmanaged_before(failure)) > _UNMANAGED_SHARE * report.limit:
        parts.append(
            f"{_size(unmanaged)} before the task began that are no results: rows and copies of "
            "running shuffles, modules and caches"
        )
    return "; ".join(parts) or "nothing"


def _unmanaged_before(failure: MemoryFailure) -> int:
    """Return the memory of the process before the task began that an empty one does not use."""
    task, report = failure.running, failure.report
    if task is None:
        return 0
    held = max(0, task.held_before - report.spilled)
    return max(0, task.memory_before - report.empty - held)


def _size(count: int) -> str:
    """Return bytes as text; modules that are shipped by value cannot use ``core.units``."""
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
