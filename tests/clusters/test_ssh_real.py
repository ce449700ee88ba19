"""The ssh engine on real hosts: the contract, the main job and arguments of plans."""

from __future__ import annotations

import asyncio
import io
import logging
import os
import socket
import time
import urllib.request
from pathlib import Path
from typing import Any

import dask.config
import pytest
from contract import OneClusterContract, one_cluster, slow_square
from distributed import Client
from services import until
from services_ssh import SMALL, HostNetwork, network, nothing_left, plan, surroundings

import hyperplane
from hyperplane.clusters import records
from hyperplane.clusters.dask.attach import attach_asynchronously
from hyperplane.ml import gang

pytestmark = [pytest.mark.engine, pytest.mark.slow]
__all__ = ["network", "nothing_left", "one_cluster", "surroundings"]  # fixtures


class TestContract(OneClusterContract):
    engine = "ssh"
    small = SMALL

    def check_terminate(self, cluster: Any, expected: float) -> None:
        assert {
            worker._config["settings"]["distributed"]["worker"]["memory"]["terminate"]
            for worker in cluster.workers.values()
        } == {expected}


def test_ranks_of_a_gang_use_the_interface_that_other_hosts_reach() -> None:
    # The name of a host often has an address of its loopback interface, which gloo would use.
    client, cluster = hyperplane.start(plan())
    with cluster, client:
        found = gang(client, lambda: os.environ["GLOO_SOCKET_IFNAME"], 2, logs=False)
    assert found == ["eth0", "eth0"]


def test_two_processes_on_each_host_are_scaled_together(network: HostNetwork) -> None:
    client, cluster = hyperplane.start(plan(nprocs=2, cores_per_worker=2))
    with cluster, client:
        assert _names(client) == {"node-0-0", "node-0-1", "node-1-0", "node-1-1"}
        cluster.scale(6)
        client.wait_for_workers(6, timeout=120)
        cluster.scale(2)
        until(lambda: len(client.nthreads()) == 2)
        assert _names(client) == {"node-0-0", "node-0-1"}
        until(lambda: not network.processes(2))
        cluster.scale(memory="2 GB")
        client.wait_for_workers(4, timeout=120)
        with pytest.raises(hyperplane.EngineError, match="no host is free for one more node"):
            cluster.scale(10)


def test_another_object_scales_a_cluster_whose_scheduler_is_here() -> None:
    client, cluster = hyperplane.initialize_cluster(
        engine="ssh", **SMALL, scheduler_deploy_mode="local", name="here"
    )
    with cluster, client:
        before = len(cluster.worker_spec)
        _, handle = other = hyperplane.get_cluster("here")
        handle.scale(before + 1)
        client.wait_for_workers(before + 1, timeout=120)
        with pytest.raises(hyperplane.EngineError, match="no host is free for one more node"):
            handle.scale(100)  # the error of the owner
        other.client.close()
        handle.detach()


def test_the_pane_of_jupyterlab_has_a_cluster_whose_scheduler_is_on_a_host() -> None:
    client, cluster = hyperplane.start(plan())
    with cluster, client:

        async def use() -> None:
            [record] = records.read_all()
            attached = await attach_asynchronously(record)
            assert len(attached.scheduler_info["workers"]) == len(cluster.worker_spec)
            assert attached.dashboard_link == cluster.dashboard_link
            # The scheduler passes the requests on to this process.
            assert await attached.read_limits() is None
            await attached.scale(1)
            assert len(cluster.worker_spec) == 1
            with pytest.raises(hyperplane.EngineError, match="no host is free for one more node"):
                await attached.scale(100)
            assert attached.adapt(minimum=1, maximum=2) == (1, 2)
            await asyncio.gather(*attached._requests)
            assert await attached.read_limits() == (1, 2)
            await attached.scale(2)
            assert await attached.read_limits() is None, "it would undo the change"
            assert len(cluster.worker_spec) == 2
            await attached.close()

        asyncio.run(use())
        until(lambda: cluster.status.name == "closed")


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
    # On a busy machine a worker may replace a slow connection.
    logged = [line for line in terminal.getvalue().splitlines() if "TLS handshake" not in line]
    assert logged == []


def test_what_the_user_preloads_is_loaded_on_the_hosts(tmp_path: Path) -> None:
    module = tmp_path / "loaded_first.py"
    module.write_text("import os\nos.environ['LOADED_FIRST'] = 'yes'\n")
    with dask.config.set({"distributed.worker.preload": [str(module)]}):
        client, cluster = hyperplane.start(plan())
    with cluster, client:
        assert set(client.run(lambda: os.environ.get("LOADED_FIRST")).values()) == {"yes"}


def test_more_threads_than_cores_of_a_host_are_reported(
    network: HostNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    threads = 2 * (os.cpu_count() or 1)
    client, cluster = hyperplane.start(
        plan(num_workers=1, nthreads=threads, cores_per_worker=threads)
    )
    with cluster, client:
        assert f"{network.address(1)} has " in caplog.text
        assert f"for the {threads} threads of a node" in caplog.text


def test_it_adapts_to_the_work_within_its_hosts() -> None:
    client, cluster = hyperplane.start(plan(num_workers=1))
    with cluster, client:
        cluster.adapt(minimum=1, interval="100ms", wait_count=2)
        futures = client.map(slow_square(), range(200), pure=False)
        until(lambda: len(client.nthreads()) > 1)
        assert sum(client.gather(futures)) == sum(number * number for number in range(200))
        assert len(client.nthreads()) <= 4


def test_it_adapts_by_whole_nodes_and_not_below_its_minimum() -> None:
    client, cluster = hyperplane.start(plan(nprocs=2, cores_per_worker=2))
    with cluster, client:
        cluster.adapt(minimum=3, interval="100ms", wait_count=2)
        deadline = time.monotonic() + 4
        while time.monotonic() < deadline:
            assert len(client.nthreads()) == 4
            time.sleep(0.1)


def _names(client: Client) -> set[str]:
    return {worker["name"] for worker in client.scheduler_info(n_workers=-1)["workers"].values()}
