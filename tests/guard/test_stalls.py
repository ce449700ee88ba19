"""Ways to stall a cluster: each ends in an answer, or in an error that has the reason."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pandas as pd
import pytest
import small_clusters
from dask import dataframe as dd
from distributed import Client
from distributed.core import Status
from scale import FULL, scaled
from small_clusters import SOON
from subprograms import wait_until

from hyperplane.errors import ClusterStalled, WorkerOutOfMemory
from hyperplane.guard import server_calls, stalls

pytestmark = pytest.mark.cluster

full_scale = pytest.mark.skipif(not FULL, reason="takes long: at full scale")
#: With a short timeout of the guard; a longer one at full scale, whose tasks take longer.
started = partial(small_clusters.started, stall_timeout=scaled(1, 2))


def fill_workers(client: Client) -> None:
    """Let each worker keep 86 % of its memory, which are no results."""

    def keep(number: int) -> int:
        import builtins

        import psutil

        builtins.kept = bytearray(  # type: ignore[attr-defined]
            int(430e6) - psutil.Process().memory_info().rss
        )
        return number

    for number, worker in enumerate(client.nthreads()):
        client.submit(keep, number, workers=[worker], pure=False).result(SOON)


def wait_for_status(cluster: Any, status: Status) -> None:
    workers = cluster.scheduler.workers
    wait_until(lambda: {worker.status for worker in workers.values()} == {status}, SOON)


def kill_without_restart(cluster: Any) -> None:
    for nanny in list(cluster.workers.values()):
        pid = nanny.pid
        nanny.status = Status.closing_gracefully  # it closes when its process has ended
        os.kill(pid, signal.SIGKILL)


def test_workers_that_are_all_paused_end_the_tasks() -> None:
    with started(oom="raise") as (client, cluster):
        fill_workers(client)
        wait_for_status(cluster, Status.paused)
        with pytest.raises(ClusterStalled, match="their memory is full") as caught:
            client.submit(int, pure=False).result(SOON)
    assert (caught.value.cause, caught.value.tasks) == ("memory", 1)
    assert "start with ram_gb_per_proc=1 or more" in str(caught.value)


def test_paused_workers_without_results_restart_and_answer() -> None:
    with started() as (client, cluster):
        fill_workers(client)
        wait_for_status(cluster, Status.paused)
        assert client.submit(int, pure=False).result(SOON) == 0


def test_workers_that_ended_with_their_nannies_end_the_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_calls, "ANSWER_LIMIT", 0.5)  # they cannot answer
    with started() as (client, cluster):
        future = client.submit(time.sleep, 1000)
        wait_until(lambda: client.processing() and any(client.processing().values()), SOON)
        kill_without_restart(cluster)
        with pytest.raises(ClusterStalled, match="all workers have ended") as caught:
            future.result(SOON)
    assert caught.value.cause == "lost"


@pytest.mark.slow
def test_an_adaptive_cluster_replaces_lost_workers() -> None:
    """Long before Dask does, which waits for ``lost_worker_timeout``, 300 s by default."""
    with started() as (client, cluster):
        cluster.adapt(minimum=1, maximum=2, interval="200ms")
        future = client.submit(lambda: time.sleep(1) or 7, pure=False)
        wait_until(lambda: client.processing() and any(client.processing().values()), SOON)
        kill_without_restart(cluster)
        assert future.result(SOON) == 7


@pytest.mark.slow
def test_an_adaptive_cluster_whose_new_workers_end_at_their_start_ends_the_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stalls, "_ADAPTIVE_START_SECONDS", 3.0)
    with started() as (client, cluster):
        cluster.adapt(minimum=1, maximum=2, interval="200ms")
        future = client.submit(time.sleep, 1000)
        wait_until(lambda: client.processing() and any(client.processing().values()), SOON)
        cluster.new_spec["options"]["preload"] = ["import os\nos._exit(3)"]
        kill_without_restart(cluster)
        with pytest.raises(ClusterStalled, match="all workers have ended") as caught:
            future.result(SOON)
    assert caught.value.cause == "lost"


@pytest.mark.slow
def test_tasks_that_wait_for_each_other_end() -> None:
    def wait_for_another(number: int) -> Any:
        from distributed import get_client

        return get_client().submit(int, number, pure=False).result()

    with started() as (client, _):
        futures = client.map(wait_for_another, range(2), pure=False)
        with pytest.raises(ClusterStalled, match="waits for the result") as caught:
            client.gather(futures)
        assert caught.value.cause == "deadlock"
        assert "worker_client" in str(caught.value)
        del futures
        assert client.submit(int, pure=False).result(SOON) == 0, "the threads are free again"


@full_scale
def test_workers_that_die_at_each_start_end_the_tasks() -> None:
    with started() as (client, cluster):
        future = client.submit(time.sleep, 1000)
        wait_until(lambda: any(client.processing().values()), SOON)
        for nanny in list(cluster.workers.values()):
            nanny.process.worker_kwargs["preload"] = ["import os\nos._exit(3)"]
            os.kill(nanny.pid, signal.SIGKILL)
        with pytest.raises(ClusterStalled, match="all workers have ended"):
            future.result(SOON)


@full_scale
def test_a_restart_slower_than_dasks_limit_ends_the_tasks() -> None:
    slow = ["import time\ntime.sleep(20)"]
    with started(engine_options={"lost_worker_timeout": "2s"}) as (client, cluster):
        future = client.submit(time.sleep, 1000)
        wait_until(lambda: any(client.processing().values()), SOON)
        for nanny in list(cluster.workers.values()):
            nanny.process.worker_kwargs["preload"] = slow
            os.kill(nanny.pid, signal.SIGKILL)
        with pytest.raises(ClusterStalled, match="all workers have ended"):
            future.result(SOON)


@full_scale
def test_a_slow_restart_is_no_stall() -> None:
    with started() as (client, cluster):
        future = client.submit(lambda: time.sleep(2) or 7, pure=False)
        wait_until(lambda: any(client.processing().values()), SOON)
        for nanny in list(cluster.workers.values()):
            nanny.process.worker_kwargs["preload"] = ["import time\ntime.sleep(10)"]
            os.kill(nanny.pid, signal.SIGKILL)
        assert future.result(SOON) == 7


@pytest.mark.parametrize("spill", [True, False])
@full_scale
def test_results_that_fill_memory_and_disk_end_the_tasks(spill: bool) -> None:
    """The disk for spilled results is full, or nothing is ever spilled."""

    def create(number: int) -> bytes:
        return os.urandom(30_000_000)

    policy: dict[str, Any] = {} if spill else {"target": False, "spill": False}
    import dask

    with (
        dask.config.set({"distributed.worker.memory.max-spill": 30_000_000}),
        started(memory=policy or None) as (client, _),
    ):
        futures = client.map(create, range(40), pure=False)
        with pytest.raises((ClusterStalled, WorkerOutOfMemory)) as caught:
            client.gather(client.map(len, futures))
    # The guard of stalls comes first, unless this process is delayed: five seconds after a pause
    # has begun the workers report it.
    if isinstance(caught.value, ClusterStalled):
        assert caught.value.cause == "memory"
        assert "delete futures" in str(caught.value)
        assert "of create" in str(caught.value)
    else:
        assert caught.value.cause == ("spill disk" if spill else "paused")
        assert "results (create " in str(caught.value)
        assert caught.value.fix == "initialize_cluster(..., ram_gb_per_proc=1)"


@full_scale
def test_a_stopped_worker_is_replaced() -> None:
    with started(engine_options={"worker_ttl": "5s"}) as (client, cluster):
        futures = client.map(lambda number: time.sleep(0.2) or number, range(40), pure=False)
        os.kill(next(iter(cluster.workers.values())).pid, signal.SIGSTOP)
        assert client.gather(futures) == list(range(40))


class ShuffleKiller:
    """Kills a worker of each run of a shuffle.

    Parameters
    ----------
    cluster : GuardedLocalCluster
        The cluster.
    """

    def __init__(self, cluster: Any) -> None:
        self.cluster, self.kills = cluster, 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> ShuffleKiller:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        shuffles = self.cluster.scheduler.extensions["shuffle"].active_shuffles
        killed: set[int] = set()
        while not self._stop.wait(0.05):
            runs = {shuffle.run_id: shuffle for shuffle in list(shuffles.values())}
            for number, shuffle in runs.items():
                for nanny in list(self.cluster.workers.values()):
                    takes_part = nanny.worker_address in shuffle.participating_workers
                    if number not in killed and takes_part and nanny.pid is not None:
                        killed.add(number)
                        with suppress(ProcessLookupError):
                            os.kill(nanny.pid, signal.SIGKILL)
                            self.kills += 1


def slow_shuffle() -> dd.DataFrame:
    def create(number: int) -> pd.DataFrame:
        time.sleep(0.3)
        return pd.DataFrame({"key": range(100), "value": number})

    return dd.from_map(create, range(12), meta=create(0)).shuffle("key")


@pytest.mark.slow
def test_a_shuffle_whose_workers_are_killed_again_and_again_ends() -> None:
    with started() as (client, cluster), ShuffleKiller(cluster) as killer:
        with pytest.raises(ClusterStalled, match="a shuffle was started again 3 times") as caught:
            client.compute(slow_shuffle().map_partitions(len).sum()).result(SOON)
        assert killer.kills >= 4
    assert caught.value.cause == "shuffle"


#: What is no stall: name -> function of a client and a cluster, its result.
HEALTHY: dict[str, tuple[Callable[[Client, Any], Any], Any]] = {}


def healthy(result: Any) -> Callable[[Callable[[Client, Any], Any]], Callable[[Client, Any], Any]]:
    def add(function: Callable[[Client, Any], Any]) -> Callable[[Client, Any], Any]:
        HEALTHY[function.__name__] = function, result
        return function

    return add


@healthy(3)
def a_task_longer_than_the_timeout(client: Client, cluster: Any) -> Any:
    return client.submit(lambda: time.sleep(scaled(3, 6)) or 3, pure=False).result(SOON)


@healthy(True)
def a_task_that_holds_the_gil(client: Client, cluster: Any) -> Any:
    import re

    def match() -> bool:
        return re.match("(a*)*b", "a" * 26) is None

    return client.submit(match, pure=False).result(SOON)


@healthy(5)
def no_worker_for_a_while(client: Client, cluster: Any) -> Any:
    client.submit(int, pure=False).result(SOON)
    cluster.scale(0)
    wait_until(lambda: not cluster.scheduler.workers, SOON)
    future = client.submit(lambda: 5, pure=False)
    time.sleep(6)
    cluster.scale(1)
    return future.result(SOON)


@healthy(6)
def adaptive_from_zero(client: Client, cluster: Any) -> Any:
    cluster.adapt(minimum=0, maximum=2, interval="200ms", wait_count=1)
    wait_until(lambda: not cluster.scheduler.workers, SOON)
    return client.submit(lambda: 6, pure=False).result(SOON)


@healthy(6)
def adaptive_after_a_lost_worker(client: Client, cluster: Any) -> Any:
    client.submit(int, pure=False).result(SOON)
    kill_without_restart(cluster)
    wait_until(lambda: not cluster.scheduler.workers, SOON)
    cluster.new_spec["options"]["preload"] = ["import time\ntime.sleep(6)"]
    cluster.adapt(minimum=0, maximum=2, interval="200ms", wait_count=1)
    wait_until(lambda: not cluster.workers, SOON)
    return client.submit(lambda: 6, pure=False).result(SOON)


@healthy(8)
def a_busy_task_on_a_paused_worker(client: Client, cluster: Any) -> Any:
    fill_workers(client)
    wait_for_status(cluster, Status.paused)
    for worker in client.nthreads():
        client.run(_set_pause, 0.99, workers=[worker])
    wait_for_status(cluster, Status.running)

    def compute() -> int:
        until = time.monotonic() + 7
        while time.monotonic() < until:
            pass
        return 8

    future = client.submit(compute, pure=False)
    wait_until(lambda: any(client.processing().values()), SOON)
    time.sleep(0.5)
    client.run(_set_pause, 0.8)
    return future.result(SOON)


def _set_pause(share: float, dask_worker: Any) -> None:
    dask_worker.memory_manager.memory_pause_fraction = share


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(HEALTHY) if FULL else ["a_task_longer_than_the_timeout"])
def test_a_healthy_cluster_is_left_alone(name: str) -> None:
    run, expected = HEALTHY[name]
    with started() as (client, cluster):
        assert run(client, cluster) == expected
