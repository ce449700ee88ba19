"""Failures on a real Slurm, and the end of a cluster, which leaves no jobs or files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from distributed import Client
from distributed.security import Security
from services import Slot, is_empty, until
from services_slurm import interface_of, queue, service, shared, start

import hyperplane
from hyperplane.clusters.dask.slurm import cluster as slurm_cluster

pytestmark = [pytest.mark.engine, pytest.mark.slow]
__all__ = ["service", "shared"]  # fixtures


def test_a_timeout_names_the_reason_of_pending_jobs() -> None:
    client, cluster = start(num_workers=1, cores_per_worker=8)
    with cluster, client:
        with pytest.raises(hyperplane.StartTimeout, match=r"1 job PENDING \(Resources\)") as caught:
            start(num_workers=1, cores_per_worker=8, timeout=30)
        assert "0 of 1 worker process connected within 30 s" in str(caught.value)
        assert len(queue()) == 1
        assert client.submit(sum, [1, 2]).result() == 3


def test_a_timeout_counts_the_connected_workers() -> None:
    with pytest.raises(
        hyperplane.StartTimeout, match="1 of 2 worker processes connected"
    ) as caught:
        start(num_workers=2, cores_per_worker=8, timeout=80)
    assert "1 job PENDING" in str(caught.value)
    assert str(caught.value).endswith("Raise timeout to wait longer, or request less")


@pytest.mark.parametrize(
    ("options", "arguments", "says"),
    [
        ({"partition": "nowhere"}, {}, "sbatch refused the job: .*[Ii]nvalid partition"),
        ({"constraint": "red"}, {}, "sbatch refused the job: .*Invalid feature"),
        ({}, {"ram_gb_per_proc": 900}, "sbatch refused the job: .*not available"),
        ({}, {"num_workers": 1, "nprocs": 3, "ngpus": 1, "nthreads": 99}, "another partition"),
        ({"partition": "short", "walltime": "1 hour"}, {}, "PartitionTimeLimit.*shorter"),
        ({"python": "/no/python"}, {}, "ended before its workers connected"),
        ({"prologue": ["exit 7"]}, {}, "ended before its workers connected"),
    ],
)
def test_what_will_never_start_fails_at_once(
    options: dict[str, Any], arguments: dict[str, Any], says: str
) -> None:
    if "nthreads" in arguments:
        arguments = {**arguments, "cores_per_worker": 99}
    began = time.monotonic()
    with pytest.raises(hyperplane.StartFailed, match=says) as caught:
        start(engine_options=options, timeout=100, **arguments)
    assert time.monotonic() - began < 90
    if "python" in options:
        assert "/no/python" in caught.value.log_tail
    assert queue() == {}


OWNER = """
import signal, time, hyperplane
signal.signal(signal.SIGINT, signal.default_int_handler)
if __name__ == "__main__":
    print("starts", flush=True)
    client, cluster = hyperplane.start(hyperplane.plan_cluster(engine="slurm", num_workers=2,
        nprocs=1, nthreads=1, cores_per_worker=1, ram_gb_per_proc=0.5, timeout=90))
    client.map(time.sleep, [300] * 4, pure=False)
    print("up", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def owner(tmp_path: Path, shared: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a program with a cluster of two jobs."""
    file = tmp_path / "owner.py"
    file.write_text(OWNER)
    variables = {
        "DASK_HYPERPLANE__ENGINES__SLURM__INTERFACE": "lo",
        "DASK_HYPERPLANE__ENGINES__SLURM__SHARED_FOLDER": str(shared),
    }
    pipe = subprocess.PIPE
    words = [sys.executable, str(file)]
    with subprocess.Popen(
        words, stdout=pipe, stderr=pipe, text=True, env={**os.environ, **variables}
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "starts\n"
        yield program
        program.kill()


def test_jobs_end_when_their_owner_is_killed(owner: Any, shared: Path) -> None:
    assert owner.stdout.readline() == "up\n"
    assert len(queue("RUNNING")) == 2
    owner.kill()
    owner.wait()
    until(lambda: queue() == {})
    with pytest.raises(hyperplane.EngineError, match="running: none"):
        hyperplane.get_cluster("anything", "slurm")  # the next look-up removes leftovers
    (shared / os.uname().nodename).rmdir()


def test_ctrl_c_ends_a_start_with_its_jobs(owner: Any) -> None:
    until(lambda: len(queue()) == 2)
    owner.send_signal(signal.SIGINT)
    _, said = owner.communicate(timeout=120)
    assert said.rstrip().endswith("KeyboardInterrupt")
    assert set(queue().values()) <= {"COMPLETING"}
    until(lambda: queue() == {})


def test_a_cluster_survives_refused_jobs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr(slurm_cluster, "POLL_SECONDS", 1.0)
    client, cluster = start(num_workers=1)
    with cluster, client:
        (tmp_path / "sbatch").write_text(
            "#!/bin/bash\necho 'sbatch: error: too many' >&2; exit 1\n"
        )
        (tmp_path / "sbatch").chmod(0o755)
        with monkeypatch.context() as patch:
            patch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
            cluster.scale(2)
            until(lambda: "sbatch refused the job: sbatch: error: too many" in caplog.text)
            until(lambda: len(cluster.plan) == 1)
        cluster.scale(2)
        client.wait_for_workers(2, timeout=120)


def test_a_slurm_that_does_not_answer_at_the_end_is_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    client, cluster = start(num_workers=1)
    [number] = queue()
    for name in ("scancel", "squeue"):
        (tmp_path / name).write_text("#!/bin/bash\necho no controller >&2; exit 1\n")
        (tmp_path / name).chmod(0o755)
    client.close()
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        cluster.close()
    assert f"did not confirm that jobs ended; run: scancel {number}" in caplog.text
    until(lambda: queue() == {})  # its workers have lost their scheduler


def test_an_idle_cluster_ends_by_itself(shared: Path) -> None:
    client, cluster = start(num_workers=1, idle_timeout=10)
    until(lambda: queue() == {})
    until(lambda: is_empty(shared))
    assert cluster.status.name == "closed"
    client.close()


def test_the_output_of_jobs_is_in_log_folder(tmp_path: Path) -> None:
    folder = tmp_path / "logs of 100%"
    client, cluster = start(num_workers=1, engine_options={"log_folder": str(folder)})
    with cluster, client:
        [number] = queue()
        assert "Start worker at" in "".join(cluster.get_logs().values())
    [file] = folder.iterdir()
    assert file.name == f"{cluster.name}-{number}.log"
    assert "Start Nanny" in file.read_text()


@pytest.fixture
def network(service: Slot) -> Iterator[tuple[str, str]]:
    """An interface of this machine, and its address; nothing leaves the machine."""
    name, address = interface_of(service), f"10.76.{service.number}.1"
    for words in (f"link add {name} type bridge", f"addr add {address}/24 dev {name}"):
        subprocess.run(["ip", *words.split()], check=True)
    subprocess.run(["ip", "link", "set", name, "up"], check=True)
    yield name, address
    subprocess.run(["ip", "link", "del", name], check=True)


def listening(pid: int) -> set[str]:
    connections = psutil.Process(pid).net_connections("inet")
    return {one.laddr.ip for one in connections if one.status == psutil.CONN_LISTEN}


def test_the_cluster_refuses_clients_without_its_key(
    network: tuple[str, str], shared: Path
) -> None:
    interface, host = network
    client, cluster = start(num_workers=1, engine_options={"interface": interface})
    with cluster, client:
        assert client.submit(sum, [1, 2]).result() == 3
        address = cluster.scheduler_address
        assert address.startswith(f"tls://{host}:")
        assert listening(os.getpid()) == {host, "127.0.0.1"}
        assert cluster.dashboard_link.startswith("http://127.0.0.1:")
        [worker] = client.run(os.getpid).values()
        [nanny] = client.run(os.getppid).values()
        # The pages of a worker are on loopback, what is on the network has TLS.
        assert listening(worker) | listening(nanny) == {host, "127.0.0.1"}
        [served] = client.scheduler_info(n_workers=-1)["workers"]
        for found in (address, served):
            for security in (None, Security.temporary()):
                given = {"security": security} if security else {}
                place = found if security else found.replace("tls:", "tcp:")
                with pytest.raises((OSError, TypeError)):
                    Client(place, timeout=2, **given)
        [number] = queue()
        script = subprocess.run(
            ["scontrol", "write", "batch_script", number, "-"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        keys = [*shared.rglob("*.pem")]
        assert {file.name for file in keys} == {"ca.pem", "cert.pem", "key.pem"}
        assert {file.stat().st_mode & 0o777 for file in keys} == {0o600}
        assert {file.parent.stat().st_mode & 0o777 for file in keys} == {0o700}
        assert "PRIVATE" not in script


DASK_CUDA = """
import click
from distributed.cli.dask_worker import main

cuda = click.Group("cuda", commands={"worker": main})
"""


def test_a_job_gets_a_gpu(tmp_path: Path) -> None:
    """The GPU is a dummy file, and `dask cuda worker` runs `dask worker`."""
    (tmp_path / "in_place_of_dask_cuda.py").write_text(DASK_CUDA)
    package = tmp_path / "in_place_of_dask_cuda-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Name: in-place-of-dask-cuda\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[dask_cli]\ncuda = in_place_of_dask_cuda:cuda\n")
    options = {"prologue": [f"export PYTHONPATH={tmp_path}:$PYTHONPATH"]}
    client, cluster = start(num_workers=1, ngpus=1, engine_options=options)
    with cluster, client:
        seen = client.run(lambda: os.environ["CUDA_VISIBLE_DEVICES"])
        assert list(seen.values()) == ["0"]
