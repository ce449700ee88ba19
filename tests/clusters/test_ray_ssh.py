"""The engine ``ray:ssh`` on real hosts: nodes, certificates, replacement, and ends."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from scale import FULL
from services import is_empty, temporary_directory, until
from services_ssh import HostNetwork, network

import hyperplane
from hyperplane import ray_common
from hyperplane.clusters import records
from hyperplane.clusters.framework import CLOSED, RUNNING

pytest.importorskip("ray")
pytestmark = [pytest.mark.ray, pytest.mark.cluster, pytest.mark.slow]
__all__ = ["network"]  # a fixture

ENGINE = "ray:ssh"
#: Host of the clusters of single tests; the shared cluster has the others.
LAST = 4
SMALL: dict[str, Any] = {
    "engine": ENGINE,
    "num_workers": 2,
    "nprocs": 1,
    "nthreads": 1,
    "cores_per_worker": 1,
    "ram_gb_per_proc": 0.5,
    "timeout": 280,
}


@pytest.fixture(scope="module", autouse=True)
def own_temporary_directory() -> Iterator[None]:
    """One for all tests, because the records of a cluster are there."""
    with temporary_directory():
        yield


@pytest.fixture(scope="module", autouse=True)
def _hosts(network: HostNetwork) -> Iterator[None]:
    """The hosts of the section of ssh, which ray:ssh uses, too."""
    import dask.config

    section = "hyperplane.engines"
    settings = {f"{section}.ssh.{key}": value for key, value in network.settings().items()}
    with dask.config.set({**settings, f"{section}.ray_ssh.dashboard": False}):
        yield
    until(lambda: not network.processes(), 120)


@pytest.fixture(scope="module")
def running(network: HostNetwork) -> Iterator[Any]:
    """A client and its cluster for the tests below, which do not end it."""
    started = hyperplane.start(hyperplane.plan_cluster(**SMALL))
    try:
        yield started
    finally:
        started.client.close()
        started.cluster.close()
    until(lambda: not network.processes())
    until(lambda: is_empty(Path(os.environ["TMPDIR"])))


def plan_alone(network: HostNetwork, **options: Any) -> hyperplane.ClusterPlan:
    """A plan for one worker node on the last host."""
    options = {"hosts": [network.address(LAST)], **options}
    return hyperplane.plan_cluster(**{**SMALL, "num_workers": 1}, engine_options=options)


def has_record(cluster: Any) -> bool:
    return cluster.name in {record.name for record in records.read_all(starting=True)}


def _raylets(network: HostNetwork, *hosts: int) -> list[psutil.Process]:
    processes = map(psutil.Process, network.processes(*hosts))
    return [process for process in processes if process.name() == "raylet"]


def test_worker_nodes_are_on_the_hosts_and_have_the_resources_of_the_plan(
    running: Any, network: HostNetwork
) -> None:
    client, cluster = running
    addresses = [network.address(1), network.address(2)]
    assert sorted(worker.ip for worker in ray_common.find_ray_workers()) == addresses
    ray = client.ray
    nodes = {node["NodeName"]: node for node in ray.nodes()}
    assert nodes.keys() == {"head", *cluster.workers}
    assert {name: nodes[name]["Resources"].get("CPU", 0) for name in nodes} == {
        "head": 0, **dict.fromkeys(cluster.workers, 1)
    }  # fmt: skip
    where = ray.remote(num_cpus=1)(lambda: ray.util.get_node_ip_address())
    assert {*ray.get([where.remote() for _ in range(8)])} <= {*addresses}
    assert len(_raylets(network, 1)) == len(_raylets(network, 2)) == 1
    [record] = records.read_all()
    assert (record.engine, record.workers) == (ENGINE, 2)


def test_the_output_of_tasks_reaches_the_program(running: Any) -> None:
    code = (
        "import ray, time\n"
        "ray.init()\n"
        "ray.get(ray.remote(lambda: print('from a host')).remote())\n"
        "time.sleep(5)\n"  # Ray sends it later
    )
    done = _run(code)
    assert "from a host" in done.stdout, done.stderr


def test_objects_pass_between_hosts(running: Any) -> None:
    import numpy as np

    ray = running.client.ray
    nodes = [node["NodeName"] for node in ray.nodes() if node["NodeName"] != "head"]
    ids = {node["NodeName"]: node["NodeID"] for node in ray.nodes()}
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

    @ray.remote(num_cpus=1)
    def make() -> Any:
        return np.arange(3_000_000)

    @ray.remote(num_cpus=1)
    def add(array: Any) -> int:
        return int(array.sum())

    made = make.options(scheduling_strategy=On(ids[nodes[0]], soft=False)).remote()
    added = add.options(scheduling_strategy=On(ids[nodes[1]], soft=False)).remote(made)
    assert ray.get(added, timeout=120) == sum(range(3_000_000))
    assert int(ray.get(made, timeout=120).sum()) == sum(range(3_000_000))


def test_no_port_answers_without_a_certificate_or_token(running: Any, network: HostNetwork) -> None:
    until(lambda: len(network.listening_ports(1)) > 4)  # agents start after their raylet
    head = running.cluster.address.rpartition(":")[0]
    program = psutil.Process(running.cluster.program_pid)
    own = {
        (head, connection.laddr.port)
        for process in program.children(recursive=True)
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    host = {(network.address(1), port) for port in network.listening_ports(1)}
    assert len(own) > 4
    answers = {port: _get(*port) for port in own | host}
    assert set(answers.values()) == {0, 401}, answers


def _get(host: str, port: int) -> int:
    """Return the status of an answer; 0 if there is none, because a port speaks only TLS."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{host}:{port}/", timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def test_connections_without_a_certificate_or_token_are_refused(running: Any) -> None:
    _, cluster = running
    with pytest.raises((ssl.SSLError, ConnectionError)):
        _send_without_certificate(cluster.address)
    code = "import ray; ray.init(log_to_driver=False); print(len(ray.nodes()))"
    assert _run(code).stdout.split() == ["3"]
    token = cluster.record.security["token"]
    refused = _run(code, RAY_AUTH_TOKEN="f" * len(token))
    assert refused.returncode != 0
    assert "token" in refused.stderr.lower()
    assert token not in repr(cluster)
    for process in psutil.process_iter(["cmdline"]):
        assert token not in " ".join(process.info["cmdline"] or [])
    # Only this user can read the certificates.
    folder = Path(cluster.variables["RAY_TLS_SERVER_KEY"]).parent
    assert {file.stat().st_mode & 0o77 for file in folder.glob("*.pem")} == {0}


def _send_without_certificate(address: str) -> None:
    """Raise an error if a port demands the certificate of a client."""
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection((host, int(port)), 30) as plain,
        context.wrap_socket(plain) as encrypted,
    ):
        encrypted.settimeout(30)
        encrypted.sendall(b"x" * 100)  # with TLS 1.3 the server's reply has the refusal
        if not encrypted.recv(1):
            raise ConnectionError("closed")


def _run(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


def test_a_killed_worker_node_is_replaced_on_its_host(running: Any, network: HostNetwork) -> None:
    client, cluster = running
    ray = client.ray
    before = sorted(cluster.workers)

    @ray.remote(max_retries=5, num_cpus=1)
    def square(number: int) -> int:
        time.sleep(0.5)
        return number * number

    results = [square.remote(number) for number in range(8)]
    ray.get(results[0])
    [killed] = _raylets(network, 2)
    killed.kill()
    assert ray.get(results, timeout=250) == [number**2 for number in range(8)]
    until(lambda: sorted(cluster.workers) == before, 250)
    until(lambda: len(_raylets(network, 2)) == 1)
    until(lambda: ray.cluster_resources()["CPU"] == 2)


def test_worker_nodes_are_added_until_no_host_is_free(running: Any, network: HostNetwork) -> None:
    _, cluster = running
    assert ray_common.get_ray_cluster(extra_workers=1) is cluster
    assert len(_raylets(network, 3)) == 1
    with pytest.raises(hyperplane.RequestError, match="at most 1: 4 hosts have room for 4"):
        ray_common.get_ray_cluster(extra_workers=2)
    with pytest.raises(hyperplane.RequestError, match="at most 4"):
        hyperplane.plan_cluster(**{**SMALL, "num_workers": 5})


@pytest.mark.skipif(not FULL, reason="test_ray_local.py does it on one machine: at full scale")
def test_another_process_attaches_and_stops_the_cluster(network: HostNetwork) -> None:
    client, cluster = hyperplane.start(plan_alone(network))
    assert network.processes(LAST)
    code = (
        "import hyperplane, sys\n"
        f"client, cluster = hyperplane.get_cluster({cluster.name!r})\n"
        "ray = client.ray\n"
        "print(ray.get(ray.remote(lambda: 7).remote()), len(cluster.workers), flush=True)\n"
        "client.close()\n"
        "cluster.close()\n"
    )
    done = _run(code)
    assert done.stdout.split()[-2:] == ["7", "1"], done.stderr
    until(lambda: cluster.status == CLOSED)
    client.close()
    until(lambda: not network.processes(LAST))
    assert not has_record(cluster)


@pytest.mark.skipif(not FULL, reason="the connections end with the program: at full scale")
def test_nothing_is_left_after_the_owner_is_killed(network: HostNetwork) -> None:
    code = (
        "import hyperplane, json, sys, time\n"
        "client, cluster = hyperplane.start(hyperplane.plan_cluster(**json.loads(sys.argv[1])))\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    import json

    import dask.config

    settings = {**dask.config.get("hyperplane.engines.ssh"), "dashboard": False}
    options = {key: settings[key] for key in ("hosts", "client_keys", "known_hosts", "dashboard")}
    options["hosts"] = [network.address(LAST)]
    request = json.dumps({**SMALL, "num_workers": 1, "engine_options": options})
    with subprocess.Popen(
        [sys.executable, "-c", code, request], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        assert "ready" in owner.stdout.read(6)
        assert network.processes(LAST)
        owner.send_signal(signal.SIGKILL)
    until(lambda: not network.processes(LAST))


def test_an_unreachable_host_and_a_missing_python_are_named(network: HostNetwork) -> None:
    before = len(records.read_all(starting=True))
    plan = plan_alone(network, hosts=[network.address(9)], connect_timeout=2)
    with pytest.raises(hyperplane.StartFailed, match=r"1 host of 1 cannot be used"):
        hyperplane.start(plan)
    plan = plan_alone(network, python="/usr/bin/no-python")
    with pytest.raises(hyperplane.StartFailed, match=r"there is no /usr/bin/no-python"):
        hyperplane.start(plan)
    assert len(records.read_all(starting=True)) == before
    until(lambda: not network.processes(LAST))


@pytest.mark.skipif(not FULL, reason="it starts one more cluster: at full scale")
def test_a_worker_node_is_started_again_when_its_host_is_reached(
    network: HostNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    client, cluster = hyperplane.start(plan_alone(network, connect_timeout=2))
    with caplog.at_level("WARNING"):
        network.set_link(LAST, "down")
        [raylet] = _raylets(network, LAST)
        raylet.kill()  # its connection would end after the missing keepalive messages
        until(lambda: "is started again when its host is reached" in caplog.text, 250)
        network.set_link(LAST, "up")
    until(lambda: len(cluster.workers) == 1 and _raylets(network, LAST), 250)
    client.close()
    cluster.close()
    until(lambda: not network.processes(LAST))


@pytest.mark.skipif(not FULL, reason="it starts twelve nodes: at full scale")
def test_a_host_has_more_nodes_than_sessions_of_a_connection(network: HostNetwork) -> None:
    plan = hyperplane.plan_cluster(
        **{**SMALL, "num_workers": 1, "nprocs": 12, "cores_per_worker": 12, "timeout": 900},
        engine_options={"hosts": [network.address(LAST)]},
    )
    client, cluster = hyperplane.start(plan)
    try:
        assert len(cluster.workers) == len(_raylets(network, LAST)) == 12
    finally:
        client.close()
        cluster.close()
    until(lambda: not network.processes(LAST))


@pytest.mark.skipif(not FULL, reason="it starts one more cluster: at full scale")
def test_it_works_without_tls(network: HostNetwork) -> None:
    before = os.environ.get("RAY_USE_TLS")
    client, cluster = hyperplane.start(plan_alone(network, security="none", idle_timeout=40))
    assert cluster.status == RUNNING
    assert "RAY_USE_TLS" not in os.environ
    if "ray" in sys.modules:  # another test has connected this process to another cluster
        sys.modules["ray"].shutdown()
    ray = client.ray
    assert ray.get(ray.remote(lambda: 7).remote(), timeout=120) == 7
    until(lambda: cluster.status == CLOSED, 250)
    until(lambda: cluster.end_reason == "the idle timeout has passed")
    until(lambda: not network.processes(LAST))
    client.close()
    until(lambda: os.environ.get("RAY_USE_TLS") == before)
