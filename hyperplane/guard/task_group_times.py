"""When the tasks of each task group of a cluster ran, in bounded memory.

Schedulers without this package receive this module by value, and those that it imports.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from hyperplane.history.timeline import TaskGroupTimes

#: Most task groups of a record. Each call of ``Client.submit`` can be one.
MAX_GROUPS = 200
#: Name of the group of operations that are left out.
OTHER_GROUPS = "(other operations)"


class GroupRecorder:
    """Records the first start and the last end of the tasks of each group.

    Parameters
    ----------
    started : float
        Time that is subtracted from the times of tasks, in seconds since 1970.
    """

    def __init__(self, started: float) -> None:
        self._started = started
        self._groups: dict[str, TaskGroupTimes] = {}

    def add(self, group: str, operation: str, start: float, stop: float, failed: bool) -> None:
        """Add a task that ran at a time, in seconds since 1970."""
        times = self._groups.get(group)
        if times is None:
            if len(self._groups) >= 2 * MAX_GROUPS:
                self._compact()
            times = TaskGroupTimes(operation, start, stop)
            self._groups[group] = times
        elif start < times.started:
            times.started = start
        if stop > times.ended:
            times.ended = stop
        times.count += 1
        times.failed += failed
        if stop > start:
            times.seconds += stop - start

    def list_groups(self) -> list[TaskGroupTimes]:
        """Return at most the permitted number of groups, in the order of their starts."""
        found = merge_groups(self._groups.values(), MAX_GROUPS)
        return [
            replace(
                times,
                started=round(max(0.0, times.started - self._started), 3),
                ended=round(max(0.0, times.ended - self._started), 3),
                seconds=round(times.seconds, 3),
            )
            for times in found
        ]

    def _compact(self) -> None:
        """Merge half of the groups; later tasks of a merged one begin a new group."""
        kept = {id(times): key for key, times in self._groups.items()}
        merged = merge_groups(self._groups.values(), MAX_GROUPS)
        self._groups = {kept.get(id(times), f" {id(times)}"): times for times in merged}


def merge_groups(groups: Iterable[TaskGroupTimes], most: int) -> list[TaskGroupTimes]:
    """Return at most a number of groups, ordered by their starts.

    Neighbors of one operation with the shortest time between them are merged. If that is not
    enough, those with the least time of tasks are one group.
    """
    ordered = sorted(groups, key=lambda times: (times.name, times.started))
    surplus = len(ordered) - most
    if surplus > 0:
        ordered = _merge_neighbors(ordered, surplus)
    if len(ordered) > most:
        ordered.sort(key=lambda times: times.seconds)
        least = len(ordered) - most + 1
        others = replace(ordered[0], name=OTHER_GROUPS)
        for times in ordered[1:least]:
            _add(others, times)
        ordered = [others, *ordered[least:]]
    return sorted(ordered, key=lambda times: times.started)


def _merge_neighbors(ordered: Sequence[TaskGroupTimes], surplus: int) -> list[TaskGroupTimes]:
    gaps = [
        (max(0.0, later.started - earlier.ended), number)
        for number, (earlier, later) in enumerate(pairwise(ordered), 1)
        if earlier.name == later.name
    ]
    merged = {number for _, number in sorted(gaps)[:surplus]}
    found: list[TaskGroupTimes] = []
    for number, times in enumerate(ordered):
        if number in merged:
            _add(found[-1], times)
        else:
            found.append(replace(times) if number + 1 in merged else times)
    return found


def _add(times: TaskGroupTimes, other: TaskGroupTimes) -> None:
    times.started = min(times.started, other.started)
    times.ended = max(times.ended, other.ended)
    times.count += other.count
    times.failed += other.failed
    times.seconds += other.seconds
