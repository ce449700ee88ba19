"""When a paused worker reports that it stays paused."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.core import Status

from hyperplane.guard import memory_recorder
from hyperplane.guard.memory_recorder import MemoryRecorder

LIMIT = 500_000_000


def create_recorder(reports: list[Any]) -> Any:
    recorder: Any = MemoryRecorder()
    recorder._worker = SimpleNamespace(
        status=Status.paused,
        data={},
        memory_manager=SimpleNamespace(memory_limit=LIMIT),
        loop=SimpleNamespace(add_callback=lambda call, cause, tasks: reports.append(cause)),
    )
    recorder._running = set()
    recorder._paused_samples, recorder._paused_at = 0, (math.inf, 0)
    recorder._spill_failures = SimpleNamespace(failed_at=1.0)
    return recorder


@pytest.mark.parametrize(
    ("memory", "spilled", "reports"),
    [
        pytest.param([410e6] * 60, [45e6] * 60, 1, id="constant"),
        # Dask pickles results of 15 MB, and finds that the disk is full.
        pytest.param([410e6, 425e6, 455e6, 412e6] * 15, [45e6] * 60, 1, id="tries to spill"),
        pytest.param(
            [410e6 - 6e6 * n for n in range(20)], [45e6] * 20, 0, id="memory returns slowly"
        ),
        pytest.param([410e6] * 60, [1e6 * n for n in range(60)], 0, id="spills slowly"),
    ],
)
def test_a_worker_reports_once_that_its_memory_does_not_fall(
    memory: list[float], spilled: list[float], reports: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_recorder, "return_freed_memory", lambda: None)
    sent: list[Any] = []
    recorder = create_recorder(sent)
    for used, on_disk in zip(memory, spilled, strict=True):
        recorder._check_paused(used, on_disk)
    assert sent == ["spill disk"] * reports


def test_a_worker_that_runs_a_task_reports_nothing() -> None:
    sent: list[Any] = []
    recorder = create_recorder(sent)
    recorder._running = {"task"}
    for _ in range(60):
        recorder._check_paused(LIMIT, 0)
    assert sent == []
