"""What was in the memory of a worker process when it was ended, as its nanny reports it.

A nanny sends the report to the scheduler as an event of the topic :data:`TOPIC`. Processes without
this package receive this module by value, so it imports no other module of the package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

#: Topic of Dask's events that carry reports.
TOPIC = "hyperplane-memory"
#: Topic of the same reports before a nanny ends the process, which it does not if the limit grows.
NEAR_LIMIT = "hyperplane-memory-near-limit"
#: Topic of the exits of processes that did not end for their memory.
EXIT_TOPIC = "hyperplane-worker-exit"
#: Why a process was ended: by its nanny at the threshold ``terminate``; by the kernel, when the
#: machine or the control group had no memory left. Or why it was of no use: it stays paused,
#: because the disk for spilled results is full, or because its memory is not that of results; or an
#: allocation inside a task failed (``MemoryError``, ``std::bad_alloc``); or Dask did not start a
#: task, because its inputs exceed the limit.
Cause = Literal["terminate", "kernel", "cgroup", "spill disk", "paused", "allocation", "inputs"]


@dataclass(frozen=True)
class RunningTask:
    """A task that ran in the process.

    Parameters
    ----------
    key : str
        Key of the task.
    prefix : str
        Name of its operation, such as ``read-parquet``.
    seconds : float
        How long it had run.
    memory_before : int
        Memory of the process when the task began, in bytes.
    inputs : int
        Size of its inputs in bytes, as Dask estimates them.
    reserved_before : int
        Memory that the process had allocated when the task began, used or not; 0 if unknown.
    inputs_held : int
        Size of the inputs that were in memory when the task began, and not on disk.
    held_before : int
        Sum of ``MemoryReport.held`` when the task began.
    """

    key: str
    prefix: str
    seconds: float
    memory_before: int
    inputs: int
    reserved_before: int = 0
    inputs_held: int = 0
    held_before: int = 0


@dataclass(frozen=True)
class MemoryReport:
    """Memory of a worker process at its end.

    Parameters
    ----------
    worker, name : str
        Address and name of the worker.
    cause : str
        See :data:`Cause`.
    peak, limit : int
        Largest measured memory of the process since its first running task began, and its limit,
        in bytes.
    running : tuple of RunningTask
        Tasks that ran then; the first began first.
    held : mapping
        Bytes of the results in memory by the prefix of their task, and those of the buffers of
        shuffles.
    spilled : int
        Bytes of results on disk.
    threads : int
        Threads of the worker, which is the number of tasks that can run together.
    pid : int
        Process ID.
    time : float
        Time of the end, by ``time.time``.
    empty : int
        Memory of the process before its first task; 0 if unknown.
    reserved : int
        Memory that the process had allocated at its end, used or not. It may be far above the peak,
        because a process uses the memory of a large array only as it fills it; 0 if unknown.
    """

    worker: str
    name: str
    cause: Cause
    peak: int
    limit: int
    running: tuple[RunningTask, ...]
    held: Mapping[str, int]
    spilled: int
    threads: int
    pid: int
    time: float
    empty: int = 0
    reserved: int = 0

    def as_event(self) -> dict[str, Any]:
        """Return the report as a message of Dask."""
        return asdict(self)

    @classmethod
    def from_event(cls, event: Mapping[str, Any]) -> MemoryReport:
        """Return the report of a message; fields of later versions are ignored."""
        known = _select_fields(cls, event)
        known["running"] = tuple(
            RunningTask(**_select_fields(RunningTask, task)) for task in event["running"]
        )
        return cls(**known)


def _select_fields(cls: Any, event: Mapping[str, Any]) -> dict[str, Any]:
    return {field.name: event[field.name] for field in fields(cls) if field.name in event}
