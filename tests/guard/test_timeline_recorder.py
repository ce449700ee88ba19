"""The timeline of a run: its resolution, its workers and its bounds, without processes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hyperplane.guard import task_group_times, timeline_recorder
from hyperplane.guard.task_group_times import OTHER_GROUPS, GroupRecorder
from hyperplane.guard.timeline_recorder import (
    FIRST_PART,
    MAX_EVENTS,
    MAX_PARTS,
    MAX_SPELLS,
    TimelineRecorder,
)
from hyperplane.history.timeline import RunTimeline, TaskGroupTimes, WorkerTimeline


class Clock:
    """Clock of the recorder, which a test moves."""

    now = 0.0

    def monotonic(self) -> float:
        return 500.0 + self.now

    def time(self) -> float:
        return 1_700_000_000.0 + self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(timeline_recorder, "time", clock)
    return clock


def worker(name: str = "0", memory: int = 0, spilled: int = 0, status: str = "running") -> Any:
    metrics = {"memory": memory, "spilled_bytes": {"memory": 0, "disk": spilled}}
    return SimpleNamespace(name=name, metrics=metrics, status=SimpleNamespace(name=status))


def timeline(recorder: TimelineRecorder) -> RunTimeline:
    document = recorder.as_dict()
    workers = [WorkerTimeline(**each) for each in document["workers"]]
    groups = [TaskGroupTimes(**each) for each in document["groups"]]
    return RunTimeline(**{**document, "workers": workers, "groups": groups})


def test_each_part_has_the_largest_value(clock: Clock) -> None:
    recorder = TimelineRecorder()
    for now, memory, spilled in ((0.1, 10, 0), (0.3, 30, 5), (0.4, 20, 0), (0.6, 7, 0)):
        clock.now = now
        recorder.sample([worker("a", memory, spilled), worker("b", 1)])
    found = timeline(recorder)
    assert (found.started, found.part_seconds) == (1_700_000_000.0, FIRST_PART)
    assert (found.total, found.spilled, found.processes) == ([31, 8], [5, 0], [2, 2])
    assert [each.memory for each in found.workers] == [[30, 7], [1, 1]]


def test_long_runs_have_longer_parts_and_keep_their_peaks(clock: Clock) -> None:
    recorder = TimelineRecorder()
    for number in range(40_000):
        clock.now = 2.0 * number
        recorder.sample([worker(memory=10**9 if number == 12_345 else number)])
    found = timeline(recorder)
    assert MAX_PARTS / 2 <= len(found.total) <= MAX_PARTS
    assert found.part_seconds * (len(found.total) - 1) <= clock.now
    assert found.part_seconds * len(found.total) > clock.now
    (memory,) = (each.memory for each in found.workers)
    assert len(memory) == len(found.total)
    assert memory.index(10**9) == int(2 * 12_345 / found.part_seconds)
    assert memory[-1] == 39_999


def test_a_busy_scheduler_leaves_no_gap_but_a_restart_does(clock: Clock) -> None:
    recorder = TimelineRecorder()
    for now, workers in (
        (0.0, [worker(memory=5)]),
        (2.0, [worker(memory=6)]),
        (2.5, []),
        (3.5, [worker(memory=2)]),
    ):
        clock.now = now
        recorder.sample(workers)
    recorder.note_restart("0")
    found = timeline(recorder)
    assert found.workers[0].memory == [5, 5, 5, 5, 6, 0, 0, 2]
    assert found.workers[0].restarts == [3.5]
    assert found.processes == [1, 1, 1, 1, 1, 0, 0, 1]


def test_pauses_and_spilled_results_have_times(clock: Clock) -> None:
    recorder = TimelineRecorder()
    recorder.sample([worker()])
    clock.now = 1.25
    recorder.note_status("0", paused=True)
    clock.now = 2.0
    recorder.sample([worker(status="paused", spilled=9)])
    clock.now = 2.75
    recorder.note_status("0", paused=False)
    clock.now = 4.0
    recorder.sample([worker(spilled=9)])
    clock.now = 6.0
    recorder.sample([worker()])
    (found,) = timeline(recorder).workers
    assert (found.paused, found.spilling) == ([(1.25, 2.75)], [(2.0, 6.0)])


def test_a_killed_process_ends_its_pause_and_has_its_peak(clock: Clock) -> None:
    recorder = TimelineRecorder()
    recorder.sample([worker(memory=5, status="paused")])
    clock.now = 0.75
    recorder.note_killed("0", 90)
    clock.now = 2.0
    recorder.sample([worker(memory=3)])
    (found,) = timeline(recorder).workers
    assert (found.killed, found.paused, found.memory) == ([0.75], [(0.0, 0.75)], [5, 90, 0, 0, 3])


def test_spells_and_events_are_bounded(clock: Clock) -> None:
    recorder = TimelineRecorder()
    for number in range(500):
        clock.now = 10.0 * number
        recorder.sample([worker(status="paused")])
        clock.now += 1.0 if number else 9.0  # the first pause is nearest to its neighbor
        recorder.sample([worker()])
        recorder.note_killed("0", 1)
        recorder.note_restart("0")
    (found,) = timeline(recorder).workers
    assert len(found.paused) == MAX_SPELLS
    assert found.paused[0][0] == 0.0
    assert found.paused[-1] == (4990.0, 4991.0)
    assert all(start < end for start, end in found.paused)
    assert len(found.killed) == len(found.restarts) == MAX_EVENTS


def test_workers_that_lacked_memory_replace_those_that_did_not(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline_recorder, "MAX_TIMELINES", 3)
    recorder = TimelineRecorder()
    calm = [worker(str(number), memory=10 - number) for number in range(5)]
    recorder.sample(calm)
    assert [each.name for each in timeline(recorder).workers] == ["0", "1", "2"]
    clock.now = 1.0
    recorder.sample([*calm[:4], worker("4", memory=1, status="paused")])
    assert [each.name for each in timeline(recorder).workers] == ["0", "1", "4"]
    for number in range(100):  # an adaptive cluster, whose workers have new names
        clock.now += 1.0
        recorder.sample([worker("4", memory=1), worker(f"new-{number}", memory=3)])
    found = timeline(recorder)
    assert len(found.workers) == 3
    assert {"4", "new-99"} <= {each.name for each in found.workers}
    assert max(found.total) == 40


def test_groups_have_the_times_of_their_first_and_last_tasks() -> None:
    recorder = GroupRecorder(100.0)
    recorder.add("sum-1f", "sum", 105.0, 106.0, False)
    recorder.add("read-2e", "read", 101.0, 104.5, False)
    recorder.add("sum-1f", "sum", 103.0, 107.25, True)
    recorder.add("sum-3d", "sum", 109.0, 110.0, False)
    assert recorder.list_groups() == [
        TaskGroupTimes("read", 1.0, 4.5, 1, 0, 3.5),
        TaskGroupTimes("sum", 3.0, 7.25, 2, 1, 5.25),
        TaskGroupTimes("sum", 9.0, 10.0, 1, 0, 1.0),
    ]


def test_many_groups_of_one_operation_are_merged_with_their_neighbors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(task_group_times, "MAX_GROUPS", 4)
    recorder = GroupRecorder(0.0)
    for number in range(1000):
        late = 500.0 if number >= 500 else 0.0  # a pause in the middle
        recorder.add(f"f-{number}", "f", number + late, number + late + 0.5, False)
    found = recorder.list_groups()
    assert len(found) <= 4
    assert len(recorder._groups) <= 8
    assert sum(each.count for each in found) == 1000
    assert sum(each.seconds for each in found) == pytest.approx(500)
    assert any(each.started == 1000.0 for each in found)  # the pause is still to be seen


def test_groups_of_many_operations_leave_the_shortest_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_group_times, "MAX_GROUPS", 3)
    recorder = GroupRecorder(0.0)
    for number in range(6):
        recorder.add(f"op{number}-1f", f"op{number}", 10.0, 11.0 + number, False)
    found = {each.name: each for each in recorder.list_groups()}
    assert set(found) == {"op4", "op5", OTHER_GROUPS}
    assert (found[OTHER_GROUPS].count, found[OTHER_GROUPS].seconds) == (4, 10.0)
