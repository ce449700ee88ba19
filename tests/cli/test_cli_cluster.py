"""``hyperplane cluster``: its output, and how a cluster in the foreground ends."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from dask_notices import without_notices
from foreground_clusters import START, ended_well
from scale import FULL
from terminal import Begin, Run

import hyperplane
from hyperplane.cli import cluster as cli_cluster
from hyperplane.clusters import cluster_listing, records
from hyperplane.clusters.cluster_listing import ClusterListing
from hyperplane.clusters.listed_cluster import ListedCluster
from hyperplane.errors import EngineError


def test_list_and_stop_without_clusters(run: Run) -> None:
    assert run("cluster", "list").out == "no cluster is running on this machine\n"
    assert run("cluster", "list", "--json").json == []
    assert run("cluster", "stop", "--all").out == "no cluster of yours is running\n"
    assert run("cluster", "stop", "--all", "--json").json == {"stopped": []}


def test_stopping_an_unknown_cluster_is_an_invalid_request(run: Run) -> None:
    answer = run("cluster", "stop", "absent", "--json")
    assert answer.code == 2
    assert "nothing was stopped" in answer.err
    (fault,) = answer.json["faults"]
    assert fault["where"] == "name"
    assert fault["asked"] == "'absent'"
    assert "no cluster is running" in fault["advice"]


@pytest.mark.parametrize("arguments", [[], ["some", "--all"]])
def test_stop_requires_a_name_or_all(arguments: list[str], run: Run) -> None:
    answer = run("cluster", "stop", *arguments)
    assert answer.code == 2
    assert "the name of a cluster or --all" in answer.err


def test_start_refuses_with_all_faults_and_starts_nothing(run: Run, place: Path) -> None:
    answer = run("cluster", "start", "--nprocs=0", "--pool=16_17", "--idle-timeout=soon")
    assert answer.code == 2
    for fault in ("nprocs = 0", "pool = '16_17'", "idle_timeout = 'soon'"):
        assert fault in answer.err
    assert answer.out == ""
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("command", ["list", "stop"])
def test_an_unreadable_list_of_clusters_is_an_error_without_traceback(
    command: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable() -> list[Path]:
        raise PermissionError(13, "Permission denied", "/tmp/hyperplane-1000")

    monkeypatch.setattr(records, "record_folders", unreadable)
    answer = run("cluster", command, *["--all"] * (command == "stop"))
    assert answer.code == 1
    assert "the list of clusters cannot be read" in answer.err
    assert "/tmp/hyperplane-1000" in answer.err


def test_a_folder_that_others_can_write_to_is_ignored(run: Run) -> None:
    records.private_folder().parent.chmod(0o777)
    assert run("cluster", "list").code == 0


def test_a_cluster_that_does_not_end_is_a_failure(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(name: str, engine: str) -> None:
        raise OSError("no answer from it")

    monkeypatch.setattr(hyperplane, "get_cluster", unreachable)
    for name in ("one", "two"):
        records.write(
            records.ClusterRecord(
                name=name,
                engine="local",
                scheduler="tcp://127.0.0.1:1",
                dashboard="",
                pid=os.getpid(),
                started=records.own_start_time(),
                workers=1,
                threads=1,
                ram_gb=1.0,
            )
        )
    answer = run("cluster", "stop", "--all")
    assert answer.code == 1
    for name in ("one", "two"):
        assert f"{name} is still running, in process {os.getpid()}: no answer from it" in answer.err


class TestOtherPlatforms:
    """Clusters that only platforms know, and a platform that does not answer."""

    ELSEWHERE = ListedCluster("flights", "kubernetes", "namespace lab", "running", "2026-01-02")
    HANGING = ListedCluster("hanging", "slurm", "Slurm", "1 RUNNING", jobs=("7",))

    @pytest.fixture(autouse=True)
    def platforms(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """Names of the clusters that were stopped."""
        stopped: list[str] = []

        def stop_listed(cluster: ListedCluster) -> None:
            if cluster is self.HANGING:
                raise EngineError("slurm", "scancel does not answer")
            stopped.append(cluster.name)

        found = ClusterListing((self.ELSEWHERE, self.HANGING), ("gateway: no answer within 7 s",))
        monkeypatch.setattr(cluster_listing, "list_clusters", lambda running: found)
        monkeypatch.setattr(cluster_listing, "stop_listed", stop_listed)
        return stopped

    def test_list(self, run: Run) -> None:
        answer = run("cluster", "list")
        assert answer.code == 0
        assert answer.err == "warning: gateway: no answer within 7 s\n"
        rows = [line.split(maxsplit=1) for line in answer.out.splitlines() if line]
        assert ["cluster", "flights"] in rows
        assert ["where", "namespace lab"] in rows
        assert ["status", "1 RUNNING"] in rows
        listed = run("cluster", "list", "--json").json
        assert [(item["name"], item["where"]) for item in listed] == [
            ("flights", "namespace lab"),
            ("hanging", "Slurm"),
        ]

    def test_stop_by_name(self, run: Run, platforms: list[str]) -> None:
        assert run("cluster", "stop", "flights").out == "flights is closed\n"
        assert platforms == ["flights"]
        answer = run("cluster", "stop", "flight")
        assert answer.code == 2
        assert "did you mean flights?" in answer.err

    def test_stop_all_continues_after_a_failure(self, run: Run, platforms: list[str]) -> None:
        answer = run("cluster", "stop", "--all")
        assert answer.code == 1
        assert answer.out == "flights is closed\n"
        assert "hanging may still be running, Slurm: engine slurm: scancel does not" in answer.err
        assert platforms == ["flights"]

    @pytest.mark.parametrize("arguments", [(), ("--json",)])
    def test_stop_all_fails_if_a_platform_does_not_answer(
        self, run: Run, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
    ) -> None:
        found = ClusterListing((), ("gateway: no answer within 7 s",))
        monkeypatch.setattr(cluster_listing, "list_clusters", lambda running: found)
        answer = run("cluster", "stop", "--all", *arguments)
        assert answer.code == 1
        message = "clusters may still be running: gateway: no answer within 7 s"
        assert message in answer.err + answer.out
        assert "no cluster" not in answer.out

    def test_stop_all_leaves_what_may_belong_to_another_user(
        self, run: Run, platforms: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        theirs = replace(self.ELSEWHERE, name="theirs", shared_owner="jovyan")
        found = ClusterListing((self.ELSEWHERE, theirs), ())
        monkeypatch.setattr(cluster_listing, "list_clusters", lambda running: found)
        answer = run("cluster", "stop", "--all")
        assert (answer.code, answer.out, platforms) == (0, "flights is closed\n", ["flights"])
        assert "theirs is not stopped, namespace lab: other users may have the name" in answer.err
        assert run("cluster", "stop", "theirs").out == "theirs is closed\n"
        assert platforms == ["flights", "theirs"]

    @pytest.mark.parametrize(("arguments", "stops"), [((), 0), (("--yes",), 1)])
    def test_stop_all_asks_at_a_terminal(
        self,
        run: Run,
        platforms: list[str],
        monkeypatch: pytest.MonkeyPatch,
        arguments: tuple[str, ...],
        stops: int,
    ) -> None:
        asked: list[str] = []

        def confirm(question: str, abort: bool, err: bool) -> None:
            asked.append(question)
            raise typer.Abort

        monkeypatch.setattr(cli_cluster, "is_terminal", lambda: True)
        monkeypatch.setattr(typer, "confirm", confirm)
        answer = run("cluster", "stop", "--all", *arguments)
        assert answer.code == 1
        assert asked == ([] if arguments else ["Stop 2 clusters?"])
        assert len(platforms) == stops


@pytest.mark.slow
@pytest.mark.cluster
def test_another_process_lists_uses_and_stops_the_cluster(
    begin: Begin, run: Run, place: Path
) -> None:
    held = begin(*START, "--name=held", "--memory-pause=0.9", "--json")
    started = json.loads(held.read_until("}"))
    assert len(held.family()) >= 3
    assert started["name"] == "held"
    assert (started["workers"], started["threads"], started["ram_gb"]) == (2, 2, 1.0)

    # It runs in a separate process: this one sees what another terminal would see.
    (listed,) = run("cluster", "list", "--json").json
    assert listed["pid"] == held.process.pid
    for key in ("name", "engine", "scheduler", "dashboard", "workers", "threads", "ram_gb"):
        assert listed[key] == started[key]
    for shown in ("held", started["scheduler"], started["dashboard"], str(held.process.pid)):
        assert shown in run("cluster", "list").out.split()

    unknown = run("cluster", "stop", "helt")
    assert unknown.code == 2
    assert "a running cluster: held; did you mean held?" in unknown.err

    second = run(*START, "--name=held", "--json")
    assert second.code == 1
    assert "a cluster named 'held' is already running" in second.json["error"]
    assert "Traceback" not in second.err
    assert [record.name for record in records.read_all()] == ["held"]

    client, cluster = hyperplane.get_cluster("held")
    try:
        assert client.submit(sum, [1, 2, 3]).result() == 6
        pauses = client.run(lambda dask_worker: dask_worker.memory_manager.memory_pause_fraction)
        assert list(pauses.values()) == [0.9, 0.9]
        stopped = run("cluster", "stop", "held")
    finally:
        client.close()
        cluster.close()
    assert (stopped.code, stopped.out, stopped.err) == (0, "held is closed\n", "")
    assert not (place / "held").exists()
    ended_well(held, place)
    assert run("cluster", "list", "--json").json == []


@pytest.mark.skipif(not FULL, reason="tests of clusters end idle ones, too: at full scale")
@pytest.mark.cluster
def test_the_idle_timeout_ends_the_cluster(begin: Begin, place: Path) -> None:
    for seconds in (1, 10, 60):  # until it is longer than what a busy machine takes to start it
        held = begin(*START, f"--idle-timeout={seconds}s", "--json")
        assert held.process.stdout is not None
        if held.process.stdout.readline():
            break
        held.end()
    held.read_until("}")
    ended_well(held, place)


@pytest.mark.cluster
def test_the_output_names_the_addresses_and_the_stop_command(begin: Begin, place: Path) -> None:
    held = begin(*START)
    shown = held.read_until("hyperplane cluster stop ")
    (record,) = records.read_all()
    rows = dict(line.split(maxsplit=1) for line in shown.splitlines() if line)
    assert rows["cluster"] == record.name
    assert rows["scheduler"] == record.scheduler
    assert rows["dashboard"] == record.dashboard
    assert rows["workers"] == "2 worker processes, 2 threads, 1 GB"
    assert shown.endswith(f"hyperplane cluster stop {record.name}\n")
    assert max(map(len, shown.splitlines())) <= 80
    held.signal(signal.SIGINT, whole_group=True)
    answer = held.end()
    assert (answer.code, without_notices(answer.err)) == (0, "")
    assert answer.out == f"{record.name} is closed\n"


@pytest.mark.skipif(not FULL, reason="other tests stop one cluster: at full scale")
@pytest.mark.cluster
def test_stop_all_ends_all_clusters(run: Run) -> None:
    started = [
        hyperplane.start(
            hyperplane.plan_cluster(
                num_workers=1, nprocs=1, ram_gb_per_proc=0.5, local_fit="exact", name=name
            )
        )
        for name in ("one", "two")
    ]
    assert sorted(run("cluster", "stop", "--all", "--json").json["stopped"]) == ["one", "two"]
    for client, cluster in started:
        assert cluster.status.name == "closed"
        client.close()
        cluster.close()


def test_a_start_that_fails_by_itself_is_a_failure(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(plan: hyperplane.ClusterPlan) -> None:
        assert plan.idle_timeout == 5400
        raise EngineError("local", "no worker came up")

    monkeypatch.setattr(hyperplane, "start", fail)
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    answer = run("cluster", "start", "--json", "--idle-timeout=90min")
    assert answer.code == 1
    assert answer.json["error"] == "engine local: no worker came up"
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
