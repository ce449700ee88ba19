"""The timeline of a run on a cluster where one worker spills and another is killed for memory."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from distributed import wait
from services import worker_ids
from small_clusters import LIMIT, SOON, started

from hyperplane.errors import WorkerOutOfMemory
from hyperplane.history import RunRecord, WorkerTimeline, read_run
from hyperplane.reports import save_report

pytestmark = pytest.mark.cluster


def make_tasks() -> tuple[Any, Any, Any]:
    """Functions in a function, so that workers receive them by value."""

    def build(seed: int) -> Any:
        import numpy as np

        return np.random.default_rng(seed).random(2_000_000)  # 16 MB

    def total(array: Any) -> float:
        return float(array.sum())

    def fill_memory() -> int:
        import time

        held = []
        while True:
            held.append(bytearray(b"x" * 20_000_000))
            time.sleep(0.05)

    return build, total, fill_memory


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunRecord]:
    folder: Path = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder))
        build, total, fill_memory = make_tasks()
        with started(name="spilling") as (client, _):
            spilling, killed = client.nthreads()
            # More than 70 % of the limit, with the 150 MB of an empty process: results are written
            # to disk. Less than 85 % without that, which comes late on a busy machine: at 95 % the
            # worker would be killed.
            held = client.map(build, range(16), workers=[spilling], key="build")
            wait(held, timeout=SOON)
            sums = client.map(total, held, workers=[spilling], key="total")
            assert len(client.gather(sums)) == 16
            time.sleep(2.5)  # a measurement while results are on disk
            old = worker_ids(client)
            with suppress(WorkerOutOfMemory):
                client.submit(fill_memory, workers=[killed], key="fill-memory").result(SOON)
                pytest.fail("the task has not ended its worker")
            del held, sums
            deadline = time.monotonic() + SOON
            while len(running := worker_ids(client)) < 2 or running == old:
                assert time.monotonic() < deadline, "the worker was not restarted"
                time.sleep(0.1)
        yield read_run("spilling")


def find_workers(record: RunRecord) -> tuple[WorkerTimeline, WorkerTimeline]:
    """Return the timelines of the worker that spills, and of the one that is killed."""
    assert record.timeline is not None
    (spilling,) = (each for each in record.timeline.workers if not each.killed)
    (killed,) = (each for each in record.timeline.workers if each.killed)
    return spilling, killed


def test_the_worker_that_spills_has_the_times_and_the_bytes(record: RunRecord) -> None:
    timeline = record.timeline
    assert timeline is not None
    spilling, killed = find_workers(record)
    assert spilling.spilling
    assert not killed.spilling
    start, end = spilling.spilling[0]
    assert 0 <= start < end <= record.seconds
    assert max(timeline.spilled) >= 0.2 * LIMIT
    assert 0.5 * LIMIT < max(spilling.memory) < 1.1 * LIMIT
    assert not spilling.restarts


def test_the_worker_that_is_killed_has_its_end_and_its_restart(record: RunRecord) -> None:
    _, killed = find_workers(record)
    (usage,) = (each for each in record.workers if each.name == killed.name)
    assert len(killed.killed) == len(killed.restarts) == usage.restarts == record.killed > 0
    assert 0 < killed.killed[0] < killed.restarts[-1] <= record.seconds
    assert max(killed.memory) >= 0.8 * LIMIT


def test_the_groups_have_the_order_of_the_computations(record: RunRecord) -> None:
    timeline = record.timeline
    assert timeline is not None
    times = {each.name: each for each in timeline.groups}
    assert (times["build"].count, times["total"].count) == (16, 16)
    assert times["build"].started < times["total"].started
    assert times["build"].ended <= times["total"].ended <= record.seconds
    assert abs(timeline.started - record.started) < SOON


def test_the_parts_are_as_long_as_the_run(record: RunRecord) -> None:
    timeline = record.timeline
    assert timeline is not None
    seconds = timeline.part_seconds * len(timeline.total)
    assert seconds == pytest.approx(record.ended - timeline.started, abs=5)
    assert len(timeline.total) == len(timeline.spilled) == len(timeline.processes)
    assert max(timeline.processes) == 2


def test_the_thresholds_are_recorded(record: RunRecord) -> None:
    plan = record.plan
    assert (plan.spill, plan.pause, plan.terminate) == (0.7, 0.8, 0.95)


def test_the_report_shows_what_happened(record: RunRecord, tmp_path: Path) -> None:
    spilling, killed = find_workers(record)
    text = save_report(record, tmp_path / "run.html").read_text(encoding="utf-8")
    assert f"<title>worker {spilling.name}: " in text
    (of_killed,) = re.findall(f"<title>worker {killed.name}: ([^<]*)</title>", text)
    assert "ended for lack of memory after" in of_killed
    assert "restarted after" in of_killed
    for name in ("build", "total", "fill-memory"):
        assert f"<td>{name}</td>" in text
    assert "results on disk" in text
    assert "ram_gb_per_proc=" in text
