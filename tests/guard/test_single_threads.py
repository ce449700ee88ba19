"""Workers that run one task at a time for a while."""

from __future__ import annotations

import asyncio
import pickle
from types import SimpleNamespace
from typing import Any

import pytest

from hyperplane.guard import single_threads
from hyperplane.guard.single_threads import SingleThreads

NAME = "hyperplane-single-thread"


@pytest.fixture
def worker() -> Any:
    return SimpleNamespace(address="tcp://10.0.0.1:1", nanny="n0", name=0, nthreads=4)


@pytest.fixture
def scheduler(worker: Any) -> Any:
    return SimpleNamespace(
        workers={worker.address: worker},
        worker_plugins={},
        total_nthreads=8,
        host_info={"10.0.0.1": {"nthreads": 4}},
        task_prefixes={"load": SimpleNamespace(states={"processing": 2, "memory": 3})},
        check_idle_saturated=lambda worker: None,
    )


def test_a_worker_runs_one_task_until_its_operation_has_ended(
    scheduler: Any, worker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []

    async def run(scheduler: Any, address: str, function: Any, *args: Any) -> None:
        calls.append((address, function.__name__, *args))

    monkeypatch.setattr(single_threads, "run_in_server", run)
    single = SingleThreads(scheduler)
    single.limit("n0", {"load"})
    single.apply(worker)
    assert (worker.nthreads, scheduler.total_nthreads) == (1, 5)
    assert scheduler.host_info == {"10.0.0.1": {"nthreads": 1}}
    assert single.pop_ended() == []
    scheduler.task_prefixes["load"].states = {"processing": 0, "memory": 5}
    assert single.pop_ended() == ["n0"]
    asyncio.run(single.restore("n0"))
    assert (worker.nthreads, scheduler.total_nthreads) == (4, 8)
    assert calls == [(worker.address, "limit_threads", 4)]
    assert scheduler.worker_plugins == {}


def test_a_worker_reads_its_limit_before_its_first_task(scheduler: Any) -> None:
    single = SingleThreads(scheduler)
    single.limit("n0", {"load"})
    plugin = pickle.loads(scheduler.worker_plugins[NAME])
    limited = SimpleNamespace(nanny="n0", state=SimpleNamespace(nthreads=4))
    other = SimpleNamespace(nanny="n1", state=SimpleNamespace(nthreads=4))
    plugin.setup(limited)
    plugin.setup(other)
    assert (limited.state.nthreads, other.state.nthreads) == (1, 4)


def test_after_a_restart_of_all_workers_none_is_limited(scheduler: Any, worker: Any) -> None:
    single = SingleThreads(scheduler)
    single.limit("n0", {"load"})
    single.clear()
    single.apply(worker)
    assert worker.nthreads == 4
    assert scheduler.worker_plugins == {}
