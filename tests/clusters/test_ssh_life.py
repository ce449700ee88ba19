"""The ssh engine when hosts, nodes or programs end, and the secrecy of its keys."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys

import dask.config
import pytest
from contract import slow_square
from distributed import Client
from services import until
from services_ssh import (
    SMALL,
    HostNetwork,
    network,
    nothing_left,
    plan,
    read_process_file,
    surroundings,
)

import hyperplane
from hyperplane.clusters import records

pytestmark = [pytest.mark.engine, pytest.mark.slow]
__all__ = ["network", "nothing_left", "surroundings"]  # fixtures


@pytest.mark.parametrize("nprocs", [1, 2])
def test_results_of_a_removed_node_move_to_other_nodes(nprocs: int) -> None:
    client, cluster = hyperplane.start(plan(nprocs=nprocs, cores_per_worker=nprocs))
    with cluster, client:
        kept = client.map(lambda number: (number, os.getpid()), range(8), pure=False)
        before = client.gather(kept)
        assert len({process for _, process in before}) == 2 * nprocs
        cluster.scale(nprocs)
        until(lambda: len(client.nthreads()) == nprocs)
        assert client.gather(kept) == before


@pytest.mark.parametrize("nprocs", [1, 2])
def test_a_lost_host_is_reported_and_replaced(
    nprocs: int, network: HostNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    client, cluster = hyperplane.start(plan(nprocs=nprocs, cores_per_worker=nprocs))
    with cluster, client:
        for process in network.processes(2):
            os.kill(process, signal.SIGKILL)
        lost = rf"has lost \S+ on host {re.escape(network.address(2))}\n"
        until(lambda: re.search(lost, caplog.text))
        cluster.scale(2 * nprocs)
        until(lambda: len(client.nthreads()) == 2 * nprocs)
        assert client.submit(sum, [1, 2]).result() == 3


def test_tasks_may_print_as_much_as_they_like() -> None:
    client, cluster = hyperplane.start(plan(num_workers=1))
    with cluster, client:
        futures = client.map(lambda number: os.write(1, b"x" * 1_000_000), range(10), pure=False)
        client.gather(futures)
        client.run(lambda: os.write(2, b"x" * 1_000_000))


@pytest.mark.parametrize("mode", ["remote", "local"])
def test_nothing_is_readable_without_the_key_of_the_cluster(
    mode: str, network: HostNetwork
) -> None:
    client, cluster = hyperplane.start(plan(scheduler_deploy_mode=mode))
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
            read_process_file(process, name)
            for process in network.processes(1, 2)
            for name in ("cmdline", "environ")
        ]
        assert any(commands)
        assert not any(b"PRIVATE KEY" in (each or b"") for each in commands)
        # Dask's own cluster passes keys in another encoding.
        assert not any(b"INHERIT_CONFIG" in (each or b"") for each in commands)


def test_a_host_that_is_cut_off_in_mid_job_costs_no_result(network: HostNetwork) -> None:
    ttl = {"worker_ttl": "5s"}
    client, cluster = hyperplane.start(plan(num_workers=3, engine_options=ttl))
    with cluster, client:
        futures = client.map(slow_square(), range(60), pure=False)
        until(lambda: sum(future.status == "finished" for future in futures) > 5)
        network.set_link(3, "down")
        try:
            assert sum(client.gather(futures)) == sum(number * number for number in range(60))
        finally:
            network.set_link(3, "up")


def test_the_processes_end_with_a_program_that_is_killed(network: HostNetwork) -> None:
    program = (
        "import hyperplane, json, sys, time\n"
        "client, cluster = hyperplane.start(hyperplane.plan_cluster(\n"
        "    engine='ssh', **json.loads(sys.argv[1])))\n"
        "print('ready', flush=True); time.sleep(600)"
    )
    settings = dask.config.get("hyperplane.engines.ssh")
    arguments = json.dumps({**SMALL, "engine_options": settings})
    with subprocess.Popen(
        [sys.executable, "-c", program, arguments], stdout=subprocess.PIPE
    ) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"ready\n"
        assert network.processes(1)
        os.kill(run.pid, signal.SIGKILL)
    until(lambda: not network.processes(1, 2), 120)


def test_an_idle_cluster_closes_itself() -> None:
    client, cluster = hyperplane.start(plan(num_workers=1, idle_timeout=30))
    assert client.submit(sum, [1, 2]).result() == 3
    until(lambda: cluster.status.name == "closed" and not records.read_all())
    with pytest.raises(hyperplane.EngineError, match="running: none"):
        hyperplane.get_cluster(cluster.name, "ssh")
