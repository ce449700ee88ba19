"""Tasks whose worker was ended for its memory run again, in a way that may fit."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import psutil
import pytest
from distributed import Client, Scheduler
from distributed.diagnostics.plugin import SchedulerPlugin
from scale import FULL
from small_clusters import LIMIT, SOON, started
from subprograms import wait_until

from hyperplane.errors import WorkerOutOfMemory
from hyperplane.guard import oom_counters

pytestmark = pytest.mark.cluster


def memory_limits(cluster: Any) -> list[tuple[int, int]]:
    """Return the limits of the workers, as the scheduler and as their nannies know them."""
    nannies = {nanny.worker_address: nanny for nanny in cluster.workers.values()}
    return [
        (worker.memory_limit, nannies[address].memory_manager.memory_limit)
        for address, worker in cluster.scheduler.workers.items()
        if address in nannies
    ]


@pytest.mark.slow
def test_tasks_that_do_not_fit_together_run_one_at_a_time() -> None:
    def fill(number: int) -> int:
        import time

        kept = bytearray(200_000_000)
        kept[::4096] = b"1" * len(kept[::4096])
        time.sleep(1)
        return number

    with started(nthreads=2) as (client, cluster):
        assert client.gather(client.map(fill, range(4), pure=False)) == list(range(4))
        workers = cluster.scheduler.workers
        wait_until(lambda: [each.nthreads for each in workers.values()] == [2, 2], SOON)
        assert cluster.scheduler.total_nthreads == 4

        def count_threads(dask_worker: Any) -> int:
            return int(dask_worker.state.nthreads)

        wait_until(lambda: set(client.run(count_threads).values()) == {2}, SOON)


@pytest.mark.slow
def test_a_task_gets_the_memory_of_its_node_and_returns_it() -> None:
    def fill() -> int:
        import psutil

        kept = bytearray(int(750e6) - psutil.Process().memory_info().rss)
        kept[::4096] = b"1" * len(kept[::4096])
        return sum(kept[:4097])

    with started(nprocs=3) as (client, cluster):
        held = client.map(lambda number: number, range(10))
        futures = [client.submit(fill, pure=False) for _ in range(2 if FULL else 1)]
        assert {future.result(SOON) for future in futures} == {2 * ord("1")}
        assert client.gather(held) == list(range(10)), "results of the others have moved"
        del futures
        wait_until(lambda: memory_limits(cluster) == [(LIMIT, LIMIT)] * 3, SOON)
        workers = cluster.scheduler.workers
        wait_until(lambda: len(cluster.scheduler.running) == len(workers) == 3, SOON)
        assert client.gather(client.map(abs, range(20))) == list(range(20))


class SlowRegistration(SchedulerPlugin):
    """Answers a worker that registers when memory is being lent, or after some seconds."""

    async def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """Delay the answer, after which the worker accepts tasks."""
        for _ in range(200):
            if any(each.memory_limit > LIMIT for each in scheduler.workers.values()):
                return
            await asyncio.sleep(0.01)


@pytest.mark.slow
def test_a_worker_that_registers_gets_no_task_while_memory_is_to_be_lent() -> None:
    def fill() -> int:
        import psutil

        kept = bytearray(int(750e6) - psutil.Process().memory_info().rss)
        kept[::4096] = b"1" * len(kept[::4096])
        return sum(kept[:4097])

    with started() as (client, cluster):
        cluster.scheduler.add_plugin(SlowRegistration())
        future = client.submit(fill, pure=False)
        others = client.map(lambda number: time.sleep(0.1) or number, range(40), pure=False)
        assert future.result(SOON) == 2 * ord("1")
        assert client.gather(others) == list(range(40))


@contextmanager
def killed_as_by_the_kernel(cluster: Any, counter: Path) -> Iterator[list[int]]:
    """Kill full workers during the block, and count it as the kernel does; yield their PIDs.

    A worker with lent memory is not killed.
    """
    ended, killed = threading.Event(), list[int]()

    def kill() -> None:
        while not ended.wait(0.1):
            for nanny in list(cluster.workers.values()):
                reporter = nanny.plugins["hyperplane-memory-reporter"]
                full = reporter._samples.find_peak(0) > 0.96 * LIMIT
                if not full or nanny.memory_manager.memory_limit != LIMIT:
                    continue
                if (pid := nanny.pid) is not None and pid not in killed:
                    killed.append(pid)
                    counter.write_text(f"oom_kill {len(killed)}\n")
                    os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        ended.set()
        thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("nprocs", [2, 3])
def test_a_task_that_the_kernel_ended_gets_the_memory_of_its_node(
    nprocs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(limit: int) -> int:
        import time

        import psutil
        from distributed import get_worker

        def extend(size: float) -> None:
            part = bytearray(int(size) - psutil.Process().memory_info().rss)
            part[::4096] = b"1" * len(part[::4096])
            kept.append(part)

        kept: list[bytearray] = []
        extend(0.98 * limit)
        while get_worker().memory_manager.memory_limit == limit:
            time.sleep(0.05)  # until it is ended
        extend(1.5 * limit)
        return sum(part[0] for part in kept)

    counter = tmp_path / "vmstat"
    counter.write_text("oom_kill 0\n")
    monkeypatch.setattr(oom_counters, "_MACHINE", counter)
    settings = {"distributed.worker.memory.terminate": False}  # before the kernel would do it
    with dask.config.set(settings), started(nprocs=nprocs) as (client, cluster):
        with killed_as_by_the_kernel(cluster, counter) as killed:
            assert client.submit(fill, LIMIT, pure=False).result(SOON) == 2 * ord("1")
        assert 1 <= len(killed) <= 2, "Dask may give the task to one other worker before"
        assert {psutil.pid_exists(pid) for pid in killed} == {False}
        wait_until(lambda: memory_limits(cluster) == [(LIMIT, LIMIT)] * nprocs, SOON)
        wait_until(lambda: len(cluster.scheduler.running) == nprocs, SOON)
        assert client.gather(client.map(abs, range(20))) == list(range(20))


def kill_the_worker(client: Client, cluster: Any) -> None:
    for nanny in list(cluster.workers.values()):
        if nanny.pid is not None:  # the others have lent their memory
            os.kill(nanny.pid, signal.SIGKILL)


@pytest.mark.skipif(not FULL, reason="three more clusters: at full scale")
@pytest.mark.parametrize(
    "interrupt",
    [
        kill_the_worker,
        lambda client, cluster: client.restart(timeout=SOON),
        lambda client, cluster: client.cancel(list(client.futures)),
    ],
    ids=["killed", "restart", "cancel"],
)
def test_memory_returns_if_the_task_does_not_end(interrupt: Any, tmp_path: Path) -> None:
    started_file = tmp_path / "started"

    def fill(limit: int, path: str) -> None:
        import pathlib
        import time

        import psutil
        from distributed import get_worker

        kept = bytearray(int(750e6) - psutil.Process().memory_info().rss)
        kept[::4096] = b"1" * len(kept[::4096])
        # A late check of the nanny would end it after the file exists, or not at all.
        while get_worker().memory_manager.memory_limit == limit:
            time.sleep(0.05)  # until it is ended
        if not pathlib.Path(path).exists():
            pathlib.Path(path).touch()
            time.sleep(15)

    with started() as (client, cluster):
        future = client.submit(fill, LIMIT, str(started_file), pure=False)
        wait_until(started_file.exists, SOON)
        interrupt(client, cluster)
        workers = cluster.scheduler.workers
        if interrupt is kill_the_worker:
            with pytest.raises(WorkerOutOfMemory, match=r"tried [34] times"):
                future.result(SOON)
        wait_until(lambda: memory_limits(cluster) == [(LIMIT, LIMIT)] * 2, SOON)
        wait_until(lambda: len(cluster.scheduler.running) == len(workers) == 2, SOON)
        assert client.gather(client.map(abs, range(20))) == list(range(20))


@pytest.mark.parametrize("oom", ["retry", "raise"])
def test_a_task_that_does_not_fit_on_the_node_fails_early(oom: str) -> None:
    # Both wait to be ended: a check of the nanny may be late.
    def fill_node() -> None:
        import time

        import numpy

        kept = numpy.ones(3_000_000_000 // 8)
        time.sleep(600)
        del kept

    def fill_two_workers() -> None:
        import time

        import psutil

        kept = bytearray(int(750e6) - psutil.Process().memory_info().rss)
        kept[::4096] = b"1" * len(kept[::4096])
        time.sleep(600)

    with started(oom=oom) as (client, cluster):
        began = time.monotonic()
        with pytest.raises(WorkerOutOfMemory) as caught:
            client.submit(fill_node, pure=False).result(SOON)
        assert caught.value.attempts == 1
        assert time.monotonic() - began < SOON
        wait_until(lambda: len(cluster.scheduler.workers) == 2, SOON)
        if oom == "raise":  # a task gets no other memory
            with pytest.raises(WorkerOutOfMemory):
                client.submit(fill_two_workers, pure=False).result(SOON)
