"""The contract of engines on the local engine, and tests of its features."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import dask.config
import psutil
import pytest
from contract import OneClusterContract, OwnedClusterContract, children, one_cluster
from distributed import system
from services import is_empty, temporary_directory
from subprograms import SAY_WORKERS

import hyperplane
from hyperplane.clusters import records
from hyperplane.clusters.dask.local_process import reserve_local_record
from hyperplane.platforms.local import machine

SMALL: dict[str, Any] = {
    "num_workers": 1,
    "nprocs": 2,
    "nthreads": 1,
    "ram_gb_per_proc": 0.5,
    "cores_per_worker": 2,
    "local_fit": "exact",
    "timeout": 200,
}
ONE = {**SMALL, "nprocs": 1}


__all__ = ["one_cluster", "surroundings"]  # fixtures


@pytest.fixture(scope="class")
def surroundings() -> None:
    """A local cluster needs no services."""


class TestLocalEngine(OneClusterContract, OwnedClusterContract):
    engine = "local"
    small = SMALL
    print_workers = SAY_WORKERS
    at_full_scale = frozenset(
        {
            "test_the_main_job_gives_what_pandas_gives",  # as in test_demo_run.py
            "test_a_gang_of_two_runs",  # as in test_gang.py
        }
    )

    def check_terminate(self, cluster: Any, expected: float) -> None:
        found = {
            nanny.memory_manager.memory_terminate_fraction for nanny in cluster.workers.values()
        }
        assert found == {expected}

    @pytest.mark.cluster
    def test_a_start_that_fails_and_spawns_leaves_nothing(self, here: Path) -> None:
        with dask.config.set({"hyperplane.engines.local.start_method": "spawn"}):
            self.test_a_start_that_fails_leaves_nothing(here)

    @pytest.mark.slow
    @pytest.mark.cluster
    @pytest.mark.parametrize("start_method", ["preload", "spawn"])
    def test_a_process_created_after_the_timeout_has_ended_when_start_returns(
        self, here: Path, start_method: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before, created = set(children()), []
        create = BaseProcess.start

        def create_late(process: BaseProcess) -> None:
            time.sleep(2)
            create(process)
            created.append(process.pid)

        monkeypatch.setattr(BaseProcess, "start", create_late)
        with (
            dask.config.set({"hyperplane.engines.local.start_method": start_method}),
            pytest.raises(hyperplane.StartTimeout),
        ):
            hyperplane.start(self.plan(timeout=1))
        assert len(created) == 2
        assert set(children()) <= before
        assert is_empty(here)


@pytest.mark.parametrize("nodes", [{"num_workers": 2}, {"num_workers": (1, 2)}])
def test_the_record_has_the_memory_that_dask_allows(nodes: dict[str, Any]) -> None:
    total = psutil.virtual_memory().total / 10**9
    plan = hyperplane.plan_cluster(
        engine="local", nprocs=3, nthreads=1, ram_gb_per_proc=4 * total, local_fit="exact", **nodes
    )
    record = reserve_local_record(plan)
    try:
        assert record.ram_gb == pytest.approx(6 * system.MEMORY_LIMIT / 10**9)
    finally:
        records.remove(plan.name, record.scratch)
    smaller = hyperplane.plan_cluster(
        engine="local", nprocs=1, nthreads=1, ram_gb_per_proc=0.5, local_fit="exact", **nodes
    )
    record = reserve_local_record(smaller)
    records.remove(smaller.name, record.scratch)
    assert record.ram_gb == 1.0


def wait_until(condition: Callable[[], object], seconds: float) -> None:
    """Wait until a condition holds, or fail."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.05)


def listening() -> set[tuple[str, int]]:
    """Return addresses and ports that this process and its children listen on."""
    found = set()
    for one in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            found |= {
                (connection.laddr.ip, connection.laddr.port)
                for connection in one.net_connections("inet")
                if connection.status == psutil.CONN_LISTEN
            }
    return found


class SharedCluster(NamedTuple):
    """A cluster that the tests below share and do not change.

    Parameters
    ----------
    client, cluster
        From ``hyperplane.start``.
    listening : set
        Addresses and ports of other services of this process, before the start.
    free_disk : int
        Free disk space that was measured at the start.
    """

    client: Any
    cluster: Any
    listening: set[tuple[str, int]]
    free_disk: int


@pytest.fixture(scope="module")
def shared() -> Iterator[SharedCluster]:
    before = listening()
    free = []  # measured at the start; other programs use the disk, too

    def free_disk(folder: str) -> int:
        free.append(shutil.disk_usage(folder).free)
        return free[-1]

    with temporary_directory(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "free_disk", free_disk)
        client, cluster = hyperplane.start(hyperplane.plan_cluster(**SMALL))
        with cluster, client:
            yield SharedCluster(client, cluster, before, free[-1])


@pytest.mark.cluster
def test_the_dashboard_is_loaded_by_the_first_request_and_listens_on_loopback_only(
    shared: SharedCluster,
) -> None:
    cluster, own = shared.cluster, shared.cluster.dashboard_link
    assert shared.client.dashboard_link == own
    applications = cluster.scheduler.http_application.applications
    assert [type(one).__name__ for one in applications] == ["LazyDashboard"]
    urllib.request.urlopen(own.replace("status", "health")).read()
    assert [type(one).__name__ for one in applications] == ["LazyDashboard"]
    assert {ip for ip, _ in listening() - shared.listening} == {"127.0.0.1"}
    documented = own.replace("/status", f"/{cluster.name}/status")
    for address in (documented, own, own.replace("status", "individual-task-stream")):
        with urllib.request.urlopen(address) as answer:
            assert answer.status == 200
            assert b"bokeh" in answer.read().lower()
    assert [type(one).__name__ for one in applications] == ["DaskBokehTornado"]
    assert {ip for ip, _ in listening() - shared.listening} == {"127.0.0.1"}


@pytest.mark.cluster
def test_default_timeouts_and_the_limit_of_spilled_data(shared: SharedCluster) -> None:
    assert shared.cluster.scheduler.worker_ttl == 60
    assert shared.cluster.scheduler.no_workers_timeout == 300
    spill = list(shared.client.run(max_spill).values())
    assert len(spill) == 2
    assert all(0 < each <= shared.free_disk / 2 for each in spill)
    assert dask.config.get("distributed.deploy.lost-worker-timeout") == "15s"


def max_spill() -> Any:
    return dask.config.get("distributed.worker.memory.max-spill")


@pytest.mark.slow
@pytest.mark.cluster
def test_settings_of_the_user_have_priority_and_a_job_without_workers_is_an_error() -> None:
    from distributed.scheduler import NoWorkerError

    chosen = {
        "distributed.scheduler.worker-ttl": "45s",
        "distributed.scheduler.no-workers-timeout": "1s",
        "distributed.worker.memory.max-spill": "1GB",
    }
    with dask.config.set(chosen):
        client, cluster = hyperplane.start(hyperplane.plan_cluster(**ONE))
        with cluster, client:
            assert cluster.scheduler.worker_ttl == 45
            assert cluster.scheduler.no_workers_timeout == 1
            assert list(client.run(max_spill).values()) == ["1GB"]
            cluster.scale(0)
            while client.nthreads():
                time.sleep(0.05)
            future = client.submit(sum, [1, 2])
            with pytest.raises(NoWorkerError):
                future.result(timeout=120)


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize(("timeout", "comes_back"), [("300s", True), ("0.5s", False)])
def test_a_worker_slow_to_come_back_keeps_its_place(
    tmp_path: Path, timeout: str, comes_back: bool
) -> None:
    """Dask drops a worker's place after 15 s; the second case shows it, with half a second."""
    slow = tmp_path / "slow.py"
    flag = tmp_path / "started-once"
    slow.write_text(
        "import pathlib, time\n"
        f"flag = pathlib.Path({str(flag)!r})\n"
        "def dask_setup(worker):\n"
        "    time.sleep(2) if flag.exists() else flag.touch()\n"
    )
    settings = {
        "distributed.worker.preload": [str(slow)],
        "hyperplane.engines.local.lost_worker_timeout": timeout,
    }
    with dask.config.set(settings):
        client, cluster = hyperplane.start(hyperplane.plan_cluster(**ONE))
    with cluster, client:
        [pid] = client.run(os.getpid).values()
        [nanny] = cluster.workers.values()
        psutil.Process(pid).kill()
        if comes_back:
            # Not until there is none: on a busy machine it may be back before the first check.
            wait_until(lambda: {*client.run(os.getpid, on_error="ignore").values()} - {pid}, 120)
            assert list(cluster.workers.values()) == [nanny]
        else:
            wait_until(lambda: nanny.status.name == "closed" and not client.nthreads(), 120)
            assert not cluster.workers


@pytest.mark.slow
@pytest.mark.cluster
def test_the_idle_timeout_begins_when_the_start_is_over(tmp_path: Path) -> None:
    slow = tmp_path / "slow.py"  # the second worker connects long after the first one
    slow.write_text(
        "import os, time\n"
        "def dask_setup(worker):\n"
        "    try:\n"
        f"        os.mkdir({str(tmp_path / 'first')!r})\n"
        "    except FileExistsError:\n"
        "        time.sleep(1.2)\n"
    )
    with dask.config.set({"distributed.worker.preload": [str(slow)]}):
        client, cluster = hyperplane.start(hyperplane.plan_cluster(**SMALL, idle_timeout=0.5))
    with cluster, client:
        wait_until(lambda: cluster.status.name == client.status == "closed", 120)


@pytest.mark.cluster
def test_workers_have_the_current_variables_and_working_folder(
    shared: SharedCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SET_AFTER_THE_FORKSERVER", "yes")
    monkeypatch.chdir(tmp_path)
    client, cluster = hyperplane.start(hyperplane.plan_cluster(**ONE))
    with cluster, client:
        seen = client.run(
            lambda: (os.environ.get("SET_AFTER_THE_FORKSERVER"), os.environ["OMP_NUM_THREADS"])
        )
        assert list(seen.values()) == [("yes", "1")]
        assert list(client.run(os.getcwd).values()) == [str(tmp_path)]
        hashes = {*shared.client.run(hash, "text").values()}
        assert {*client.run(hash, "text").values()} == hashes
        assert len(hashes) == 1


@pytest.mark.cluster
def test_start_method_spawn() -> None:
    with dask.config.set({"hyperplane.engines.local.start_method": "spawn"}):
        client, cluster = hyperplane.start(hyperplane.plan_cluster(**ONE))
        with cluster, client:
            assert list(client.run(os.getppid).values()) == [os.getpid()]


@pytest.mark.cluster
@pytest.mark.usefixtures("shared")
def test_plain_dask_clusters_in_the_same_process_are_unchanged() -> None:
    from distributed import Client, LocalCluster

    plain = LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0")
    with plain, Client(plain) as client:
        assert list(client.run(os.getppid).values()) == [os.getpid()]
        assert plain.scheduler.worker_ttl == 300


@pytest.mark.cluster
def test_a_timeout_error_of_a_preload_is_not_the_time_limit_of_the_start(tmp_path: Path) -> None:
    breaks = tmp_path / "breaks.py"
    breaks.write_text("raise TimeoutError('no license')\n")
    with (
        dask.config.set({"distributed.worker.preload": [str(breaks)]}),
        pytest.raises(hyperplane.StartFailed) as caught,
    ):
        hyperplane.start(hyperplane.plan_cluster(**{**ONE, "timeout": 120}))
    # The oldest supported Dask does not pass on the cause.
    described = "no license.* before the time limit of 120 s|Nanny failed to start worker process"
    assert re.search(described, str(caught.value))
    assert not isinstance(caught.value, TimeoutError)
    assert records.read_all() == []


@pytest.mark.cluster
def test_start_failure_tells_what_the_worker_did(tmp_path: Path) -> None:
    breaks = tmp_path / "breaks.py"
    breaks.write_text("import os\ndef dask_setup(worker):\n    os._exit(3)\n")
    with (
        dask.config.set({"distributed.worker.preload": [str(breaks)]}),
        pytest.raises(hyperplane.StartFailed, match="everything was closed") as caught,
    ):
        hyperplane.start(hyperplane.plan_cluster(**ONE))
    assert "exited with status 3" in caught.value.log_tail
    assert records.read_all() == []


@pytest.mark.cluster
def test_a_closing_nanny_is_not_closed_again_by_the_end_of_its_worker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client, cluster = hyperplane.initialize_cluster(**ONE)
    [nanny] = cluster.workers.values()

    async def close() -> None:
        closing = asyncio.ensure_future(nanny.close())
        await asyncio.sleep(0)
        nanny.close_gracefully()  # as a worker requests when it ends, such as after scale(0)
        await closing

    with caplog.at_level(logging.ERROR, "distributed.nanny"):
        cluster.sync(close)
    client.close()
    cluster.close()
    assert nanny.status.name == "closed"
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR] == []
