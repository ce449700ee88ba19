"""What happened when in a run: memory of workers, pauses, restarts and task groups over the time.

Schedulers without this package receive this module by value, so it imports no other module. The
classes are checked where they are part of a RunRecord.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class WorkerTimeline:
    """What happened to one worker. Times are seconds since the start of the timeline.

    Parameters
    ----------
    name : str
        Name of the worker, which a restarted process keeps.
    memory : list of int
        Largest measured memory of the process in each part of the time, in bytes; 0 where it was
        not connected. Parts that are missing at the end are such parts, too.
    paused, spilling : list of (float, float)
        Starts and ends of the times in which it was paused, and had results on disk; at most 40,
        the nearest ones are one.
    killed : list of float
        When processes ended for lack of memory; at most the first 40.
    restarts : list of float
        When new processes connected, after any end; at most the first 40.
    """

    name: str
    memory: list[int] = field(default_factory=list)
    paused: list[tuple[float, float]] = field(default_factory=list)
    spilling: list[tuple[float, float]] = field(default_factory=list)
    killed: list[float] = field(default_factory=list)
    restarts: list[float] = field(default_factory=list)


@dataclass(slots=True)
class TaskGroupTimes:
    """When the tasks of one task group ran, in seconds since the start of the timeline.

    Groups of one operation that follow each other are one, if a run has very many.

    Parameters
    ----------
    name : str
        Name of their operation, the prefix of the tasks.
    started, ended : float
        When the first task started, and when the last one ended.
    count, failed : int
        Number of tasks that ended, and of those that failed.
    seconds : float
        Time of all tasks.
    """

    name: str
    started: float = 0.0
    ended: float = 0.0
    count: int = 0
    failed: int = 0
    seconds: float = 0.0


@dataclass
class RunTimeline:
    """Memory, pauses, restarts and task groups of a run, over the time.

    The time is divided into at most 240 equal parts. The parts of a longer run are longer; each has
    the largest value that was measured in it.

    Parameters
    ----------
    started : float
        Start of the timeline, in seconds since 1970 by the clock of the scheduler.
    part_seconds : float
        Length of a part.
    total : list of int
        Largest memory of all worker processes together in each part, in bytes.
    spilled : list of int
        Most bytes of results on disk in each part, summed over the workers.
    processes : list of int
        Most connected worker processes in each part.
    workers : list of WorkerTimeline
        At most 32 workers. If there are more, those that were paused, had results on disk or ended
        for lack of memory precede others.
    groups : list of TaskGroupTimes
        Task groups in the order of their starts, at most 200.
    """

    started: float = 0.0
    part_seconds: float = 0.0
    total: list[int] = field(default_factory=list)
    spilled: list[int] = field(default_factory=list)
    processes: list[int] = field(default_factory=list)
    workers: list[WorkerTimeline] = field(default_factory=list)
    groups: list[TaskGroupTimes] = field(default_factory=list)


def count_process_hours(processes: Sequence[int], part_seconds: float, seconds: float) -> float:
    """Return the hours of all worker processes together; in each part the most that ran in it.

    Parameters
    ----------
    processes : sequence of int
        Number of worker processes in each part of the time.
    part_seconds : float
        Length of a part.
    seconds : float
        Length of the whole time, of which the last part has not passed yet.
    """
    if not processes:
        return 0.0
    return sum(processes) * min(part_seconds, seconds / len(processes)) / 3600
