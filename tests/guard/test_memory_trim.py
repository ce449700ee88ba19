"""Workers return freed memory to the system before it counts as used."""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

import hyperplane
from hyperplane.guard import memory_recorder
from hyperplane.guard.memory_recorder import MemoryRecorder

#: Seconds that a loaded machine may need.
SOON = 120


class Memory:
    """Memory of a process: what is used, and what is freed but kept."""

    def __init__(self) -> None:
        self.used, self.kept, self.trims = 0, 0, 0

    def read(self) -> tuple[int, int]:
        return self.used + self.kept, 0

    def trim(self) -> None:
        self.kept = 0
        self.trims += 1


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    memory = Memory()
    monkeypatch.setattr(memory_recorder, "_return_free_memory", memory.trim)
    return memory


def recorder_with(memory: Memory, limit: int | None) -> Any:
    recorder: Any = MemoryRecorder()
    recorder._memory = memory
    recorder._trim_in, recorder._trim_wait = 0, 1
    recorder._worker = SimpleNamespace(memory_manager=SimpleNamespace(memory_limit=limit))

    def sample(used: int, kept: int) -> int:
        memory.used, memory.kept = used, kept
        left: int = recorder._trim(used + kept)
        return left

    return sample


def test_a_process_below_half_of_its_limit_keeps_freed_memory(memory: Memory) -> None:
    sample = recorder_with(memory, 1000)
    assert sample(100, 390) == 490
    assert memory.trims == 0


def test_a_process_above_it_returns_freed_memory_with_each_sample_that_gains(
    memory: Memory,
) -> None:
    sample = recorder_with(memory, 1000)
    assert sample(400, 200) == 400
    assert sample(400, 150) == 400
    assert sample(400, 150) == 400
    assert memory.trims == 3


def test_without_a_gain_the_next_time_is_ever_later(memory: Memory) -> None:
    sample, trims = recorder_with(memory, 1000), []
    for _ in range(80):
        sample(700, 30)
        trims.append(memory.trims)
    times = [n for n in range(1, 80) if trims[n] > trims[n - 1]]
    assert times == [2, 6, 14, 30, 46, 62, 78]
    for _ in range(16):  # what is freed later is returned then
        sample(500, 200)
    assert memory.trims > trims[-1]
    trims = [memory.trims]
    sample(500, 200)
    sample(500, 200)
    assert memory.trims == trims[0] + 2


def test_without_a_limit_nothing_is_returned(memory: Memory) -> None:
    assert recorder_with(memory, None)(5000, 5000) == 10_000
    assert memory.trims == 0


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
