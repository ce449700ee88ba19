"""What the process of a sample measures of its memory, and what it keeps."""

from __future__ import annotations

import subprocess
import sys
import weakref
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from hyperplane.collections.frames import shared_tables
from hyperplane.collections.frames.shared_tables import SharedTables
from hyperplane.core.dask_internals.tasks import Task, TaskRef
from hyperplane.forecasts import shared_memory
from hyperplane.forecasts.evaluate import find_baseline
from hyperplane.forecasts.layout import Layout
from hyperplane.forecasts.memory_meter import PeakMeter, has_exact_peaks, read_library_memory
from hyperplane.forecasts.model import GraphInfo, build_model
from hyperplane.forecasts.records import SampleRequest, SampleResult, SampleTask, TaskRecord
from hyperplane.forecasts.sample_plan import plan_sample
from hyperplane.forecasts.sample_process import SampleRunner
from hyperplane.forecasts.task_units import divide_graph

MB = 10**6
ALIVE: weakref.WeakSet[Block] = weakref.WeakSet()


class Block:
    """A result of which can be seen whether it is still in memory."""

    def __init__(self) -> None:
        ALIVE.add(self)


def count_alive(block: Block) -> bytes:
    assert block in ALIVE
    return bytes(1000 * len(ALIVE))


def test_the_results_of_the_repeated_first_step_are_released(tmp_path):
    """They would count as memory that each process keeps."""
    tasks = (
        SampleTask((("block", Task("block", Block)),), {}, ("block",)),
        SampleTask(
            (("count", Task("count", count_alive, TaskRef("block"))),),
            {"block": (0, "block")},
            ("count",),
        ),
    )
    records, repeated = SampleRunner(SampleRequest(tasks), tmp_path).run()
    assert repeated is not None
    # One block; the other one has been released.
    assert 1000 <= records[1].outputs[0] < 2000


def read_part() -> np.ndarray:
    return np.ones(3 * MB)  # 24 MB


def repeat(part: np.ndarray) -> np.ndarray:
    block = np.ones(10 * MB)  # 80 MB
    return np.repeat(part, 2 + int(block[0]))  # 72 MB


def add_up(part: np.ndarray) -> float:
    return float(part.sum())


@pytest.mark.skipif(not has_exact_peaks(), reason="the kernel does not record peaks")
def test_the_partition_that_waits_may_have_the_result_of_any_task(tmp_path):
    members = (
        ("read", Task("read", read_part)),
        ("repeat", Task("repeat", repeat, TaskRef("read"))),
        ("sum", Task("sum", add_up, TaskRef("repeat"))),
    )
    request = SampleRequest((SampleTask(members, {}, ("sum",)),))
    (record,), _ = SampleRunner(request, tmp_path).run()
    # The largest is the second task, 24 + 80 + 72 MB, while another partition has 72 MB.
    assert record.peak - record.before == pytest.approx(176 * MB, rel=0.1)
    assert record.waiting == pytest.approx(72 * MB, rel=0.1)


def read_rows() -> np.ndarray:
    return read_part()[:1000]


@pytest.mark.parametrize("outputs", [("sum",), ("rows", "sum")])
def test_a_view_that_waits_keeps_all_of_its_array(tmp_path, outputs):
    members = (
        ("rows", Task("rows", read_rows)),
        ("sum", Task("sum", add_up, TaskRef("rows"))),
    )
    request = SampleRequest((SampleTask(members, {}, outputs),))
    (record,), _ = SampleRunner(request, tmp_path).run()
    assert record.waiting == pytest.approx(24 * MB, rel=0.1)


def test_a_result_for_other_tasks_waits_until_the_last_task(tmp_path):
    members = (
        ("read", Task("read", read_part)),
        ("sum", Task("sum", add_up, TaskRef("read"))),
        ("block", Task("block", repeat, TaskRef("sum"))),
    )
    request = SampleRequest((SampleTask(members, {}, ("read", "block")),))
    (record,), _ = SampleRunner(request, tmp_path).run()
    assert record.waiting == pytest.approx(24 * MB, rel=0.1)


PROGRAM = """
import mmap
import numpy as np
from hyperplane.forecasts.memory_meter import read_library_memory
MB = 10**6
before = read_library_memory()
block = np.ones(4 * MB)  # 32 MB of malloc
numbers = [float(number) for number in range(500_000)]  # 12 MB of Python
known = read_library_memory() - before
del numbers
with mmap.mmap(-1, 64 * MB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as mapped:
    for place in range(0, 64 * MB, mmap.PAGESIZE):
        mapped[place] = 1
    print(before, known, read_library_memory() - before)
"""


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="read from files of Linux")
def test_memory_of_libraries_is_neither_that_of_malloc_nor_of_python():
    # In a new process: in this one other threads of the tests allocate and free memory.
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True)
    before, known, grown = map(int, done.stdout.split())
    if not before:
        pytest.skip("the C library does not say what malloc has")
    assert abs(known) < 12 * MB + 3 * MB
    assert grown / MB == pytest.approx(64, abs=8)


def build(units, library, shared=(0, 0)):
    graph = {("read", part): [] for part in range(units)}
    graph["all"] = [("read", part) for part in range(units)]
    divided = divide_graph(graph, ["all"])
    steps = plan_sample(divided, {})
    records = [
        TaskRecord(1, 1, 150 * MB, 160 * MB, 150 * MB, 0, 0, (1,), library=size * MB)
        for size in library[: len(steps)]
    ]
    first, second = (replace(records[0], shared=size * MB) for size in shared)
    records[0] = second
    info = GraphInfo((divided.unit_of["all"],), tuple(range(units + 1)))
    result = SampleResult(tuple(records), 100 * MB, True, repeated=first, library=0)
    return build_model(divided, info, steps, result)


@pytest.mark.parametrize(
    ("units", "threads", "expected"),
    [(8, 1, 50), (8, 2, 50 + 70), (8, 4, 50 + 210), (1, 4, 50)],
)
def test_each_thread_has_the_memory_that_a_library_keeps(units, threads, expected):
    """Polars had 124 MB after tasks of one thread, and 230 MB after those of two."""
    # After the first run of the first task there are 40 MB, and then 70; 60 are not more.
    model = build(units, (40, 70, 60, 60, 60) if units > 1 else (70, 70))
    assert find_baseline(model, Layout(2, threads)).retained / MB == pytest.approx(expected)


@pytest.mark.parametrize("shared", [(45, 0), (0, 45), (30, 15)])
@pytest.mark.parametrize(("threads", "expected"), [(1, 50), (2, 50 + 25), (4, 50 + 75)])
def test_tables_that_all_tasks_share_are_in_a_process_once(threads, expected, shared):
    """The right side of a join, read by the first task, and what its reading has left."""
    model = build(8, (40, 70, 60, 60, 60), shared)
    assert find_baseline(model, Layout(2, threads)).retained / MB == pytest.approx(expected)


def test_shared_tables_that_are_more_than_what_a_library_keeps_are_no_memory_of_threads():
    model = build(8, (40, 70, 60, 60, 60), (90, 0))
    assert model.library == {0: 0}
    # Of the second task, which has read nothing that is shared, all is its own.
    model = build(8, (40, 70, 75, 60, 60), (90, 0))
    assert model.library == {0: 5 * MB}


def read_shared() -> bytes:
    shared_tables.SHARED_TABLES.get("table", lambda: pl.DataFrame({"a": [1]}))
    return b""


def test_the_memory_of_shared_tables_is_measured_when_they_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(shared_tables, "SHARED_TABLES", tables := SharedTables())
    sizes = iter([20 * MB, 65 * MB])  # before and after the table is read, which is once
    monkeypatch.setattr(shared_memory, "read_library_memory", lambda: next(sizes))
    task = SampleTask((("read", Task("read", read_shared)),), {}, ("read",))
    records, repeated = SampleRunner(SampleRequest((task,)), tmp_path).run()
    assert repeated is not None
    assert (repeated.shared, [record.shared for record in records]) == (45 * MB, [0])
    tables.get("other", lambda: pl.DataFrame({"a": [1]}))  # is not measured


@pytest.mark.skipif(not has_exact_peaks(), reason="the kernel records no peaks")
def test_the_memory_of_libraries_is_read_without_a_change_of_the_peak():
    with PeakMeter() as meter:
        block = np.ones(8 * MB)  # 64 MB, which malloc returns at once
        del block
        read_library_memory()
    assert meter.peak - meter.before > 60 * MB
