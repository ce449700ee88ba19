"""The engine ``ray:local`` passes the contract of engines, with real nodes of Ray."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import pandas as pd
import psutil
import pytest
from contract import OwnedClusterContract
from cycles import CYCLES_TIMEOUT, check_cycles
from scale import FULL
from services import is_empty, temporary_directory, until

import hyperplane
from hyperplane.clusters import records
from hyperplane.clusters.framework import CLOSED, RUNNING
from hyperplane.spec.ray_options import RayOptions

pytest.importorskip("ray")
pytestmark = [pytest.mark.ray, pytest.mark.cluster]

ENGINE = "ray:local"
SMALL: dict[str, Any] = {
    "num_workers": 1,
    "nprocs": 2,
    "nthreads": 1,
    "ram_gb_per_proc": 0.5,
    "local_fit": "exact",
    "timeout": 280,
    "engine_options": {"dashboard": False},
}


class TestRay(OwnedClusterContract):
    at_full_scale = frozenset(
        {
            "test_closing_twice_and_in_any_order",
            # test_cli_cluster_ray.py has it with the commands.
            "test_it_is_listed_until_another_process_stops_it_and_leaves_nothing",
            "test_a_call_replaces_its_earlier_cluster",
            "test_a_call_replaces_the_cluster_of_another_process",
            "test_a_cluster_ends_with_its_owner[exit]",
        }
    )
    engine = ENGINE
    small = SMALL
    print_workers = (
        "import ray, logging\nray.init(logging_level='ERROR', log_to_driver=False)\n"
        "@ray.remote(num_cpus=1)\n"
        "class Worker:\n    def pid(self):\n        return os.getpid()\n"
        "both = [Worker.remote(), Worker.remote()]\n"
        "print('workers', *ray.get([each.pid.remote() for each in both]), flush=True)\n"
    )

    @pytest.mark.cluster
    @pytest.mark.slow
    def test_get_cluster_attaches_and_can_close_the_cluster(self) -> None:
        # test_cli_cluster_ray.py attaches another process.
        super().test_get_cluster_attaches_and_can_close_the_cluster()

    def call(self, client: Any, function: Callable[..., Any], *arguments: Any) -> Any:
        return client.ray.get(client.ray.remote(lambda: function(*arguments)).remote())


def _descendants(cluster: Any) -> list[psutil.Process]:
    program = psutil.Process(cluster.program_pid)
    return [program, *program.children(recursive=True)]


def _raylets(cluster: Any) -> list[psutil.Process]:
    """Return the raylets: that of the head, then those of the workers."""
    children = psutil.Process(cluster.program_pid).children()
    return sorted((p for p in children if p.name() == "raylet"), key=lambda p: p.create_time())


@pytest.mark.slow
def test_nothing_is_left_after_the_program_with_the_nodes_is_killed() -> None:
    client, cluster = hyperplane.start(hyperplane.plan_cluster(engine=ENGINE, **SMALL))
    every = _descendants(cluster)
    assert len(every) > 6
    os.kill(cluster.program_pid, signal.SIGKILL)
    until(lambda: cluster.status == CLOSED and records.read_all(starting=True) == [])
    until(lambda: not any(process.is_running() for process in every))
    client.close()
    until(lambda: is_empty(Path(os.environ["TMPDIR"])))


@pytest.mark.slow
def test_objects_in_the_store_delay_the_idle_timeout() -> None:
    plan = hyperplane.plan_cluster(engine=ENGINE, idle_timeout=15, **SMALL)
    client, cluster = hyperplane.start(plan)
    reference = client.ray.put(b"x" * 1_000_000)
    time.sleep(20)
    assert cluster.status == RUNNING
    del reference
    until(lambda: cluster.status == CLOSED)
    until(lambda: records.read_all(starting=True) == [])
    until(lambda: cluster.end_reason == "the idle timeout has passed")


def test_a_long_temporary_directory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(os.environ["TMPDIR"]) / ("x" * 60)
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    plan = hyperplane.plan_cluster(engine=ENGINE, **SMALL)
    with pytest.raises(hyperplane.EngineError, match=r"too long .* set TMPDIR"):
        hyperplane.start(plan)
    assert records.read_all(starting=True) == []
    assert is_empty(folder)


@contextmanager
def run_cluster() -> Iterator[list[psutil.Process]]:
    # One node has all kinds of processes.
    plan = hyperplane.plan_cluster(engine=ENGINE, **{**SMALL, "nprocs": 1})
    client, cluster = hyperplane.start(plan)
    assert client.ray.get(client.ray.remote(lambda: 7).remote(), timeout=250) == 7
    yield _descendants(cluster)
    client.close()
    cluster.close()


@pytest.mark.skipif(not FULL, reason="other tests end a cluster and look: at full scale")
@pytest.mark.timeout(CYCLES_TIMEOUT)
def test_starts_and_ends_leave_no_process_port_or_file() -> None:
    check_cycles(20, run_cluster)


@pytest.fixture(scope="module")
def running() -> Iterator[Any]:
    """A client and its cluster for the tests below in their order; one of them ends it."""
    with temporary_directory():
        started = hyperplane.start(hyperplane.plan_cluster(engine=ENGINE, **SMALL))
        try:
            yield started
        finally:
            started.client.close()
            started.cluster.close()


def test_nodes_have_the_resources_of_the_plan(running: Any) -> None:
    client, cluster = running
    options = RayOptions.of(cluster.plan.options)
    assert (options.object_store, options.memory) == (150_000_000, 350_000_000)
    found = client.ray.cluster_resources()
    assert (found["CPU"], found["memory"]) == (2, 2 * options.memory)
    names = [node["NodeName"] for node in client.ray.nodes()]
    assert sorted(names) == sorted([*cluster.workers, "head"])


def test_every_port_is_on_the_loopback_interface(running: Any) -> None:
    client, cluster = running
    client.ray.get(client.ray.remote(lambda: 1).remote())  # with a worker process
    ports = [
        connection.laddr
        for process in _descendants(cluster)
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(ports) > 5
    assert {port.ip.removeprefix("::ffff:") for port in ports} == {"127.0.0.1"}


def test_a_program_connects_without_an_address_and_only_with_the_token(running: Any) -> None:
    _, cluster = running
    code = (
        "import ray, sys\n"
        "ray.init(log_to_driver=False)\n"
        "print(ray.get_runtime_context().gcs_address, len(ray.nodes()))\n"
    )
    token = cluster.record.security["token"]
    assert token not in repr(cluster)
    with ThreadPoolExecutor() as pool:  # both wait most of the time
        first = pool.submit(_run, code)
        refused = pool.submit(_run, code, RAY_AUTH_TOKEN="f" * len(token)).result()
        done = first.result()
    assert done.stdout.split() == [cluster.address, "3"], done.stderr
    assert refused.returncode != 0
    assert "token" in refused.stderr.lower()


def _run(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


def test_a_killed_worker_node_is_replaced_and_the_work_is_done(running: Any) -> None:
    client, cluster = running
    ray = client.ray
    before = list(cluster.workers)

    @ray.remote(max_retries=5)
    def square(number: int) -> int:
        time.sleep(0.5)
        return number * number

    results = [square.remote(number) for number in range(8)]
    ray.get(results[0])
    killed = _raylets(cluster)[-1]
    killed.kill()
    assert ray.get(results, timeout=250) == [number**2 for number in range(8)]
    until(lambda: sorted(cluster.workers) == sorted(before) and len(_raylets(cluster)) == 3)
    assert killed.pid not in [process.pid for process in _raylets(cluster)]
    until(lambda: records.read_all()[-1].workers == 2)
    until(lambda: ray.cluster_resources()["CPU"] == 2)


def test_dask_computes_on_the_cluster_with_the_functions_of_ray(running: Any) -> None:
    import dask

    client, _ = running
    assert client.ray.is_initialized()
    from ray.util.dask import enable_dask_on_ray, ray_dask_get

    double = dask.delayed(lambda number: (2 * number, os.getpid()))
    pairs = dask.compute(*map(double, range(6)), scheduler=ray_dask_get)
    assert [number for number, _ in pairs] == [0, 2, 4, 6, 8, 10]
    assert os.getpid() not in {pid for _, pid in pairs}
    frame = pd.DataFrame({"key": ["a", "b"] * 50, "value": range(100)})
    lazy = dd.from_pandas(frame, npartitions=4).groupby("key").value.sum()
    # Ray sets the former name of a key of Dask.
    with pytest.warns(FutureWarning, match="shuffle"), enable_dask_on_ray():
        found = lazy.compute()
    expected = frame.groupby("key").value.sum()
    assert found.sort_index().to_dict() == expected.to_dict()


def _kill_new_raylets(cluster: Any, kept: set[int], is_over: Callable[[], object]) -> None:
    """Kill each raylet that starts, until a condition holds."""
    deadline = time.monotonic() + 200
    while not is_over():
        assert time.monotonic() < deadline
        with suppress(psutil.Error):  # processes end meanwhile
            for process in _raylets(cluster):
                if process.pid not in kept:
                    process.kill()
        time.sleep(0.02)


def test_the_cluster_ends_with_its_head(running: Any) -> None:
    client, cluster = running
    assert os.environ["RAY_ADDRESS"] == cluster.address
    ray = client.ray
    every = _descendants(cluster)
    _raylets(cluster)[0].send_signal(signal.SIGKILL)
    until(lambda: cluster.status == CLOSED)
    with pytest.raises(hyperplane.EngineError, match="has ended: the head node has ended"):
        _ = client.ray
    until(lambda: records.read_all(starting=True) == [])
    until(lambda: not any(process.is_running() for process in every))
    # Ray would end this process a minute later.
    until(lambda: not ray.is_initialized())
    until(lambda: "RAY_ADDRESS" not in os.environ)
    until(lambda: is_empty(Path(os.environ["TMPDIR"])))


@pytest.mark.slow
def test_a_worker_node_whose_replacement_fails_is_replaced_later_and_then_abandoned(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client, cluster = hyperplane.start(hyperplane.plan_cluster(engine=ENGINE, **SMALL))
    ray = client.ray
    every = _descendants(cluster)
    _, kept, first = [process.pid for process in _raylets(cluster)]
    head_and_kept = {process.pid for process in _raylets(cluster)} - {first}
    # Once.
    os.kill(first, signal.SIGKILL)
    _kill_new_raylets(
        cluster, {*head_and_kept, first}, lambda: "will be started again" in caplog.text
    )
    assert "SystemError: its raylet has ended" in caplog.text
    until(lambda: len(cluster.workers) == 2 and len(_raylets(cluster)) == 3)
    until(lambda: ray.cluster_resources().get("CPU") == 2)
    # Always: the other worker node does all work.
    _kill_new_raylets(cluster, head_and_kept, lambda: "is not replaced" in caplog.text)
    assert (cluster.status, len(cluster.workers)) == (RUNNING, 1)
    until(lambda: records.read_all()[-1].workers == 1)
    double = ray.remote(max_retries=5)(lambda number: 2 * number)
    assert ray.get([double.remote(number) for number in range(5)], timeout=250) == [0, 2, 4, 6, 8]
    # The last one, too.
    _kill_new_raylets(cluster, head_and_kept - {kept}, lambda: cluster.status == CLOSED)
    assert cluster.end_reason.startswith("no worker node is left: worker node ray-worker-")
    with pytest.raises(hyperplane.EngineError, match="the cluster has ended: no worker node"):
        _ = client.ray
    until(lambda: not any(process.is_running() for process in every))
