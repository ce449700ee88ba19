"""The engine ``ray:slurm`` on a separate Slurm: jobs, certificates, replacement, and ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.config
import psutil
import pytest
from scale import FULL
from services import Slot, is_empty, temporary_directory, until
from services_slurm import interface_of, queue, read_job_details, service

import hyperplane
from hyperplane import ray_common
from hyperplane.clusters import records
from hyperplane.clusters.framework import CLOSED
from hyperplane.clusters.ray.slurm.cluster import PROGRAM

pytest.importorskip("ray")
pytestmark = [pytest.mark.ray, pytest.mark.cluster, pytest.mark.slow]
__all__ = ["service"]  # a fixture

ENGINE = "ray:slurm"
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


@pytest.fixture(scope="module")
def address(service: Slot) -> Iterator[str]:
    """The address of an interface that the tests add to this machine."""
    name, found = interface_of(service), f"10.77.{service.number}.1"
    subprocess.run(["ip", "link", "add", name, "type", "bridge"], check=True)
    try:
        subprocess.run(["ip", "address", "add", f"{found}/24", "dev", name], check=True)
        subprocess.run(["ip", "link", "set", name, "up"], check=True)
        yield found
    finally:
        subprocess.run(["ip", "link", "del", name], check=True)


@pytest.fixture(scope="module", autouse=True)
def shared(service: Slot, address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder that the nodes share; it and the queue are empty after the tests."""
    folder = tmp_path_factory.mktemp("shared")
    given = {
        "slurm.interface": interface_of(service),
        "slurm.shared_folder": str(folder),
        "ray_slurm.dashboard": False,
    }
    with dask.config.set({f"hyperplane.engines.{key}": value for key, value in given.items()}):
        yield folder
    until(lambda: queue() == {} and not programs())
    until(lambda: is_empty(folder))


@pytest.fixture(scope="module")
def running(shared: Path) -> Iterator[Any]:
    """A client and its cluster for the tests below, which do not end it."""
    started = hyperplane.start(hyperplane.plan_cluster(**SMALL))
    try:
        yield started
    finally:
        started.client.close()
        started.cluster.close()


def programs() -> list[psutil.Process]:
    """The programs of all jobs."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if PROGRAM in (process.info["cmdline"] or []):
            found.append(process)
    return found


def raylet_of(program: psutil.Process) -> psutil.Process:
    [raylet] = [each for each in program.children(recursive=True) if each.name() == "raylet"]
    return raylet


def job_names() -> set[str]:
    """Names of the jobs in the queue, which are those of their clusters."""
    return {read_job_details(job)["JobName"] for job in queue()}


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


def test_each_worker_node_is_a_job_with_the_resources_of_the_plan(
    running: Any, address: str
) -> None:
    client, cluster = running
    jobs = queue("RUNNING")
    assert len(jobs) == 2
    for job in jobs:
        details = read_job_details(job)
        assert (details["NumCPUs"], details["JobName"]) == ("1", cluster.name)
        assert details["MinMemoryNode"] == "954M"  # 1 GB
    assert [worker.ip for worker in ray_common.find_ray_workers()] == [address] * 2
    nodes = {node["NodeName"]: node["Resources"].get("CPU", 0) for node in client.ray.nodes()}
    assert nodes == {"head": 0, **dict.fromkeys(cluster.workers, 1)}
    ray = client.ray
    square = ray.remote(num_cpus=1)(lambda number: number * number)
    assert ray.get([square.remote(n) for n in range(6)], timeout=120) == [n * n for n in range(6)]
    [record] = records.read_all()
    assert (record.engine, record.workers) == (ENGINE, 2)


def test_secrets_are_only_in_files_of_this_user(running: Any, shared: Path) -> None:
    cluster = running.cluster
    [file] = shared.rglob("connection.json")
    assert file.stat().st_mode & 0o77 == 0
    assert file.parent.parent.stat().st_mode & 0o77 == 0
    secret = json.loads(file.read_text())["token"]
    for process in psutil.process_iter(["cmdline"]):
        words = " ".join(process.info["cmdline"] or [])
        assert secret not in words
        assert cluster.record.security["token"] not in words
    for job in queue("RUNNING"):
        details = subprocess.run(
            ["scontrol", "show", "job", "--details", job],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert secret not in details
    # The token of Ray is not in the environment that Slurm stores for the jobs.
    for program in programs():
        assert cluster.record.security["token"] not in json.dumps(program.environ())


def test_a_cancelled_job_is_submitted_again_and_costs_no_task(
    running: Any, caplog: pytest.LogCaptureFixture
) -> None:
    client, cluster = running
    ray, before = client.ray, sorted(cluster.workers)

    @ray.remote(max_retries=5, num_cpus=1)
    def square(number: int) -> int:
        time.sleep(0.5)
        return number * number

    results = [square.remote(number) for number in range(8)]
    ray.get(results[0])
    victim, kept = sorted(queue("RUNNING"))
    with caplog.at_level("WARNING"):
        subprocess.run(["scancel", victim], check=True)
        assert ray.get(results, timeout=250) == [number**2 for number in range(8)]
        until(lambda: f"job {victim} (worker node ray-worker-" in caplog.text)
        assert "was cancelled; it is submitted again" in caplog.text
    until(lambda: sorted(cluster.workers) == before and len(queue("RUNNING")) == 2, 250)
    assert kept in queue("RUNNING")
    until(lambda: ray.cluster_resources()["CPU"] == 2)


def test_a_killed_raylet_ends_its_job_which_is_submitted_again(
    running: Any, caplog: pytest.LogCaptureFixture
) -> None:
    _, cluster = running
    before, jobs = sorted(cluster.workers), set(queue("RUNNING"))
    with caplog.at_level("WARNING"):
        raylet_of(programs()[0]).kill()
        until(lambda: "the raylet of this worker node has ended" in caplog.text, 250)
    until(lambda: len(set(queue("RUNNING")) - jobs) == 1, 250)
    until(lambda: sorted(cluster.workers) == before, 250)


@pytest.mark.skipif(not FULL, reason="one more cluster takes half a minute: at full scale")
def test_a_job_gets_its_gpu_from_slurm(
    shared: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # This machine need not have the GPU that its Slurm assigns.
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 'GPU 0: NVIDIA A'\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    client, cluster = hyperplane.start(
        hyperplane.plan_cluster(**{**SMALL, "num_workers": 1, "ngpus": 1})
    )
    try:
        details = [read_job_details(job) for job in queue("RUNNING")]
        [job] = [each for each in details if each["JobName"] == cluster.name]
        assert job["TresPerNode"] == "gres:gpu:1"
        assert client.ray.cluster_resources()["GPU"] == 1
        read = client.ray.remote(num_gpus=1)(lambda: os.environ["CUDA_VISIBLE_DEVICES"])
        assert client.ray.get(read.remote(), timeout=120) == "0"
    finally:
        client.close()
        cluster.close()


def test_a_worker_node_is_added(running: Any) -> None:
    _, cluster = running
    assert ray_common.get_ray_cluster(extra_workers=1) is cluster
    assert len(queue("RUNNING")) == len(cluster.workers) == 3


def test_jobs_that_never_start_are_named(running: Any) -> None:
    known = len(records.read_all(starting=True))
    plan = hyperplane.plan_cluster(**SMALL, engine_options={"partition": "missing"})
    with pytest.raises(hyperplane.StartFailed, match=r"sbatch refused the job: .*partition"):
        hyperplane.start(plan)
    plan = hyperplane.plan_cluster(**SMALL, engine_options={"python": "/usr/bin/no-python"})
    with pytest.raises(hyperplane.StartFailed, match="ended before its worker node connected"):
        hyperplane.start(plan)
    until(lambda: job_names() == {running.cluster.name})
    assert len(records.read_all(starting=True)) == known


@pytest.mark.skipif(not FULL, reason="waits for a timeout: at full scale")
def test_the_state_of_waiting_jobs_is_in_the_message(running: Any) -> None:
    plan = hyperplane.plan_cluster(
        **{**SMALL, "timeout": 30}, engine_options={"extra_directives": ["--begin=now+3600"]}
    )
    with pytest.raises(
        hyperplane.StartTimeout, match=r"squeue reports: .*0 of 2 worker nodes have"
    ):
        hyperplane.start(plan)
    until(lambda: job_names() == {running.cluster.name})


def test_an_interface_that_nodes_do_not_reach_is_refused() -> None:
    with pytest.raises(hyperplane.RequestError, match="'lo', the address 127"):
        hyperplane.plan_cluster(**SMALL, engine_options={"interface": "lo"})
    plan = hyperplane.plan_cluster(**SMALL, engine_options={"interface": "nope0"})
    with pytest.raises(hyperplane.StartFailed, match=r"interface = 'nope0': expected .* IPv4"):
        hyperplane.start(plan)


@pytest.mark.skipif(not FULL, reason="test_ray_ssh.py does it with hosts: at full scale")
def test_nothing_is_left_after_the_owner_is_killed(shared: Path) -> None:
    code = (
        "import hyperplane, json, sys, time\n"
        "client, cluster = hyperplane.start(hyperplane.plan_cluster(**json.loads(sys.argv[1])))\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    before, jobs = {process.pid for process in programs()}, set(queue())
    settings = dask.config.get("hyperplane.engines.slurm")
    options = {key: settings[key] for key in ("interface", "shared_folder")}
    request = json.dumps({**SMALL, "engine_options": {**options, "dashboard": False}})
    with subprocess.Popen(
        [sys.executable, "-c", code, request], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        assert "ready" in owner.stdout.read(6)
        assert len({process.pid for process in programs()} - before) == 2
        owner.send_signal(signal.SIGKILL)
    until(lambda: {process.pid for process in programs()} <= before and set(queue()) <= jobs)


@pytest.mark.skipif(not FULL, reason="it starts one more cluster: at full scale")
def test_it_works_without_tls_and_ends_when_idle() -> None:
    options = {"security": "none", "idle_timeout": 30}
    plan = hyperplane.plan_cluster(**{**SMALL, "num_workers": 1}, engine_options=options)
    client, cluster = hyperplane.start(plan)
    code = (
        "import ray\n"
        "ray.init(log_to_driver=False)\n"
        "print(ray.get(ray.remote(lambda: 7).remote(), timeout=120))\n"
    )
    assert "RAY_USE_TLS" not in os.environ
    done = run(code)
    assert done.stdout.split() == ["7"], done.stderr
    until(lambda: cluster.status == CLOSED, 250)
    assert cluster.end_reason == "the idle timeout has passed"
    client.close()
