"""Attach to a cluster that does not answer, or when the list of clusters cannot be read."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import dask.config
import psutil
import pytest
from distributed import Client, default_client
from scale import FULL
from subprograms import wait_until

import hyperplane
from hyperplane.clusters import records
from hyperplane.clusters.dask import attach
from hyperplane.clusters.dask import settings as dask_settings
from hyperplane.errors import SchedulerUnreachable
from hyperplane.guard import scheduler_watch

pytestmark = pytest.mark.usefixtures("few_imports")

INTERRUPTED = """
import os, sys, time
import hyperplane
client, cluster = hyperplane.start(hyperplane.plan_cluster(
    num_workers=1, nprocs=2, nthreads=1, ram_gb_per_proc=0.5, local_fit="exact", name="frozen"
))
kept = client.scatter([1, 2])
workers = client.run(os.getpid).values()
try:
    print(*workers, flush=True)  # the interrupt comes as soon as this is read
    time.sleep(600)
except KeyboardInterrupt:
    print("interrupted", flush=True)
time.sleep(1)
print(sum(client.gather(kept)), *client.run(os.getpid).values(), flush=True)
sys.stdin.readline()
client.close(); cluster.close()
"""


def start_owner() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.skipif(not FULL, reason="waits for a stopped owner: at full scale")
@pytest.mark.cluster
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="signals of Linux")
def test_an_interrupted_owner_keeps_its_workers_and_a_stopped_owner_is_an_error_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduler = dask.config.get("scheduler", default=None)
    program = start_owner()
    assert program.stdout is not None
    try:
        workers = program.stdout.readline().split()
        assert len(workers) == 2
        os.killpg(program.pid, signal.SIGINT)  # as a terminal and a notebook do
        assert program.stdout.readline() == "interrupted\n"
        total, *after = program.stdout.readline().split()
        assert total == "3", "workers and their data are left"
        assert sorted(after) == sorted(workers)

        os.kill(program.pid, signal.SIGSTOP)
        advice = f"did not answer within 2 s.*kill -CONT {program.pid}"
        with monkeypatch.context() as patch:
            patch.setattr(attach, "ANSWER_SECONDS", 2.0)
            with pytest.raises(hyperplane.EngineError, match=advice):
                hyperplane.get_cluster("frozen")
        assert dask_settings._requested == {}
        os.kill(program.pid, signal.SIGCONT)
        client, cluster = hyperplane.get_cluster("frozen")
        with cluster, client:
            assert client.submit(sum, [1, 2]).result(timeout=120) == 3
        program.communicate("\n", timeout=240)
    finally:
        if program.poll() is None:
            os.kill(program.pid, signal.SIGCONT)
            for child in psutil.Process(program.pid).children(recursive=True):
                child.kill()
            program.kill()
            program.communicate()
    assert program.returncode == 0
    assert dask.config.get("scheduler", default=None) == scheduler


def test_a_list_of_clusters_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable() -> list[Path]:
        raise PermissionError(13, "Permission denied", "/tmp/hyperplane-1000")

    monkeypatch.setattr(records, "record_folders", unreadable)
    with pytest.raises(hyperplane.EngineError, match="the list of clusters cannot be read"):
        hyperplane.get_cluster("any")


def listed(name: str, engine: str) -> None:
    """Write a record for a cluster that does not exist."""
    record = records.ClusterRecord(
        name=name,
        engine=engine,
        scheduler="tcp://127.0.0.1:1",
        dashboard="",
        pid=os.getpid(),
        started=records.own_start_time(),
        workers=1,
        threads=1,
        ram_gb=1.0,
    )
    records.write(record)


def test_get_cluster_finds_the_engine_in_the_record(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[tuple[str, str]] = []

    def found(self: object, name: str, settings: object) -> None:
        asked.append((type(self).__name__, name))
        raise hyperplane.EngineError("ssh", "reached")

    monkeypatch.setattr("hyperplane.clusters.dask.ssh.engine.SshEngine.connect", found)
    listed("of-ssh", "ssh")
    listed("of-slurm", "slurm")
    try:
        with pytest.raises(hyperplane.EngineError, match="reached"):
            hyperplane.get_cluster("of-ssh")
        assert asked == [("SshEngine", "of-ssh")]
        with pytest.raises(hyperplane.EngineError) as caught:
            hyperplane.get_cluster("neither", "auto")
        assert "this machine runs no cluster 'neither'" in str(caught.value)
        assert "of-ssh (ssh)" in str(caught.value)
        assert "of-slurm (slurm)" in str(caught.value)
        assert "name its engine: get_cluster('neither', \"kubernetes\")" in str(caught.value)
        with pytest.raises(
            hyperplane.EngineError, match=r"no cluster 'of-ssh' of this engine; .*of-ssh \(ssh\)"
        ):
            hyperplane.get_cluster("of-ssh", "local")
    finally:
        for name in ("of-ssh", "of-slurm"):
            records.remove(name, str(tmp_path / name))


@pytest.mark.slow
@pytest.mark.cluster
def test_a_scheduler_that_registers_no_client_is_an_error_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def never(*args: object, **options: object) -> None:
        await asyncio.sleep(600)

    plan = hyperplane.plan_cluster(
        num_workers=1, nprocs=1, nthreads=1, ram_gb_per_proc=0.5, local_fit="exact", name="silent"
    )
    client, cluster = hyperplane.start(plan)
    with cluster, client:
        monkeypatch.setattr(attach, "ANSWER_SECONDS", 1.0)
        monkeypatch.setitem(cluster.scheduler.handlers, "register-client", never)
        with pytest.raises(hyperplane.EngineError, match="'silent' did not answer within 1 s"):
            hyperplane.get_cluster("silent")
        assert default_client() is client
        assert client.submit(sum, [1, 2]).result(60) == 3


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="signals of Linux")
def test_calls_to_an_owner_that_is_stopped_later_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_watch, "GRACE_SECONDS", 1.0)
    program = start_owner()
    assert program.stdout is not None
    try:
        assert len(program.stdout.readline().split()) == 2
        threads = set(threading.enumerate())
        with dask.config.set({"hyperplane.engines.local.stall_timeout": "2s"}):
            client, cluster = hyperplane.get_cluster("frozen")
        future = client.submit(time.sleep, 1000, pure=False)
        os.kill(program.pid, signal.SIGSTOP)
        with pytest.raises(SchedulerUnreachable, match="process is stopped"):
            future.result(timeout=120)
        monkeypatch.setattr(scheduler_watch, "GRACE_SECONDS", 300.0)
        os.kill(program.pid, signal.SIGCONT)
        # Until the scheduler has answered, new calls and futures end with the same error.
        wait_until(lambda: _answers(client), 120)
        assert client.submit(sum, [1, 2], pure=False).result(timeout=120) == 3
        client.close()
        cluster.close()
        left = set(threading.enumerate()) - threads
        assert not [thread for thread in left if "IO loop" in thread.name]
    finally:
        if program.poll() is None:
            os.killpg(program.pid, signal.SIGKILL)
        program.communicate()


def _answers(client: Client) -> bool:
    try:
        client.run_on_scheduler(int)
    except SchedulerUnreachable:
        return False
    return True
