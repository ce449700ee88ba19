"""Tasks of a chosen worker whose process is killed: real clusters, and addresses that return."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import dask
import pytest
from distributed import Client, Scheduler, Worker, get_worker
from services import worker_ids
from small_clusters import SOON, started

from hyperplane.guard.restarted_workers import RestartedWorkers


def read_pid(number: int) -> int:
    import time

    time.sleep(0.2)
    return os.getpid()


def end_process(client: Client, worker: str) -> int:
    """Kill the process of a worker, and return the ID that it had when another one has started."""
    old = worker_ids(client)
    pid: int = client.run(os.getpid, workers=[worker])[worker]
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + SOON
    while len(running := worker_ids(client)) < 2 or running == old:
        assert time.monotonic() < deadline, "the worker was not restarted"
        time.sleep(0.05)
    return pid


@pytest.mark.slow
@pytest.mark.cluster
def test_tasks_of_a_killed_worker_run_in_its_next_process() -> None:
    with started() as (client, _):
        chosen, other = client.nthreads()
        futures = client.map(read_pid, range(8), workers=[chosen], pure=False)
        futures[0].result(SOON)
        with dask.annotate(workers=[chosen]):
            annotated = dask.delayed(read_pid)(8).persist()
        first = end_process(client, chosen)
        second = set(client.gather([*futures, annotated.compute(sync=False)]))
        other_pid = client.run(os.getpid, workers=[other])[other]
        assert not second & {first, other_pid}
        assert len(second) == 1
        # The address of an earlier process is that of the present one, also after more ends.
        (now,) = set(client.nthreads()) - {other}
        third = end_process(client, now)
        assert {third} == second
        later = client.submit(read_pid, 9, workers=[chosen], pure=False).result(SOON)
        assert later not in {first, third, other_pid}


@pytest.mark.slow
def test_tasks_move_to_a_process_that_the_scheduler_knows_before_the_end_of_the_first() -> None:
    """The connection of the first one may outlive it, in a process that it has forked."""

    async def run_tasks() -> tuple[str, str]:
        async with Scheduler(port=0, dashboard_address=":0") as scheduler:
            plugin = RestartedWorkers()
            scheduler.add_plugin(plugin)
            await plugin.start(scheduler)

            async def add_worker() -> Worker:
                worker = await Worker(scheduler.address)
                scheduler.workers[worker.address].nanny = "tcp://127.0.0.1:65000"
                plugin.add_worker(scheduler, worker.address)
                return worker

            async with Client(scheduler.address, asynchronous=True) as client:
                first = await add_worker()
                running = client.submit(time.sleep, 1, workers=[first.address])
                waiting = client.submit(
                    lambda slept: get_worker().address, running, workers=[first.address]
                )
                while not first.state.executing_count:
                    await asyncio.sleep(0.01)
                second = await add_worker()
                await scheduler.remove_worker(first.address, stimulus_id="test", close=False)
                found = await asyncio.wait_for(waiting, SOON)
                await second.close()
                await first.close()
                return found, second.address

    found, second = asyncio.run(run_tasks())
    assert found == second


def make_plugin() -> tuple[RestartedWorkers, Any]:
    """Return a plugin, and the scheduler in which ``tasks`` are by key."""
    scheduler: Any = SimpleNamespace(workers={}, tasks={}, running=())

    def set_restrictions(chosen: Mapping[str, set[str]]) -> None:
        for key, workers in chosen.items():
            scheduler.tasks[key].worker_restrictions = workers

    scheduler.set_restrictions = set_restrictions
    plugin = RestartedWorkers()
    asyncio.run(plugin.start(scheduler))
    return plugin, scheduler


def submit(plugin: RestartedWorkers, scheduler: Any, workers: set[str] | None, **notes: Any) -> Any:
    task = SimpleNamespace(worker_restrictions=workers, annotations=notes or None)
    key = f"task-{len(scheduler.tasks)}"
    scheduler.tasks[key] = task
    plugin.update_graph(scheduler, tasks=[key], client="a", keys={key})
    return task


def add(plugin: RestartedWorkers, scheduler: Any, worker: str, nanny: str | None) -> None:
    scheduler.workers[worker] = SimpleNamespace(nanny=nanny)
    plugin.add_worker(scheduler, worker)


def remove(plugin: RestartedWorkers, scheduler: Any, worker: str) -> None:
    del scheduler.workers[worker]
    plugin.remove_worker(scheduler, worker, stimulus_id="test")


def test_only_tasks_that_the_user_has_restricted_move() -> None:
    plugin, scheduler = make_plugin()
    add(plugin, scheduler, "a:1", "nanny a")
    add(plugin, scheduler, "b:1", "nanny b")
    chosen, both, other, anywhere, shuffled = (
        submit(plugin, scheduler, {"a:1"}),
        submit(plugin, scheduler, {"a:1", "b:1"}),
        submit(plugin, scheduler, {"b:1"}),
        submit(plugin, scheduler, None),
        submit(plugin, scheduler, {"a:1"}, shuffle_original_restrictions=None),
    )
    remove(plugin, scheduler, "a:1")
    assert chosen.worker_restrictions == {"a:1"}  # until its nanny has started another one
    add(plugin, scheduler, "a:2", "nanny a")
    assert chosen.worker_restrictions == {"a:2"}
    assert both.worker_restrictions == {"a:2", "b:1"}
    assert other.worker_restrictions == {"b:1"}
    assert anywhere.worker_restrictions is None
    assert shuffled.worker_restrictions == {"a:1"}
    assert submit(plugin, scheduler, {"a:1"}).worker_restrictions == {"a:2"}


def test_tasks_move_to_a_process_that_was_added_before_the_first_is_removed() -> None:
    plugin, scheduler = make_plugin()
    add(plugin, scheduler, "a:1", "nanny a")
    add(plugin, scheduler, "b:1", "nanny b")
    chosen, both, other = (
        submit(plugin, scheduler, {"a:1"}),
        submit(plugin, scheduler, {"a:1", "b:1"}),
        submit(plugin, scheduler, {"b:1"}),
    )
    add(plugin, scheduler, "a:2", "nanny a")
    assert chosen.worker_restrictions == {"a:1"}
    remove(plugin, scheduler, "a:1")
    assert chosen.worker_restrictions == {"a:2"}
    assert both.worker_restrictions == {"a:2", "b:1"}
    assert other.worker_restrictions == {"b:1"}
    assert submit(plugin, scheduler, {"a:1"}).worker_restrictions == {"a:2"}


def test_an_address_that_another_nanny_uses_again_is_that_of_its_process() -> None:
    plugin, scheduler = make_plugin()
    add(plugin, scheduler, "a:1", "nanny a")
    remove(plugin, scheduler, "a:1")
    add(plugin, scheduler, "a:2", "nanny a")
    add(plugin, scheduler, "a:1", "nanny b")
    assert submit(plugin, scheduler, {"a:1"}).worker_restrictions == {"a:1"}
    remove(plugin, scheduler, "a:2")
    add(plugin, scheduler, "a:3", "nanny a")
    assert submit(plugin, scheduler, {"a:2"}).worker_restrictions == {"a:3"}
    remove(plugin, scheduler, "a:1")
    add(plugin, scheduler, "b:2", "nanny b")
    assert submit(plugin, scheduler, {"a:1"}).worker_restrictions == {"b:2"}


def test_workers_without_a_nanny_and_very_old_ones_are_not_followed() -> None:
    plugin, scheduler = make_plugin()
    add(plugin, scheduler, "b:1", None)
    remove(plugin, scheduler, "b:1")
    add(plugin, scheduler, "b:2", None)
    assert submit(plugin, scheduler, {"b:1"}).worker_restrictions == {"b:1"}
    for port in range(1, 1502):
        add(plugin, scheduler, f"a:{port}", "nanny a")
        remove(plugin, scheduler, f"a:{port}")
    add(plugin, scheduler, "a:2000", "nanny a")
    assert submit(plugin, scheduler, {"a:501"}).worker_restrictions == {"a:501"}
    assert submit(plugin, scheduler, {"a:502"}).worker_restrictions == {"a:2000"}
