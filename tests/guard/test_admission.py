"""Root tasks with large results are not assigned in advance."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from hyperplane.guard.admission import RootTaskAdmission

GB = 10**9


class Queue(list[Any]):
    """The queue of root tasks of a scheduler."""

    def peek(self) -> Any:
        """Return the next task."""
        return self[0]


def task(results: int, size: int, waiting: int = 5) -> Any:
    """A task of a group of which some have ended."""
    states = {"memory": results, "released": 0, "forgotten": 0, "queued": waiting}
    return SimpleNamespace(group=SimpleNamespace(nbytes_total=results * size, states=states))


@pytest.fixture
def scheduler() -> Any:
    found = SimpleNamespace(WORKER_SATURATION=1.1, queued=Queue(), checked=[], opened=0)
    worker = SimpleNamespace(memory_limit=2 * GB, nthreads=2)
    found.workers = {"a": worker, "b": SimpleNamespace(memory_limit=8 * GB, nthreads=2)}
    found.check_idle_saturated = lambda worker: found.checked.append(found.WORKER_SATURATION)

    def opened(stimulus_id: str) -> None:
        found.opened += 1

    found.stimulus_queue_slots_maybe_opened = opened
    return found


def check(scheduler: Any, *tasks: Any) -> float:
    plugin = RootTaskAdmission()
    plugin.scheduler = scheduler
    scheduler.queued[:] = tasks
    plugin.check()
    saturation: float = scheduler.WORKER_SATURATION
    return saturation


def test_large_results_leave_no_task_in_advance_until_their_queue_is_empty(scheduler: Any) -> None:
    assert check(scheduler, task(results=3, size=20_000_000)) == 1.0
    assert scheduler.checked == [1.0, 1.0]  # each worker has fewer free slots now
    assert check(scheduler, task(results=4, size=20_000_000)) == 1.0
    assert scheduler.opened == 1  # nothing changed
    assert check(scheduler) == 1.1
    assert scheduler.checked == [1.0, 1.0, 1.1, 1.1]


@pytest.mark.parametrize(
    "first", [task(results=3, size=9_000_000), task(results=0, size=0), task(results=3, size=0)]
)
def test_small_and_unknown_results_keep_dasks_saturation(scheduler: Any, first: Any) -> None:
    """Of the memory for each of two threads of the smaller worker, 1 % is 10 MB."""
    assert check(scheduler, first) == 1.1
    assert scheduler.opened == 0


def test_workers_without_a_limit_keep_dasks_saturation(scheduler: Any) -> None:
    for worker in scheduler.workers.values():
        worker.memory_limit = 0
    assert check(scheduler, task(results=3, size=20_000_000)) == 1.1


@pytest.mark.parametrize(("saturation", "watches"), [(1.1, True), (2.0, False), (1.0, False)])
def test_a_saturation_of_the_user_is_kept(scheduler: Any, saturation: float, watches: bool) -> None:
    async def start() -> bool:
        plugin = RootTaskAdmission()
        scheduler.WORKER_SATURATION = saturation
        await plugin.start(scheduler)
        is_running = plugin._watch is not None and plugin._watch.is_running()
        await plugin.close()
        return is_running

    assert asyncio.run(start()) is watches


@pytest.mark.cluster
def test_a_scheduler_of_dask_has_what_the_plugin_uses() -> None:
    import dask.config
    import numpy as np
    from distributed import Client, LocalCluster

    seen = set()
    # The process of the tests uses more than its workers may.
    keys = (f"distributed.worker.memory.{name}" for name in ("target", "spill", "pause"))
    unlimited = dict.fromkeys(keys, False)
    with (
        dask.config.set(unlimited),
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=False,
            memory_limit=100_000_000,
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(RootTaskAdmission())
        scheduler = cluster.scheduler
        registered: Any = scheduler.plugins[RootTaskAdmission.name]

        def make(number: int) -> Any:
            return np.full(200_000, number)  # 1.6 MB

        def look(*args: Any, **kwargs: Any) -> None:
            seen.add(registered._next_is_large())

        registered.transition = look
        results = client.map(make, range(40))
        assert client.submit(sum, client.map(len, results)).result() == 8_000_000
        registered.check()
        assert scheduler.WORKER_SATURATION == 1.1
    assert True in seen
