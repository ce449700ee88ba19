"""The record of a worker is in its file even after SIGKILL."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hyperplane.guard import memory_recorder
from hyperplane.guard.memory_record import KEY_LENGTH, MemoryFile, ProcessMemory
from hyperplane.guard.memory_recorder import (
    MemoryRecorder,
    is_allocation_error,
    requested_bytes,
)
from hyperplane.guard.memory_report import RunningTask

PROGRAM = """
import ctypes, sys
from pathlib import Path
from hyperplane.guard.memory_record import MemoryFile
from hyperplane.guard.memory_report import RunningTask

file = MemoryFile(Path(sys.argv[1]), create=True)
file.write_held(5, 3, 2, {"from-map": 7})
task = RunningTask("", "sum", 0.0, 100, 50, 200, inputs_held=40, held_before=30)
file.begin_task("sum-1", task)
print("ready", flush=True)
ctypes.PyDLL(None).pause()  # with the GIL
"""


@pytest.mark.process
def test_the_record_of_a_killed_process_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "record"
    command = [sys.executable, "-c", PROGRAM, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        file = MemoryFile(path)
        path.unlink()  # as Dask does with the folder of a worker
        process.send_signal(signal.SIGKILL)
    record = file.read()
    file.close()
    assert (record.memory, record.empty, record.spilled) == (5, 3, 2)
    assert record.held == {"from-map": 7}
    (task,) = record.running
    assert (task.key, task.prefix, task.memory_before, task.inputs) == ("sum-1", "sum", 100, 50)
    assert (task.reserved_before, task.inputs_held, task.held_before) == (200, 40, 30)


def test_tasks_that_have_ended_are_not_in_the_record(tmp_path: Path) -> None:
    file = MemoryFile(tmp_path / "record", create=True)
    for number in range(100):  # more than fit
        file.begin_task(("x" * 500, number), RunningTask("", "x" * 200, 0.0, 1, 1))
    tasks = file.read().running
    assert {len(task.key) for task in tasks} == {KEY_LENGTH}
    assert 50 < len(tasks) < 100
    for number in range(100):
        file.end_task(("x" * 500, number))
    file.begin_task("last", RunningTask("", "last", 0.0, 1, 1))
    assert [task.key for task in file.read().running] == ["last"]
    file.close()


def test_many_held_prefixes_are_cut_to_the_largest(tmp_path: Path) -> None:
    file = MemoryFile(tmp_path / "record", create=True)
    file.write_held(0, 0, 0, {f"{number}-" + "é" * 90: number for number in range(500)})
    held = file.read().held
    assert held is not None
    assert max(held.values()) == 499
    assert len(held) == 60
    file.close()


@pytest.mark.skipif(sys.platform != "linux", reason="blocks of a file")
def test_the_file_has_its_place_on_the_disk_before_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "record"
    file = MemoryFile(path, create=True)
    status = path.stat()
    assert status.st_blocks * 512 >= status.st_size
    nanny = MemoryFile(path)
    file.begin_task("first", RunningTask("", "first", 0.0, 1, 1))
    again = MemoryFile(path, create=True)  # the plugin is registered again
    assert nanny.read().running == ()
    again.begin_task("second", RunningTask("", "second", 0.0, 1, 1))
    assert [task.key for task in nanny.read().running] == ["second"]
    for each in (file, nanny, again):
        each.close()


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="not on this system")
def test_a_full_disk_costs_the_record_but_not_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    file = MemoryFile(tmp_path / "record", create=True)
    file.begin_task("sum-1", RunningTask("", "sum", 0.0, 1, 1))
    assert [task.key for task in file.read().running] == ["sum-1"]
    assert not list(tmp_path.iterdir())
    file.close()


def test_a_recorder_that_could_not_start_does_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("of the test")

    monkeypatch.setattr(memory_recorder, "MemoryFile", refuse)
    worker: Any = SimpleNamespace(local_directory=str(tmp_path))
    recorder = MemoryRecorder()
    with pytest.raises(OSError, match="of the test"):
        recorder.setup(worker)
    recorder.transition("x", "ready", "executing")
    recorder.teardown(worker)


def test_what_was_in_memory_before_a_task_is_recorded(tmp_path: Path) -> None:
    def make_worker_task(key: str, size: int, *needed: Any) -> Any:
        return SimpleNamespace(key=key, prefix=key, nbytes=size, dependencies=needed)

    warm, cold = make_worker_task("warm", 40), make_worker_task("cold", 7)
    tasks = {"warm": warm, "cold": cold, "sum": make_worker_task("sum", 0, warm, cold)}
    shuffles = {"0f3": {"disk": {"memory": 20}, "comm": {"memory": 3}}}
    worker: Any = SimpleNamespace(
        local_directory=str(tmp_path),
        state=SimpleNamespace(tasks=tasks),
        data=SimpleNamespace(fast={"warm": 0}),
        extensions={"shuffle": SimpleNamespace(heartbeat=lambda: shuffles)},
        memory_manager=SimpleNamespace(memory_limit=10**9),
        status="running",
    )
    recorder = MemoryRecorder()
    recorder.setup(worker)
    try:
        recorder.transition("warm", "executing", "memory")
        recorder.transition("cold", "executing", "memory")
        recorder.transition("sum", "ready", "executing")
        (task,) = recorder._file.read().running
    finally:
        recorder.teardown(worker)
    assert (task.key, task.inputs, task.inputs_held, task.held_before) == ("sum", 47, 40, 70)
    assert task.memory_before > 0


def test_memory_of_this_process_is_measured() -> None:
    memory = ProcessMemory()
    resident, reserved = memory.read()
    memory.close()
    assert 10_000_000 < resident < 100_000_000_000
    assert os.name == "nt" or sys.platform == "darwin" or reserved > 10_000_000


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("MemoryError()", 0),
        ("MemoryError((1000, 10), dtype('float64'))", 80_000),
        ("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 2.00 GiB for", 2 * 2**30),
        ("ArrowMemoryError('malloc of size 640 failed')", 640),
        ("RuntimeError('std::bad_alloc')", 0),
    ],
)
def test_errors_of_allocations_are_found_by_their_text(text: str, size: int) -> None:
    assert is_allocation_error(text)
    assert requested_bytes(text) == size


@pytest.mark.parametrize(
    "text",
    [
        "ValueError('not a MemoryError')",
        "RuntimeError('the service said: std::bad_alloc')",
        "ValueError('row 3: Unable to allocate 2.00 GiB for an array')",
        "OutOfMemoryError('CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; ...')",
        "MemoryError('std::bad_alloc: out_of_memory: CUDA error at: rmm/cuda_memory_resource.hpp')",
        "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 1,000 bytes",
        "MemoryErrorInTheNameOfAnother()",
    ],
)
def test_other_errors_are_not_those_of_allocations(text: str) -> None:
    assert not is_allocation_error(text)
