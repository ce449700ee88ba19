"""initialize_cluster as in published programs: printed lines, names and results."""

from __future__ import annotations

import random
import re
import socket
import urllib.request
from contextlib import suppress
from typing import Any

import dask.config
import pytest
from dask_notices import without_notices
from distributed import Client, LocalCluster, WorkerPlugin
from published_lines import LOGS, NOW, SELECTING

import hyperplane
from hyperplane import notebook_common as nc

pytestmark = pytest.mark.cluster

UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
ONE: dict[str, Any] = {"num_workers": 1, "nprocs": 1, "nthreads": 1, "ram_gb_per_proc": 0.5}

LOCAL = [*SELECTING, f"{NOW} {{url}}", LOGS]


def test_documented_lines_of_a_remote_scheduler(capsys: pytest.CaptureFixture[str]) -> None:
    client, cluster = nc.initialize_cluster(**ONE)
    with cluster, client:
        out = capsys.readouterr().out
        url = re.search(r"http://\S+", out)
        assert url is not None
        lines = out.splitlines()
        assert "1 worker process" in lines.pop(2)
        assert lines == [line.format(url=url[0]) for line in LOCAL]
        assert re.fullmatch(rf"http://127\.0\.0\.1:\d+/dask-cluster-{UUID}/status", url[0])
        assert re.fullmatch(f"dask-cluster-{UUID}", cluster.name)
        with urllib.request.urlopen(url[0]) as answer:
            assert answer.status == 200


def test_documented_lines_of_a_local_scheduler(capsys: pytest.CaptureFixture[str]) -> None:
    client, cluster = nc.initialize_cluster(**ONE, scheduler_deploy_mode="local")
    with cluster, client:
        out, err = capsys.readouterr()
        assert out.splitlines() == [line.format(url=cluster.dashboard_link) for line in LOCAL]
        assert without_notices(err) == ""


def test_verbose_adds_the_plan_and_timings(capsys: pytest.CaptureFixture[str]) -> None:
    client, cluster = nc.initialize_cluster(**ONE, logging="verbose")
    with cluster, client:
        lines = capsys.readouterr().out.splitlines()
        assert "tuning         fast: 13 settings; the profile dask has none" in lines
        assert any(line.startswith("given") and "1 process x 1 thread" in line for line in lines)
        assert re.fullmatch(r"ready in \d+\.\d\d s: 1 worker process", lines[-1])


def test_the_requested_and_the_started_layout_are_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    client, cluster = nc.initialize_cluster()
    with cluster, client:
        out, err = capsys.readouterr()
        assert len(out.splitlines()) == len(LOCAL) + 1
        [line] = err.splitlines()
        assert "asked 2 nodes x 15 processes x 1 thread x 0.7 GB (30 threads, 21 GB)" in line
        assert "this machine gives" in line


@pytest.mark.parametrize(
    "name", ["initialize_cluster", "initialize_dask_cluster", "initialize__dask_cluster"]
)
def test_the_documented_names_are_the_same_function(name: str) -> None:
    assert getattr(nc, name) is hyperplane.initialize_cluster


def test_a_published_program_runs_unchanged() -> None:
    """All documented parameters, and the next lines of published programs."""
    client, cluster = nc.initialize_cluster(
        nprocs=5,
        nthreads=3,
        ram_gb_per_proc=2.4,
        cores_per_worker=15,
        num_workers=3,
        local_mode=False,
        worker_spec_yaml="",
        timeout=1200,
        scheduler_deploy_mode="local",
        dashboard_port="random",
        logging="quiet",
        ngpus=0,
        node_selector={},
        scheduler_ram="4Gi",
        scheduler_cpu="1500m",
    )
    assert isinstance(client, Client)
    assert isinstance(cluster, LocalCluster)

    class Setup(WorkerPlugin):
        def setup(self, worker: Any) -> None:
            worker.ready_for_work = True

    client.register_worker_plugin(Setup(), "setup")  # type: ignore[attr-defined]
    npartitions = len(client.nthreads())
    assert npartitions >= 1
    assert len(client.has_what()) == npartitions
    client.restart()
    assert len(client.nthreads()) == npartitions
    assert cluster.get_logs()["Scheduler"]
    cluster.close()
    client.close()


def test_quickstart_takes_a_size() -> None:
    client, cluster = nc.quickstart_dask(num_workers=1, size="hyperplane-small")
    with cluster, client:
        assert client.submit(sum, [1, 2]).result() == 3


def test_quickstart_refuses_a_pool_beside_the_size() -> None:
    with pytest.raises(hyperplane.RequestError) as caught:
        hyperplane.quickstart(1, "8_8", pool="16_16")
    assert [(fault.where, fault.asked) for fault in caught.value.faults] == [("pool", "'16_16'")]


def test_quickstart_refuses_an_unknown_size() -> None:
    with pytest.raises(hyperplane.UnknownPool, match="hyperplane-small"):
        nc.quickstart_dask(num_workers=1, size="hyperplane-smal")


def test_daskpool_candidates_are_the_configured_pools() -> None:
    assert list(nc.daskpool_candidates) == list(hyperplane.pools().values())
    own = {"cores": 2, "ram_gb": 4, "allocatable_cores": 1.5, "allocatable_ram_gb": 3}
    with dask.config.set({"hyperplane.pools.pool_own": own}):
        assert "own" in [pool.name for pool in nc.daskpool_candidates]


def test_get_dask_cluster_returns_a_client_that_can_close_the_cluster() -> None:
    client, cluster = nc.initialize_cluster(**ONE, name="by-name")
    found = nc.get_dask_cluster("by-name")
    assert isinstance(found, Client)
    assert found.submit(sum, [1, 2]).result() == 3
    found.cluster.close()
    found.close()
    assert cluster.status.name in {"closing", "closed"}
    client.close()
    cluster.close()
    assert "scheduler" not in dask.config.config


def test_advice_and_plans_start() -> None:
    advice = hyperplane.size_cluster("10MB", "light")
    for started in (
        hyperplane.initialize_cluster(advice),
        advice.start(),
        hyperplane.initialize_cluster(hyperplane.plan_cluster(advice)),
    ):
        client, cluster = started
        with cluster, client:
            assert len(client.nthreads()) >= 1


def test_arguments_override_advice() -> None:
    advice = hyperplane.size_cluster("10MB", "light")
    plan = hyperplane.plan_cluster(advice, nprocs=1, nthreads=1, ram_gb_per_proc=0.5)
    assert (plan.request.nprocs, plan.request.nthreads) == (1, 1)


def free_port() -> int:
    """A free port outside the range of ephemeral ports."""
    while True:
        port = random.SystemRandom().randrange(20_000, 30_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def test_the_dashboard_listens_on_the_given_port() -> None:
    port = free_port()
    client, cluster = nc.initialize_cluster(**ONE, dashboard_port=port)
    with cluster, client:
        assert cluster.dashboard_link == f"http://127.0.0.1:{port}/status"


def test_all_faults_are_reported_and_nothing_is_started(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(hyperplane.RequestError) as caught:
        nc.initialize_cluster(nprocs=0, nthread=2, timeout=-1, engine="locl")
    text = str(caught.value)
    assert "4 faults" in text
    for words in ("nprocs = 0", "did you mean nthreads", "timeout = -1", "did you mean local"):
        assert words in text
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_restart_waits_for_a_slow_worker(tmp_path: Any) -> None:
    """Plain Dask times out: it gives up a worker that needs more than 15 s."""
    slow = tmp_path / "slow.py"
    slow.write_text(
        "import pathlib, time\n"
        f"flag = pathlib.Path({str(tmp_path / 'flag')!r})\n"
        "def dask_setup(worker):\n"
        "    time.sleep(3) if flag.exists() else flag.touch()\n"
    )
    settings = {
        "distributed.worker.preload": [str(slow)],
        # Dask's default, scaled down from 15 s as the start from 40 s; hyperplane overrides it.
        "hyperplane.engines.local.lost_worker_timeout": "60s",
    }
    with dask.config.set(settings):
        client, cluster = nc.initialize_cluster(**ONE)
    with cluster, client:
        client.restart(timeout=250)
        assert len(client.nthreads()) == 1
