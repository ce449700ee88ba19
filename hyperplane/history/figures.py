"""Figures of workers, operations and computations: a scheduler measures them, a record keeps them.

Schedulers without this package receive this module by value, so it imports no other module. The
classes are checked where they are part of a RunRecord.
"""

from __future__ import annotations

from dataclasses import dataclass, field

#: Cause of restarts, and why a step has ended, as records have it.
OUT_OF_MEMORY = "out of memory"


@dataclass
class WorkerUsage:
    """What one worker process took, with all its restarts.

    Parameters
    ----------
    name : str
        Name of the worker, which a restarted process keeps.
    nthreads : int
        Number of its threads.
    limit : int
        Limit of its memory in bytes, the largest if it has grown; 0 if it had none.
    peak : int
        Largest memory of the process, in bytes, as the kernel records it. Where it does not, the
        memory is measured twice a second at most, so that shorter peaks can be missed.
    demand : int
        Largest sum of its memory and of the results that it had on disk, in bytes.
    spilled : int
        Most bytes of results that were on disk at one time.
    paused_seconds, spilling_seconds : float
        How long it was paused, and how long it had results on disk.
    restarts : int
        How often the process was replaced.
    causes : dict of str to int
        Number of those restarts by cause: ``"out of memory"``, ``"client"`` (a call of
        ``Client.restart``) or ``"other"``.
    empty : int
        Memory of the process when it was first measured, in bytes; 0 if unknown.
    cpu_seconds : float
        CPU time of the process; 0 if unknown.
    read : int
        Bytes that the process has read from files, those in the cache of the system included, and
        from pipes; 0 if unknown. Neither memory maps nor most network connections count.
    written : int
        Bytes that it has written, likewise.
    busy_cores: float
        Most cores that the process of a step, with those that it starts, used at a time; 0 if
        unknown.
    first_limit : int
        Limit with which it was started, in bytes; 0 if unknown.
    """

    name: str
    nthreads: int = 0
    limit: int = 0
    peak: int = 0
    demand: int = 0
    spilled: int = 0
    paused_seconds: float = 0.0
    spilling_seconds: float = 0.0
    restarts: int = 0
    causes: dict[str, int] = field(default_factory=dict)
    empty: int = 0
    cpu_seconds: float = 0.0
    read: int = 0
    busy_cores: float = 0.0
    written: int = 0
    first_limit: int = 0


@dataclass(slots=True)
class TaskUsage:
    """What all tasks of one operation took.

    An operation is a task prefix of Dask. The names of task groups have a hash: the next run has
    other ones, so that no forecast could find them, and a long session has tens of thousands. An
    operation has the same name in each run. If its calls differ, as merges of small and large
    tables do, the largest figures are those of the call that decides about memory.

    Parameters
    ----------
    name : str
        Name of the operation, the prefix of its tasks, such as ``read-parquet``.
    count, failed : int
        Number of tasks that ended, and of those that failed.
    seconds, longest : float
        Time of all tasks and of the longest.
    output, largest_output : int
        Size of the results of all tasks and of the largest, in bytes, as Dask estimates it.
    input, largest_input : int
        Size of the inputs of all tasks, and the largest size of the inputs of one task, in bytes.
    memory : int
        Largest measured memory of a worker process while such a task ran, in bytes. It includes
        everything else in the process.
    """

    name: str
    count: int = 0
    failed: int = 0
    seconds: float = 0.0
    longest: float = 0.0
    output: int = 0
    largest_output: int = 0
    input: int = 0
    largest_input: int = 0
    memory: int = 0


@dataclass(slots=True)
class ComputationUsage:
    """What one computation took: the tasks that one call of ``compute`` or ``persist`` submits.

    Computations of the same structure in one run are one, with the figures of the one with the
    most input, and among these of the one with the largest memory.

    Parameters
    ----------
    name : str
        Name of its last operation.
    structure : str
        Digest of the names of its operations, their dependencies, the functions and the texts among
        their arguments. It has no names of files, no dates, no data, and does not depend on the
        number of partitions.
    count : int
        Number of computations of this structure.
    tasks, sources : int
        Number of its tasks, and of those that need no other.
    input : int
        Bytes of the local files that it reads, and of data in its graph; 0 if unknown.
    processes, threads : int
        Worker processes when it began, and the threads of the largest.
    started, seconds, cpu_seconds : float
        When it began, in seconds since 1970; its duration; CPU time of all worker processes.
    peak : int
        Largest memory of a worker process, in bytes.
    total : int
        Largest memory of all worker processes at one time, in bytes, measured every two seconds.
    empty : int
        Memory of a worker process before any work, in bytes: that of the largest one.
    held : int
        Bytes of earlier results that the worker with most of them had when it began.
    read : int
        Bytes that worker processes have read from files.
    spilled : int
        Most bytes of results on disk at one time, summed over the workers.
    failed : int
        Number of its wanted results that failed or were cancelled.
    shared : bool
        Whether another computation ran at the same time.
    disturbed : bool
        Whether workers were paused, replaced or added meanwhile.
    """

    name: str
    structure: str = ""
    count: int = 1
    tasks: int = 0
    sources: int = 0
    input: int = 0
    processes: int = 0
    threads: int = 0
    started: float = 0.0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak: int = 0
    total: int = 0
    empty: int = 0
    held: int = 0
    read: int = 0
    spilled: int = 0
    failed: int = 0
    shared: bool = False
    disturbed: bool = False


def add_usage(usage: WorkerUsage, other: WorkerUsage) -> None:
    """Add the figures of another worker to those of one: sums, and the largest memory."""
    for name in (
        "nthreads",
        "limit",
        "peak",
        "demand",
        "spilled",
        "empty",
        "busy_cores",
        "first_limit",
    ):
        setattr(usage, name, max(getattr(usage, name), getattr(other, name)))
    for name in (
        "paused_seconds",
        "spilling_seconds",
        "restarts",
        "cpu_seconds",
        "read",
        "written",
    ):
        setattr(usage, name, getattr(usage, name) + getattr(other, name))
    for cause, count in other.causes.items():
        count_cause(usage, cause, count)


def note_limit(usage: WorkerUsage, limit: int) -> None:
    """Note the present limit of a worker; of limits that have grown the largest counts."""
    usage.first_limit = usage.first_limit or limit
    usage.limit = max(usage.limit, limit)


def count_cause(usage: WorkerUsage, cause: str, count: int = 1) -> None:
    """Add to the number of a worker's restarts for a cause; a number of zero is removed."""
    usage.causes[cause] = usage.causes.get(cause, 0) + count
    if not usage.causes[cause]:
        del usage.causes[cause]
