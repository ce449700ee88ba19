"""Memory, pauses and restarts of workers over the time of a run, in bounded memory.

Schedulers without this package receive this module by value, and those that it imports.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hyperplane.guard.task_group_times import GroupRecorder
from hyperplane.history.timeline import RunTimeline, WorkerTimeline, count_process_hours

if TYPE_CHECKING:
    from distributed.scheduler import WorkerState

#: Most parts into which the time is divided: twice as long ones when there are too many.
MAX_PARTS = 240
#: Length of a part at the start, in seconds.
FIRST_PART = 0.5
#: Most workers with a timeline each.
MAX_TIMELINES = 32
#: Most times in which a worker was paused or had results on disk, and most ends and restarts.
MAX_SPELLS = MAX_EVENTS = 40


class Series:
    """The largest value in each part of the time."""

    def __init__(self) -> None:
        self.values: list[int] = []

    def add(self, part: int, value: int, was_known: bool = True) -> None:
        """Add a value; parts since the last one have its value if it ``was_known``, else 0."""
        values = self.values
        missing = part + 1 - len(values)
        if missing > 0:
            before = values[-1] if values and was_known else 0
            values += [before] * (missing - 1)
            values.append(value)
        elif value > values[part]:
            values[part] = value

    def halve(self) -> None:
        """Double the length of the parts."""
        values = self.values
        self.values = [max(values[place : place + 2]) for place in range(0, len(values), 2)]


class Spells:
    """Starts and ends of the times in which a condition holds."""

    def __init__(self) -> None:
        self.times: list[list[float]] = []
        self._is_open = False

    def note(self, now: float, holds: bool) -> None:
        """Note whether the condition holds now."""
        if self._is_open:
            self.times[-1][1] = now
        elif holds:
            self.times.append([now, now])
            if len(self.times) > MAX_SPELLS:
                self._merge_nearest()
        self._is_open = holds

    def _merge_nearest(self) -> None:
        times = self.times
        place = min(range(1, len(times)), key=lambda each: times[each][0] - times[each - 1][1])
        times[place - 1][1] = times[place][1]
        del times[place]


class WorkerRecorder:
    """Records the timeline of one worker."""

    def __init__(self) -> None:
        self.memory = Series()
        self.paused, self.spilling = Spells(), Spells()
        self.killed: list[float] = []
        self.restarts: list[float] = []
        self.is_connected = False
        self._peak = 0

    @property
    def rank(self) -> tuple[bool, int]:
        """How much this timeline tells: whether the worker lacked memory, and its peak."""
        return bool(self.killed or self.paused.times or self.spilling.times), self._peak

    def sample(self, part: int, now: float, memory: int, paused: bool, spilling: bool) -> None:
        """Add what the worker reports now."""
        self.add_memory(part, memory)
        self.is_connected = True
        self.paused.note(now, paused)
        self.spilling.note(now, spilling)

    def add_memory(self, part: int, memory: int) -> None:
        """Add a measured memory of the process."""
        self.memory.add(part, memory, self.is_connected)
        self._peak = max(self._peak, memory)

    def leave(self, now: float) -> None:
        """Note that the worker is no longer connected."""
        self.is_connected = False
        self.paused.note(now, False)
        self.spilling.note(now, False)

    def timeline(self, name: str) -> WorkerTimeline:
        """Return what was recorded."""
        return WorkerTimeline(
            name,
            self.memory.values,
            _round_spells(self.paused),
            _round_spells(self.spilling),
            [round(each, 2) for each in self.killed],
            [round(each, 2) for each in self.restarts],
        )


class TimelineRecorder:
    """Records the timeline of a run, from its creation on."""

    def __init__(self) -> None:
        self.part_seconds = FIRST_PART
        self._started, self._began = time.time(), time.monotonic()
        self._total, self._spilled, self._processes = Series(), Series(), Series()
        self._workers: dict[str, WorkerRecorder] = {}
        self.groups = GroupRecorder(self._started)

    def sample(self, workers: Iterable[WorkerState]) -> None:
        """Add what all connected workers have reported last."""
        now = self._now()
        part = self._find_part(now)
        total = spilled = count = 0
        left = {name for name, recorder in self._workers.items() if recorder.is_connected}
        for worker in workers:
            metrics = worker.metrics
            memory = metrics.get("memory") or 0
            on_disk = (metrics.get("spilled_bytes") or {}).get("disk", 0)
            total += memory
            spilled += on_disk
            count += 1
            paused = worker.status.name == "paused"
            name = str(worker.name)
            left.discard(name)
            recorder = self._recorder_of(name, bool(paused or on_disk))
            if recorder is not None:
                recorder.sample(part, now, memory, paused, bool(on_disk))
        for name in left & self._workers.keys():
            self._workers[name].leave(now)
        self._total.add(part, total)
        self._spilled.add(part, spilled)
        self._processes.add(part, count)

    @property
    def process_hours(self) -> float:
        """Hours of all worker processes together, until now."""
        return count_process_hours(self._processes.values, self.part_seconds, self._now())

    def note_status(self, name: str, paused: bool) -> None:
        """Note that a worker was paused, or goes on."""
        recorder = self._recorder_of(name, paused)
        if recorder is not None:
            recorder.paused.note(self._now(), paused)

    def note_killed(self, name: str, peak: int) -> None:
        """Note that the process of a worker ended for lack of memory, and its largest memory."""
        recorder, now = self._recorder_of(name, True), self._now()
        if recorder is not None:
            recorder.add_memory(self._find_part(now), peak)
            recorder.leave(now)
            if len(recorder.killed) < MAX_EVENTS:
                recorder.killed.append(now)

    def note_restart(self, name: str) -> None:
        """Note that a new process of a worker has connected."""
        recorder = self._recorder_of(name, False)
        if recorder is not None and len(recorder.restarts) < MAX_EVENTS:
            recorder.restarts.append(self._now())

    def as_dict(self) -> dict[str, Any]:
        """Return the timeline, as the field of a record."""
        return asdict(
            RunTimeline(
                started=self._started,
                part_seconds=self.part_seconds,
                total=self._total.values,
                spilled=self._spilled.values,
                processes=self._processes.values,
                workers=[recorder.timeline(name) for name, recorder in self._workers.items()],
                groups=self.groups.list_groups(),
            )
        )

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _find_part(self, now: float) -> int:
        """Return the number of the present part; double the length of all if there are too many."""
        while now >= self.part_seconds * MAX_PARTS:
            self.part_seconds *= 2
            series = [recorder.memory for recorder in self._workers.values()]
            for each in (self._total, self._spilled, self._processes, *series):
                each.halve()
        return int(now / self.part_seconds)

    def _recorder_of(self, name: str, lacks_memory: bool) -> WorkerRecorder | None:
        """Return the recorder of a worker; None if there are too many that tell more."""
        recorder = self._workers.get(name)
        if recorder is not None:
            return recorder
        if len(self._workers) >= MAX_TIMELINES:
            replaced = self._find_replaced(lacks_memory)
            if replaced is None:
                return None
            del self._workers[replaced]
        return self._workers.setdefault(name, WorkerRecorder())

    def _find_replaced(self, lacks_memory: bool) -> str | None:
        """Return the worker whose timeline tells least, if it may be left out."""
        ranks = {
            name: recorder.rank
            for name, recorder in self._workers.items()
            if lacks_memory or not recorder.is_connected
        }
        name = min(ranks, key=lambda each: ranks[each], default=None)
        return None if name is None or ranks[name][0] else name


def _round_spells(spells: Spells) -> list[tuple[float, float]]:
    return [(round(start, 2), round(end, 2)) for start, end in spells.times]
