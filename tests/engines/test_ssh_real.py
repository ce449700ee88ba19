"""The ssh engine on hosts of its own: the contract, the main job, and lost hosts."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.config
import pytest
from contract import EngineContract, slow_square
from distributed import Client
from services import until
from services_ssh import hosts, processes, set_link

import hyperplane
from hyperplane.engines import records

pytestmark = [pytest.mark.engine, pytest.mark.slow]


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, Any]]:
    with hosts() as settings:
        yield settings


@pytest.fixture(autouse=True)
def _configured(options: dict[str, Any]) -> Iterator[None]:
    with dask.config.set(
        {f"hyperplane.engines.ssh.{key}": value for key, value in options.items()}
    ):
        yield
    deadline = time.monotonic() + 20
    while left := {host: processes(host) for host in range(1, 5) if processes(host)}:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


SQUARES = sum(number * number for number in range(60))
SMALL: dict[str, Any] = {
    "num_workers": 2,
    "nprocs": 1,
    "nthreads": 1,
    "cores_per_worker": 1,
    "ram_gb_per_proc": 0.5,
    "timeout": 120,
}


def _plan(**options: Any) -> hyperplane.ClusterPlan:
    return hyperplane.plan_cluster(**{"engine": "ssh", **SMALL, **options})


class TestContract(EngineContract):
    engine = "ssh"
    small = SMALL

    def check_terminate(self, cluster: Any, expected: float) -> None:
        assert {
            worker._told["settings"]["distributed"]["worker"]["memory"]["terminate"]
            for worker in cluster.workers.values()
        } == {expected}


def test_two_processes_on_each_host_are_scaled_together() -> None:
    client, cluster = hyperplane.start(_plan(nprocs=2, cores_per_worker=2))
    with cluster, client:
        assert _names(client) == {"node-0-0", "node-0-1", "node-1-0", "node-1-1"}
        cluster.scale(6)
        client.wait_for_workers(6, timeout=60)
        cluster.scale(2)
        until(lambda: len(client.nthreads()) == 2)
        assert _names(client) == {"node-0-0", "node-0-1"}
        until(lambda: not processes(2))
        cluster.scale(memory="2 GB")
        client.wait_for_workers(4, timeout=60)
        with pytest.raises(hyperplane.EngineError, match="no host is free for one more node"):
            cluster.scale(10)


def test_a_scheduler_here_has_its_dashboard_here_and_logs_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    terminal, distributed = io.StringIO(), logging.getLogger("distributed")
    handler = logging.StreamHandler(terminal)
    distributed.addHandler(handler)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    client, cluster = hyperplane.initialize_cluster(
        engine="ssh", **SMALL, scheduler_deploy_mode="local", dashboard_port=port
    )
    with cluster, client:
        link = f"http://127.0.0.1:{port}/status"
        assert (client.dashboard_link, cluster.dashboard_link) == (link, link)
        with urllib.request.urlopen(link) as page:
            assert page.status == 200
    distributed.removeHandler(handler)
    assert f"you can access your dask dashboard at {link}\n" in capsys.readouterr().out
    assert terminal.getvalue() == ""


def test_what_the_user_preloads_is_loaded_on_the_hosts(tmp_path: Path) -> None:
    module = tmp_path / "loaded_first.py"
    module.write_text("import os\nos.environ['LOADED_FIRST'] = 'yes'\n")
    with dask.config.set({"distributed.worker.preload": [str(module)]}):
        client, cluster = hyperplane.start(_plan())
    with cluster, client:
        assert set(client.run(lambda: os.environ.get("LOADED_FIRST")).values()) == {"yes"}


def test_more_threads_than_a_host_has_cores_are_told(caplog: pytest.LogCaptureFixture) -> None:
    threads = 2 * (os.cpu_count() or 1)
    client, cluster = hyperplane.start(
        _plan(num_workers=1, nthreads=threads, cores_per_worker=threads)
    )
    with cluster, client:
        assert "10.77.0.11 has " in caplog.text
        assert f"for the {threads} threads of a node" in caplog.text


def test_it_adapts_to_the_work_within_its_hosts() -> None:
    client, cluster = hyperplane.start(_plan(num_workers=1))
    with cluster, client:
        cluster.adapt(minimum=1, interval="100ms", wait_count=2)
        futures = client.map(slow_square(), range(60), pure=False)
        until(lambda: len(client.nthreads()) > 1)
        assert sum(client.gather(futures)) == SQUARES
        assert len(client.nthreads()) <= 4


@pytest.mark.parametrize("nprocs", [1, 2])
def test_a_node_that_goes_hands_over_its_results(nprocs: int) -> None:
    client, cluster = hyperplane.start(_plan(nprocs=nprocs, cores_per_worker=nprocs))
    with cluster, client:
        kept = client.map(lambda number: (number, os.getpid()), range(8), pure=False)
        before = client.gather(kept)
        assert len({process for _, process in before}) == 2 * nprocs
        cluster.scale(nprocs)
        until(lambda: len(client.nthreads()) == nprocs)
        assert client.gather(kept) == before


def test_it_adapts_by_whole_nodes_and_not_below_its_minimum() -> None:
    client, cluster = hyperplane.start(_plan(nprocs=2, cores_per_worker=2))
    with cluster, client:
        cluster.adapt(minimum=3, interval="100ms", wait_count=2)
        deadline = time.monotonic() + 4
        while time.monotonic() < deadline:
            assert len(client.nthreads()) == 4
            time.sleep(0.1)


@pytest.mark.parametrize("nprocs", [1, 2])
def test_a_lost_host_is_told_and_another_takes_its_place(
    nprocs: int, caplog: pytest.LogCaptureFixture
) -> None:
    client, cluster = hyperplane.start(_plan(nprocs=nprocs, cores_per_worker=nprocs))
    with cluster, client:
        for process in processes(2):
            os.kill(process, signal.SIGKILL)
        until(lambda: "host 10.77.0.12 is lost" in caplog.text)
        cluster.scale(2 * nprocs)
        until(lambda: len(client.nthreads()) == 2 * nprocs)
        assert client.submit(sum, [1, 2]).result() == 3


def test_tasks_may_print_as_much_as_they_like() -> None:
    client, cluster = hyperplane.start(_plan(num_workers=1))
    with cluster, client:
        futures = client.map(lambda number: os.write(1, b"x" * 1_000_000), range(10), pure=False)
        client.gather(futures)
        client.run(lambda: os.write(2, b"x" * 1_000_000))


@pytest.mark.parametrize("mode", ["remote", "local"])
def test_nothing_is_readable_without_the_key_of_the_cluster(mode: str) -> None:
    client, cluster = hyperplane.start(_plan(scheduler_deploy_mode=mode))
    with cluster, client:
        assert cluster.scheduler_address.startswith("tls://")
        plain = cluster.scheduler_address.replace("tls://", "tcp://")
        with (
            pytest.raises((OSError, TypeError)),
            dask.config.set(
                {"distributed.comm.timeouts.connect": "2s", "distributed.comm.retry.count": 0}
            ),
        ):
            Client(plain, timeout=3)
        commands = [
            Path(f"/proc/{process}/cmdline").read_bytes()
            + Path(f"/proc/{process}/environ").read_bytes()
            for host in (1, 2)
            for process in processes(host)
        ]
        assert commands
        assert not any(b"PRIVATE KEY" in each for each in commands)
        # Dask's own way, where the keys are in another coding.
        assert not any(b"INHERIT_CONFIG" in each for each in commands)


def test_a_host_that_is_cut_off_in_mid_job_costs_no_result() -> None:
    ttl = {"worker_ttl": "5s"}
    client, cluster = hyperplane.start(_plan(num_workers=3, engine_options=ttl))
    with cluster, client:
        futures = client.map(slow_square(), range(60), pure=False)
        until(lambda: sum(future.status == "finished" for future in futures) > 5)
        set_link(3, "down")
        try:
            assert sum(client.gather(futures)) == SQUARES
        finally:
            set_link(3, "up")


def test_the_processes_end_with_a_program_that_is_killed() -> None:
    program = (
        "import hyperplane, json, sys, time\n"
        "client, cluster = hyperplane.start(hyperplane.plan_cluster(\n"
        "    engine='ssh', **json.loads(sys.argv[1])))\n"
        "print('ready', flush=True); time.sleep(60)"
    )
    settings = dask.config.get("hyperplane.engines.ssh")
    arguments = json.dumps({**SMALL, "engine_options": settings})
    with subprocess.Popen(
        [sys.executable, "-c", program, arguments], stdout=subprocess.PIPE
    ) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"ready\n"
        assert processes(1)
        os.kill(run.pid, signal.SIGKILL)
    until(lambda: not processes(1) and not processes(2), 20)


def test_an_idle_cluster_closes_itself() -> None:
    client, cluster = hyperplane.start(_plan(idle_timeout=2))
    assert client.submit(sum, [1, 2]).result() == 3
    until(lambda: cluster.status.name == "closed" and not records.read_all(), 30)
    with pytest.raises(hyperplane.EngineError, match="running: none"):
        hyperplane.get_cluster(cluster.name, "ssh")


def _names(client: Client) -> set[str]:
    return {told["name"] for told in client.scheduler_info(n_workers=-1)["workers"].values()}
