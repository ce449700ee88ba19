"""Workers return freed memory to the system before it counts as used, or as their heap grows."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

import hyperplane
from hyperplane.guard import freed_memory, memory_recorder
from hyperplane.guard.freed_memory import FreedMemory
from hyperplane.guard.memory_recorder import MemoryRecorder

#: Seconds that a loaded machine may need.
SOON = 120
#: Seconds for which a measured memory is used again.
FRESH = 0.005
#: Limit of the memory of a process, and one of which none of these processes uses half.
LIMIT, LARGE = 1000, 10**12
MB = 10**6


class Memory:
    """Memory of a process: what is used, and what is freed but kept; and a clock."""

    def __init__(self) -> None:
        self.used, self.kept, self.trims = 0, 0, 0
        self.now, self.took = 100.0, 0.001
        self.cpu = 0.0
        self._last = 0, 0

    def read(self, fresh: bool = False) -> tuple[int, int]:
        if fresh or self.took > FRESH:  # as the real one, which reads again after 5 ms
            self._last = self.used + self.kept, 0
        return self._last

    def trim(self) -> None:
        self.kept = 0
        self.trims += 1
        self.now += self.took
        self.cpu += self.took


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    memory = Memory()
    monkeypatch.setattr(freed_memory, "return_freed_memory", memory.trim)
    monkeypatch.setattr(freed_memory.time, "monotonic", lambda: memory.now)
    monkeypatch.setattr(freed_memory.time, "process_time", lambda: memory.cpu)
    monkeypatch.setattr(freed_memory.time, "thread_time", lambda: memory.cpu)
    return memory


def start_sampling(memory: Memory, limit: int | None = LIMIT) -> Callable[..., int]:
    freed = FreedMemory(cast(Any, memory))

    def sample(used: int, kept: int, seconds: float = 0.25) -> int:
        """Return the memory that is left; the next sample follows after `seconds`."""
        memory.used, memory.kept = used, kept
        memory.read(fresh=True)
        left, _ = freed.return_if_useful(limit)
        memory.now += seconds
        return left

    return sample


def test_a_process_below_half_of_its_limit_keeps_freed_memory(memory: Memory) -> None:
    assert start_sampling(memory)(100, 390) == 490
    assert memory.trims == 0


def test_a_process_above_it_returns_freed_memory_each_time_that_gains(memory: Memory) -> None:
    sample = start_sampling(memory)
    for trims in range(1, 5):
        assert sample(400, 150, 0.02) == 400
        assert memory.trims == trims


def test_the_gain_is_read_after_freed_memory_was_returned(memory: Memory) -> None:
    """It takes less time than that for which a measured memory is used again."""
    assert memory.took < FRESH
    assert start_sampling(memory)(400, 150) == 400


@pytest.mark.parametrize("kept", [150, 0])
def test_it_takes_a_tenth_of_the_time_at_most(memory: Memory, kept: int) -> None:
    sample = start_sampling(memory)
    memory.took = 0.02
    began = memory.now
    while memory.now < began + 2:
        sample(800, kept, 0.005)
    assert 8 <= memory.trims <= 10


def test_without_a_gain_the_next_time_is_ever_later(memory: Memory) -> None:
    sample, times = start_sampling(memory), []
    began = memory.now
    for _ in range(400):
        trims, now = memory.trims, memory.now
        sample(600, 20, 0.05)
        if memory.trims > trims:
            times.append(now - began)
    waits = [after - before for before, after in pairwise(times)][:7]
    assert waits == pytest.approx([0.25, 0.5, 1, 2, 4, 4, 4], abs=0.1)
    memory.now += 4
    sample(400, 200, 0.02)  # what is freed later is returned then, and is soon looked for again
    trims = memory.trims
    sample(400, 200)
    assert memory.trims == trims + 1


def test_near_the_limit_it_does_not_wait_for_long(memory: Memory) -> None:
    sample = start_sampling(memory)
    for _ in range(20):
        sample(800, 20, 0.05)
    assert memory.trims == 20


def test_without_a_limit_nothing_is_returned(memory: Memory) -> None:
    assert start_sampling(memory, None)(5000, 5000) == 10_000
    assert memory.trims == 0


def start_growth(memory: Memory) -> FreedMemory:
    """Return the times of a process of 200 MB that has run long enough to return memory."""
    memory.used = 200 * MB
    memory.read(fresh=True)
    freed = FreedMemory(cast(Any, memory))
    memory.cpu += 10
    return freed


@pytest.mark.parametrize(("used", "kept", "trims"), [(200, 60, 0), (200, 70, 1), (270, 0, 1)])
def test_a_process_far_below_its_limit_returns_freed_memory_after_it_has_grown(
    memory: Memory, used: int, kept: int, trims: int
) -> None:
    freed = start_growth(memory)
    memory.used, memory.kept = used * MB, kept * MB
    memory.read(fresh=True)
    freed.return_if_useful(LARGE)
    assert memory.trims == trims
    assert memory.kept == (0 if trims else kept * MB)


def test_the_growth_is_that_since_memory_was_last_returned(memory: Memory) -> None:
    freed = start_growth(memory)
    for used, kept, trims in [(1000, 0, 1), (1000, 240, 1), (1000, 260, 2), (400, 700, 2)]:
        memory.used, memory.kept, memory.cpu = used * MB, kept * MB, memory.cpu + 10
        memory.read(fresh=True)
        freed.return_if_useful(LARGE)
        assert memory.trims == trims


def test_growth_costs_a_hundredth_of_the_cpu_time_at_most(memory: Memory) -> None:
    """What is returned and used again costs five times the return itself."""
    freed, began = start_growth(memory), memory.cpu
    memory.took = 0.02
    while memory.cpu < began + 200:
        memory.kept, memory.cpu = 500 * MB, memory.cpu + 0.25
        freed.return_if_useful(LARGE)
    assert 10 <= memory.trims <= 17
    assert 6 * memory.took * memory.trims < 0.0105 * 200


def test_a_process_that_has_run_for_a_short_time_keeps_freed_memory(memory: Memory) -> None:
    freed = FreedMemory(cast(Any, memory))
    memory.kept, memory.cpu = 900 * MB, 4.9
    memory.read(fresh=True)
    freed.return_if_useful(LARGE)
    assert memory.trims == 0
    memory.cpu = 5.1
    freed.return_if_useful(LARGE)
    assert memory.trims == 1


def test_tasks_do_not_wait_for_what_has_grown(memory: Memory) -> None:
    freed = start_growth(memory)
    memory.kept = 900 * MB
    memory.read(fresh=True)
    freed.return_if_useful(LARGE, in_loop=True)
    assert memory.trims == 0


GAPS = """
import ctypes
from hyperplane.guard import freed_memory
from hyperplane.guard.memory_record import ProcessMemory

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
libc.mallopt(-3, 32 << 20)  # no block of these is mapped separately
libc.mallopt(-1, 64 << 20)
freed_memory._GROWTH_AFTER = 0.0
memory = ProcessMemory()
freed = freed_memory.FreedMemory(memory)
before = memory.read(fresh=True)[0]
blocks = [libc.malloc(1_000_000) for _ in range(300)]
for block in blocks:
    ctypes.memset(block, 1, 1_000_000)
for block in blocks[::2]:
    libc.free(block)
kept = memory.read(fresh=True)[0] - before
left = freed.return_if_useful(10**12)[0] - before
print(kept, left)
"""


@pytest.mark.process
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="malloc is not that of glibc")
def test_a_process_returns_the_gaps_of_its_heap() -> None:
    done = subprocess.run(
        [sys.executable, "-c", GAPS], capture_output=True, text=True, check=True, timeout=SOON
    )
    kept, left = map(int, done.stdout.split())
    assert kept > 290 * MB
    assert 140 * MB < left < 170 * MB


def test_freed_memory_is_returned_before_a_task_begins(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record of a task whose memory before it has what other tasks have freed is wrong, too."""
    recorder: Any = MemoryRecorder()
    recorder._memory, recorder._freed = memory, FreedMemory(cast(Any, memory))
    recorder._running, recorder._held, begun = set(), {}, []
    recorder._file = SimpleNamespace(begin_task=lambda key, task: begun.append(task))
    monkeypatch.setattr(memory_recorder, "read_shuffle_buffers", lambda worker: 0)
    task = SimpleNamespace(prefix="load", dependencies=())
    recorder._worker = SimpleNamespace(
        memory_manager=SimpleNamespace(memory_limit=LIMIT),
        state=SimpleNamespace(tasks={"load-1": task}),
        data={},
    )
    memory.used, memory.kept = 300, 400
    memory.read(fresh=True)
    recorder._begin("load-1")
    assert [each.memory_before for each in begun] == [300]


@pytest.mark.cluster
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="malloc is not that of glibc")
def test_a_worker_returns_what_a_task_has_freed() -> None:
    client, cluster = hyperplane.initialize_cluster(
        num_workers=1, nprocs=1, nthreads=1, ram_gb_per_proc=0.7, local_fit="exact"
    )

    def allocate() -> int:
        import numpy as np

        # Below the size that malloc maps, so that they are in its heap; the last one stays, and
        # keeps the heap from being cut at its end.
        blocks = [np.ones(125_000) for _ in range(300)]
        sys._last_block = blocks.pop()  # type: ignore[attr-defined]
        return len(blocks)

    def used(dask_worker: Any) -> int:
        memory: int = dask_worker.monitor.get_process_memory()
        return memory

    with cluster, client:
        [empty] = client.run(used).values()
        assert client.submit(allocate).result() == 299
        deadline = time.monotonic() + SOON
        [left] = client.run(used).values()
        while left > empty + 150_000_000 and time.monotonic() < deadline:
            [left] = client.run(used).values()
        assert left < empty + 150_000_000
