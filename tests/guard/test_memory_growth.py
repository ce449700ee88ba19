"""Limits of workers grow into free memory of the machine, within a bound, and only then."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import psutil
import pytest
from distributed import Client
from scale import FULL
from small_clusters import LIMIT, SOON, started
from state_double import StateDouble
from subprograms import wait_until
from test_oom_decisions import GB, create_report, create_task, create_worker

from hyperplane.clusters import free_memory, records
from hyperplane.clusters.dask.cluster_html import list_facts
from hyperplane.clusters.free_memory import STEP_MEMORY, MachineMemory, read_allotment
from hyperplane.errors import WorkerOutOfMemory
from hyperplane.guard import memory_growth
from hyperplane.guard.memory_report import NEAR_LIMIT, MemoryReport
from hyperplane.guard.oom_retry import OomRetry
from hyperplane.history import read_run

MB = 10**6
GROWS = {"engine_options": {"oom_free_memory": 0.5}}


class SourceDouble:
    """Free memory of a machine.

    Parameters
    ----------
    extra : int
        Bytes that workers may use beyond their limits.
    """

    def __init__(self, extra: int) -> None:
        self.extra = extra
        self.noted: list[int] = []

    def read(self, limits: int, used: int) -> int:
        return self.extra

    def note(self, total: int) -> None:
        self.noted.append(total)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[int, bool]]:
    """Limits that nannies and workers get, by address."""
    limits: dict[str, tuple[int, bool]] = {}

    async def run(scheduler: Any, address: str, function: Any, *args: Any, seconds: float) -> None:
        limits[address] = args

    monkeypatch.setattr(memory_growth, "run_in_server", run)
    return limits


def create_retry(source: SourceDouble | None, warnings: list[str]) -> OomRetry:
    workers = {each.address: each for each in map(create_worker, range(1, 3))}
    scheduler: Any = SimpleNamespace(
        workers=workers,
        plugins={},
        worker_plugins={},
        task_prefixes={},
        tasks={},
        extensions={},
        total_memory=2 * GB,
    )
    plugin = OomRetry(True, source, warnings.append)
    asyncio.run(plugin.start(scheduler))
    return plugin


def approach_limit(retry: OomRetry, *keys: str, number: int = 0) -> Any:
    """Report a worker that is about to be ended, and return the worker."""
    worker = list(retry.scheduler.workers.values())[number]
    report = create_report(worker, *keys, peak=int(0.96 * worker.memory_limit))

    async def run() -> None:
        retry.log_event(NEAR_LIMIT, report.as_event())
        await asyncio.gather(*retry._growth._work)

    asyncio.run(run())
    return worker


def test_a_limit_grows_until_no_memory_is_left(sent: dict[str, tuple[int, bool]]) -> None:
    warnings: list[str] = []
    source = SourceDouble(2 * GB)
    retry = create_retry(source, warnings)
    found = [approach_limit(retry, "big").memory_limit for _ in range(5)]
    assert found == [1_500_000_000, 2_250_000_000, 3 * GB, 3 * GB, 3 * GB]
    worker = next(iter(retry.scheduler.workers.values()))
    worker.processing = {"big": 1.0}
    other = approach_limit(retry, "other", number=1)
    assert other.memory_limit == GB, "the first one has all that is free"
    assert retry.scheduler.total_memory == 4 * GB
    # Also the next process of the nanny has the limit.
    assert sent == {worker.nanny: (3 * GB, True), worker.address: (3 * GB, False)}
    assert source.noted == [2_500_000_000, 3_250_000_000, 4 * GB]
    assert warnings == [
        "worker 1 would have run out of memory in big (peak 0.96 GB of 1.00 GB). Its limit is "
        "1.50 GB now, and grows further while it needs more, because this machine has free "
        "memory: all workers may use 4.00 GB until the cluster closes. Then a line says what they "
        'needed, for ram_gb_per_proc of the next start; engine_options={"oom_free_memory": 0} '
        "keeps workers within their limits"
    ]


def test_the_limit_of_an_idle_worker_is_lowered_for_others(
    sent: dict[str, tuple[int, bool]],
) -> None:
    retry = create_retry(SourceDouble(2 * GB), [])
    for _ in range(4):
        idle = approach_limit(retry, "big")
    assert idle.memory_limit == 3 * GB
    idle.has_what = [SimpleNamespace(get_nbytes=lambda: 600 * MB)]
    found = [approach_limit(retry, "other", number=1).memory_limit for _ in range(4)]
    assert found == [1_500_000_000, 2_250_000_000, 2_800_000_000, 2_800_000_000]
    assert idle.memory_limit == 1_200_000_000
    assert sent[idle.nanny] == (1_200_000_000, True)
    assert retry.scheduler.total_memory == 4 * GB


def test_the_limit_of_a_worker_that_starts_again_is_lowered_for_others(
    sent: dict[str, tuple[int, bool]],
) -> None:
    retry = create_retry(SourceDouble(2 * GB), [])
    for _ in range(4):
        ended = approach_limit(retry, "big")
    del retry.scheduler.workers[ended.address]
    retry.scheduler.total_memory -= ended.memory_limit
    assert approach_limit(retry, "other").memory_limit == 1_500_000_000
    assert approach_limit(retry, "other").memory_limit == 2_250_000_000
    assert sent[ended.nanny] == (GB, True)
    restarted = create_worker(7)
    restarted.nanny, restarted.memory_limit = ended.nanny, 3 * GB
    retry.scheduler.workers[restarted.address] = restarted
    retry.scheduler.total_memory += restarted.memory_limit

    async def register() -> None:
        retry.add_worker(retry.scheduler, restarted.address)
        await asyncio.gather(*retry._growth._work)

    asyncio.run(register())
    assert restarted.memory_limit == GB, "its process was started with the limit before"
    assert retry.scheduler.total_memory == 3_250_000_000


@pytest.mark.parametrize("source", [None, SourceDouble(0), SourceDouble(GB // 20)])
def test_without_free_memory_limits_stay(source: Any, sent: dict[str, tuple[int, bool]]) -> None:
    warnings: list[str] = []
    retry = create_retry(source, warnings)
    assert approach_limit(retry, "big").memory_limit == GB
    assert not sent
    assert not warnings


def test_tasks_that_run_together_run_one_at_a_time_first(
    sent: dict[str, tuple[int, bool]],
) -> None:
    retry = create_retry(SourceDouble(8 * GB), [])
    worker = approach_limit(retry, "one", "two")
    assert worker.memory_limit == GB
    worker.long_running.add(create_task("one"))
    assert approach_limit(retry, "one", "two").memory_limit > GB, "one has left its thread"


def test_a_shuffle_does_not_start_again(sent: dict[str, tuple[int, bool]]) -> None:
    retry = create_retry(SourceDouble(8 * GB), [])
    worker = next(iter(retry.scheduler.workers.values()))
    run = SimpleNamespace(participating_workers={worker.address})
    retry.scheduler.extensions["shuffle"] = SimpleNamespace(active_shuffles={"x": run})
    assert approach_limit(retry, "one", "two").memory_limit == 1_500_000_000
    assert approach_limit(retry, "one", "two", number=1).memory_limit == GB


def test_a_worker_with_lent_memory_does_not_grow(sent: dict[str, tuple[int, bool]]) -> None:
    retry = create_retry(SourceDouble(8 * GB), [])
    worker = next(iter(retry.scheduler.workers.values()))
    worker.memory_limit = 2 * GB
    assert approach_limit(retry, "big").memory_limit == 2 * GB
    worker.memory_limit = GB
    retry._lenders["host"] = SimpleNamespace(is_preparing=True)
    assert approach_limit(retry, "big").memory_limit == GB


def test_workers_that_leave_or_come_change_the_bound(sent: dict[str, tuple[int, bool]]) -> None:
    retry = create_retry(SourceDouble(GB), [])
    second = list(retry.scheduler.workers.values())[1]
    approach_limit(retry, "big")
    assert retry._growth.find_bound() == 3 * GB
    del retry.scheduler.workers[second.address]
    event = {"action": "remove-worker", "worker": second.address, "expected": False}
    retry.log_event("all", event)
    assert retry._growth.find_bound() == 3 * GB, "its nanny starts it again"
    restarted = create_worker(7)
    restarted.nanny = second.nanny
    retry.scheduler.workers[restarted.address] = restarted
    retry.add_worker(retry.scheduler, restarted.address)
    del retry.scheduler.workers[restarted.address]
    retry.log_event("all", {**event, "worker": restarted.address, "expected": True})
    assert retry._growth.find_bound() == 2 * GB
    assert approach_limit(retry, "big").memory_limit == 2 * GB


def test_workers_that_stay_paused_get_more_memory(sent: dict[str, tuple[int, bool]]) -> None:
    retry = create_retry(SourceDouble(8 * GB), [])
    explainer: Any = SimpleNamespace()
    retry.scheduler.plugins["hyperplane-memory-explainer"] = explainer
    retry._decide_for_explainer()
    worker = next(iter(retry.scheduler.workers.values()))
    report = MemoryReport(
        worker.address, "0", "paused", 850 * MB, GB, (), {"load": 600 * MB}, 0, 1, 1, 0.0, 100 * MB
    )

    async def run() -> list[bool]:
        return [explainer.relieve([report]), explainer.relieve([])]

    assert asyncio.run(run()) == [True, False]
    assert worker.memory_limit == 1_500_000_000


@pytest.mark.parametrize(("extra", "limit"), [(8 * GB, 3_250_000_000), (2 * GB, GB)])
def test_a_task_whose_inputs_exceed_a_worker_runs_where_most_are(
    extra: int, limit: int, sent: dict[str, tuple[int, bool]]
) -> None:
    retry = create_retry(SourceDouble(extra), [])
    for address, worker in retry.scheduler.workers.items():  # hashable, as those of Dask
        retry.scheduler.workers[address] = StateDouble(**vars(worker))
    first, second = retry.scheduler.workers.values()
    retry.scheduler.running = {first, second}

    def add_input(key: str, nbytes: int, worker: Any) -> Any:
        task = create_task(key)
        task.who_has, task.get_nbytes = [worker], lambda: nbytes
        task.state, task.waiters = "memory", set()
        retry.scheduler.tasks[key] = task
        return task

    inputs = [add_input("a", 900 * MB, first), add_input("b", 1100 * MB, second)]
    joined = create_task("join")
    joined.state, joined.waiting_on, joined.dependencies = "waiting", {inputs[1]}, set(inputs)
    inputs[1].waiters = {joined}
    retry.scheduler.tasks["join"] = joined
    restricted: dict[str, list[str]] = {}
    retry.scheduler.set_restrictions = restricted.update

    async def run() -> None:
        retry.transition("join", "released", "waiting")
        assert not restricted, "an input is missing"
        joined.waiting_on = set()
        retry.transition("b", "processing", "memory")

    asyncio.run(run())
    assert second.memory_limit == limit
    assert restricted == ({"join": [second.address]} if limit > GB else {})
    assert first.memory_limit == GB


@pytest.mark.parametrize(
    ("environment", "allotment"),
    [
        ({}, None),
        ({STEP_MEMORY: "4000000000"}, 4 * GB),
        ({"SLURM_MEM_PER_NODE": "0"}, None),
        ({"SLURM_MEM_PER_NODE": "2000"}, 2000 * 2**20),
        ({STEP_MEMORY: "4000000000", "SLURM_MEM_PER_NODE": "2000"}, 2000 * 2**20),
        ({STEP_MEMORY: "much"}, None),
    ],
)
def test_the_memory_of_a_step_is_read(environment: dict[str, str], allotment: int | None) -> None:
    assert read_allotment(environment) == allotment


def test_free_memory_is_what_nothing_else_has_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    others: list[Any] = []
    monkeypatch.setattr(free_memory, "open_clusters", lambda: others)
    used = {os.getpid(): 6 * GB}
    monkeypatch.setattr(free_memory, "memory_used_by", lambda pid: used.get(pid, GB))
    monkeypatch.setattr(free_memory.machine, "free_ram", lambda: 20 * GB)
    source = MachineMemory("mine", 0.5)
    assert source.read(4 * GB, GB) == 8_500_000_000
    assert source.read(4 * GB, 6 * GB) == 11 * GB, "as if they used their limits only"
    assert source.read(4 * GB, 9 * GB) == 11 * GB, "pages of files are free"
    others += [
        SimpleNamespace(name="mine", pid=1, ram_gb=4.0),
        SimpleNamespace(name="other", pid=2, ram_gb=7.0),
    ]
    assert source.read(4 * GB, GB) == 5_500_000_000
    monkeypatch.setenv(STEP_MEMORY, str(6 * GB))
    program = SimpleNamespace(memory_info=lambda: SimpleNamespace(rss=300_000_000))
    monkeypatch.setattr(free_memory.psutil, "Process", lambda: program)
    assert source.read(4 * GB, GB) == 1_700_000_000, "without the memory of this program"
    others.append(SimpleNamespace(name="second", pid=os.getpid(), ram_gb=1.5))
    assert source.read(4 * GB, GB) == 200_000_000, "nor that of its other clusters"
    monkeypatch.setenv(STEP_MEMORY, str(3 * GB))
    assert source.read(4 * GB, GB) == 0
    assert MachineMemory.of("mine", 0) is None


@contextmanager
def sample_memory(cluster: Any) -> Iterator[list[int]]:
    """Yield the largest memory of all worker processes together, in a list."""
    ended, largest = threading.Event(), [0]

    def sample() -> None:
        while not ended.wait(0.02):
            total = 0
            for nanny in list(cluster.workers.values()):
                try:
                    total += psutil.Process(nanny.pid).memory_info().rss if nanny.pid else 0
                except psutil.Error:
                    continue
            largest[0] = max(largest[0], total)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield largest
    finally:
        ended.set()
        thread.join()


def make_filler() -> Any:
    def fill(megabytes: int) -> int:
        import psutil

        kept = bytearray(megabytes * 10**6 - psutil.Process().memory_info().rss)
        kept[::4096] = b"1" * len(kept[::4096])
        return sum(kept[:4097])

    return fill


def make_counter() -> Any:
    class Counter:
        total = 0

        def add(self, number: int) -> int:
            self.total += number
            return self.total

    return Counter


@pytest.mark.cluster
@pytest.mark.slow
def test_a_task_larger_than_its_node_runs_once_within_the_bound(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(free_memory.machine, "free_ram", lambda: 2_500 * MB)
    with started(**GROWS) as (client, cluster), sample_memory(cluster) as largest:
        pids = {nanny.pid for nanny in cluster.workers.values()}
        held = client.scatter([1, 2, 3])
        counter = client.submit(make_counter(), actor=True).result(SOON)
        assert counter.add(5).result() == 5
        place = cluster.scheduler.workers[counter._address]
        filled = client.submit(make_filler(), 1100, pure=False, workers=[place.address])
        assert filled.result(SOON) == 2 * ord("1")
        assert place.memory_limit > LIMIT
        assert counter.add(2).result() == 7, "the state of an actor on that worker is kept"
        assert {nanny.pid for nanny in cluster.workers.values()} == pids, "no process was ended"
        assert client.gather(held) == [1, 2, 3]
        del held
        # 1 GB, and half of 2.5 GB and of what the workers use, without the 1 GB.
        bound = 2_050 * MB
        assert LIMIT * 2 < cluster.scheduler.total_memory < bound
        with pytest.raises(WorkerOutOfMemory) as caught:  # more than is free
            client.submit(make_filler(), 2600, pure=False).result(SOON)
        assert caught.value.attempts == 1
        assert client.submit(make_filler(), 900, pure=False).result(SOON) == 2 * ord("1")
        assert 1000 * MB < largest[0] < bound + 500 * MB, "sampled after the task has touched more"
    assert sum("this machine has free memory" in text for text in caplog.messages) == 1


@pytest.fixture
def free_gigabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As much memory is free as these tests need, whatever other programs use."""
    monkeypatch.setattr(free_memory.machine, "free_ram", lambda: 8 * GB)


def frame_of_one_key(megabytes: int) -> Any:
    def rows(part: int) -> pd.DataFrame:
        numbers = np.arange(part * 625_000, (part + 1) * 625_000)
        return pd.DataFrame({"k": numbers * 0, "x": numbers, "y": numbers, "z": numbers})

    return dd.from_map(rows, range(megabytes // 20), meta=rows(0).iloc[:0])


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.usefixtures("free_gigabytes")
def test_a_shuffle_to_one_worker_passes_and_its_limit_stays() -> None:
    with started(**GROWS) as (client, cluster):
        pids = {nanny.pid for nanny in cluster.workers.values()}
        counted = frame_of_one_key(300).groupby("k").apply(len, meta=("n", int))
        assert list(counted.compute()) == [300 // 20 * 625_000]
        assert {nanny.pid for nanny in cluster.workers.values()} == pids, "no process was ended"
        scheduler = cluster.scheduler
        limits = sorted(worker.memory_limit for worker in scheduler.workers.values())
        assert limits[1] > LIMIT
        assert scheduler.total_memory == sum(limits)
        [record] = records.read_all()
        assert record.ram_gb == pytest.approx(sum(limits) / 1e9)

        def read_limits(dask_worker: Any) -> tuple[int, int]:
            manager = dask_worker.memory_manager
            return manager.memory_limit, manager.data.n

        def check(*expected: int) -> None:
            def is_so() -> bool:
                try:
                    found = sorted(client.run(read_limits).values())
                except (OSError, KeyError):  # a killed worker whose end is not known yet
                    return False
                return found == sorted((limit, int(limit * 0.6)) for limit in expected)

            wait_until(is_so, SOON)

        check(*limits)
        grown = f"limit grown from {2 * LIMIT / 1e9:g} GB"
        assert grown in dict(list_facts(cluster))["memory"]
        info = cluster.scheduler_info["workers"]
        assert sum(worker["memory_limit"] for worker in info.values()) == sum(limits)
        client.restart(timeout=SOON)
        check(*limits)
        for nanny in cluster.workers.values():
            os.kill(nanny.pid, signal.SIGKILL)
        wait_until(lambda: not {nanny.pid for nanny in cluster.workers.values()} & pids, SOON)
        client.wait_for_workers(2, SOON)
        check(*limits)
        cluster.scale(3)
        client.wait_for_workers(3, SOON)
        check(LIMIT, *limits)
        cluster.scale(1)
        assert client.submit(sum, [1, 2]).result(SOON) == 3
    usages = read_run("latest").workers
    assert max(worker.limit for worker in usages) >= limits[1], "it may have been lowered"
    assert {worker.first_limit for worker in usages} == {LIMIT}


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.usefixtures("free_gigabytes")
def test_a_task_with_large_inputs_moves_if_its_worker_is_retired() -> None:
    def make_part(number: int) -> Any:
        return np.full(10_000_000, float(number))

    def add_first(*parts: Any) -> float:
        import time

        time.sleep(3)
        return float(sum(part[0] for part in parts))

    with started(**GROWS) as (client, cluster):
        future = client.submit(add_first, *client.map(make_part, range(8)))
        tasks = cluster.scheduler.tasks
        wait_until(
            lambda: future.key in tasks and bool(tasks[future.key].worker_restrictions), SOON
        )
        client.retire_workers(list(tasks[future.key].worker_restrictions))
        assert future.result(SOON) == 28.0


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.usefixtures("free_gigabytes")
def test_inputs_larger_than_a_worker_are_combined() -> None:
    with started(**GROWS):
        whole = frame_of_one_key(600).compute()
        assert len(whole) == 600 // 20 * 625_000
        assert int(whole.x.iloc[-1]) == len(whole) - 1


@pytest.mark.cluster
@pytest.mark.skipif(not FULL, reason="minutes: at full scale")
@pytest.mark.usefixtures("free_gigabytes")
def test_two_shuffles_at_once_with_an_actor_and_scattered_data() -> None:
    with started(**GROWS) as (client, _):
        held = client.scatter(list(range(5)))
        first = client.compute(frame_of_one_key(400).groupby("k").apply(len, meta=("n", int)))
        second = client.compute(
            frame_of_one_key(400).groupby("k").apply(lambda part: part.x.max(), meta=("n", int))
        )
        rows = 400 // 20 * 625_000
        assert list(first.result(4 * SOON)) == [rows]
        assert list(second.result(4 * SOON)) == [rows - 1]
        del first, second
        counter = client.submit(make_counter(), actor=True).result(SOON)
        assert counter.add(1).result() == 1
        del held
        assert isinstance(client, Client)
