"""Clusters, supervisors and pods that version 0.1.0 has left running are found by this version."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.config
import pytest
from release import Release, contains, digest, record_folder, shared_record_folder, started
from typer.testing import CliRunner

import hyperplane
from hyperplane.cli import app
from hyperplane.clusters.job_dashboards import read_dashboards
from hyperplane.jobs import JobHandle, Pipeline, Resources, Step, submit
from hyperplane.jobs.execution.attempt_process import AttemptCommand
from hyperplane.jobs.runners.registry import create_runner
from hyperplane.jobs.submission.submission_snapshot import load_snapshot
from scripts.compat.fixtures.relocation import this_machine, this_system

pytestmark = pytest.mark.process

ENGINES = ("local", "ssh", "slurm", "gateway", "cuda")
TICKS = os.sysconf("SC_CLK_TCK")


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return Release("0.1.0", tmp_path_factory.mktemp("released") / "release")


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary directory that only this user can write to."""
    folder = tmp_path / "tmp"
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def owner() -> Iterator[subprocess.Popen[bytes]]:
    """The process that has started a cluster."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def list_a_cluster(release: Release, folder: Path, engine: str, pid: int) -> dict[str, Any]:
    """Put a record of 0.1.0 into its folder, with the scratch folder of the cluster."""
    file = release.place / "clusters" / f"of-{engine}.json"
    scratch = folder / f"of-{engine}"
    scratch.mkdir(mode=0o700)
    (scratch / "spilled").touch()
    times = {"started": int(started(pid)) / TICKS, "scratch": str(scratch), "pid": pid}
    record = {**json.loads(file.read_text()), **times}
    (folder / file.name).write_text(json.dumps(record))
    return record


def listed() -> list[dict[str, Any]]:
    """Return the clusters that ``hyperplane cluster list`` shows."""
    done = CliRunner().invoke(app, ["cluster", "list", "--json"])
    assert done.exit_code == 0, done.output
    return list(json.loads(done.stdout))


def test_clusters_of_each_engine_are_listed(
    release: Release, temporary: Path, owner: subprocess.Popen[bytes]
) -> None:
    folder = record_folder(temporary)
    records = {f"of-{one}": list_a_cluster(release, folder, one, owner.pid) for one in ENGINES}
    found = {record["name"]: record for record in listed()}
    assert found.keys() == records.keys()
    for name, record in records.items():
        secret = record.pop("security")
        assert len(secret) == (3 if record["engine"] in ("ssh", "slurm") else 0)
        assert contains(found[name], record) == []


def test_clusters_are_found_where_users_share_a_temporary_directory(
    release: Release,
    tmp_path: Path,
    temporary: Path,
    owner: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    temporary.chmod(0o1777)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = shared_record_folder(tmp_path / "state")
    list_a_cluster(release, folder, "local", owner.pid)
    assert [record["name"] for record in listed()] == ["of-local"]


def test_a_cluster_whose_process_is_gone_is_removed(
    release: Release, temporary: Path, owner: subprocess.Popen[bytes]
) -> None:
    folder = record_folder(temporary)
    dead = list_a_cluster(release, folder, "local", owner.pid)
    owner.kill()
    owner.wait()
    assert listed() == []
    assert not folder.exists()
    assert not Path(dead["scratch"]).exists()


@pytest.mark.cluster
def test_a_running_cluster_is_attached_to(release: Release, temporary: Path) -> None:
    options = {"name": "of-local", "nprocs": 1, "nthreads": 1, "ram_gb_per_proc": 0.5}
    with dask.config.set({"hyperplane.engines.local.preload": []}):
        owner, cluster = hyperplane.initialize_cluster(1, engine="local", **options)
    try:
        [file] = temporary.rglob("of-local.json")
        then = json.loads((release.place / "clusters" / "of-local.json").read_text())
        addresses = ("scheduler", "dashboard", "pid", "started", "scratch")
        now = json.loads(file.read_text())
        file.write_text(json.dumps({**then, **{name: now[name] for name in addresses}}))
        client, handle = hyperplane.get_cluster("of-local", "local")
        assert client.submit(sum, [1, 2]).result(60) == 3
        assert dask.config.get("dataframe.shuffle.method") == "tasks"  # of the record
        client.close()
        handle.close()
        assert listed() == []
    finally:
        owner.close()
        cluster.close()


def test_the_dashboard_of_a_step_is_found(
    release: Release, tmp_path: Path, owner: subprocess.Popen[bytes]
) -> None:
    [file] = (release.place / "dashboards" / "clusters").iterdir()
    fields = json.loads(file.read_text())
    assert read_dashboards(release.place / "dashboards") == []  # its process is gone
    (tmp_path / "clusters").mkdir()
    now = {**fields, "pid": owner.pid, "started": started(owner.pid)}
    (tmp_path / "clusters" / file.name).write_text(json.dumps(now))
    assert read_dashboards(tmp_path) == [fields["dashboard"]]


def test_attempts_that_are_pods_are_read(release: Release) -> None:
    then = release.expected("jobs")["pods"]
    with dask.config.set({"hyperplane.jobs.home": str(release.place / "pods")}):
        handle = JobHandle(then["id"])
        job, attempts = handle.job, handle.attempts
        assert handle.logs(lines=1).strip() == "counted"
    before = then.pop("attempts")
    del then["logs"]
    assert contains(job.as_dict(), then) == []
    for attempt, one in zip(attempts, before, strict=True):
        assert contains(vars(attempt), one) == []
    kept = load_snapshot(job)
    assert kept.runner["image"] == "registry.example/flights:1"
    assert (kept.runner["namespace"], kept.runner["environ"]) == ("lab", ["TZ=UTC"])
    assert kept.notes == ("a parameter that no step reads",)
    runner = create_runner("kubernetes", {}, kept.runner)
    for attempt, code in zip(attempts, (-9, 0), strict=True):
        traces = job.folder_path / Path(attempt.log).with_suffix("")
        process = runner.reattach(AttemptCommand((), {}, "", traces))
        assert process.exit_code() == code
        assert process.end_time() == traces.with_suffix(".exit").stat().st_mtime


def test_the_sizes_of_pools_at_submission_are_read(release: Release) -> None:
    with dask.config.set({"hyperplane.jobs.home": str(release.place / "jobs")}):
        job = JobHandle(release.expected("jobs")["succeeded"]["id"]).job
    pools = {"16_16": Resources(cores=15.0, ram_gb=12.0)}
    with dask.config.set({"hyperplane.pools.pool_16_16.allocatable_cores": 8.0}):
        assert load_snapshot(job).pools == pools


class OldSupervisor(threading.Thread):
    """The lock and the socket of a running supervisor of 0.1.0.

    Parameters
    ----------
    home : Path
        The folder of jobs.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(daemon=True)
        store = f"sqlite:///{home / 'jobs.db'}"
        name = digest(f"{this_machine()} {store} {this_system()}", 8)
        self.heard: list[dict[str, Any]] = []
        self.lock = home / f"supervisor-{name}.lock"
        self._socket = socket.socket(socket.AF_UNIX)
        folder = os.open(home, os.O_RDONLY)  # the path of a socket has to be short
        self._socket.bind(f"/proc/self/fd/{folder}/supervisor-{name}.sock")
        os.close(folder)
        self._socket.listen()

    def __enter__(self) -> OldSupervisor:
        self._held = self.lock.open("w")
        fcntl.flock(self._held, fcntl.LOCK_EX)
        self._held.write(str(os.getpid()))
        self._held.flush()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self.join(60)
        self._socket.close()
        self._held.close()

    def run(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as message:
                self.heard.append(json.loads(message.read()))
                connection.sendall(b"heard")


def test_a_running_supervisor_of_0_1_0_finds_new_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "jobs"
    home.mkdir(mode=0o700)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TZ", "UTC")
    step = Step(name="only", kind="command", argv=("true",))
    with dask.config.set({"hyperplane.jobs.home": str(home)}), OldSupervisor(home) as supervisor:
        job = submit(Pipeline.from_steps("environment", [step]))
        assert job.status == "pending"
    messages = [message[job.id] for message in supervisor.heard if job.id in message]
    # A supervisor of 0.1.0 refuses other fields.
    assert [sorted(one) for one in messages] == [["environment"]]
    assert messages[0]["environment"]["TZ"] == "UTC"
    assert not list(home.glob("supervisor-*.log"))  # no other one was started
