"""The list of running clusters in the pane, with a manager that does what that of the pane does."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import uuid
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask.config
import pytest

import hyperplane
from hyperplane import lab
from hyperplane.clusters.dask.attach import AdaptiveLimits
from hyperplane.clusters.listed_cluster import ListedCluster
from hyperplane.clusters.records import ClusterRecord
from hyperplane.lab import factory, other_clusters, pane
from hyperplane.lab.other_clusters import Listing, OtherCluster, make_key
from hyperplane.lab.pane import ClusterPane, make_cluster_id


def record(name: str, port: int, engine: str = "local") -> ClusterRecord:
    address = f"tcp://127.0.0.1:{port}"
    return ClusterRecord(name, engine, address, "", 1, 1.0, 1, 1, 1.0)


class Handle:
    """What ``attach_asynchronously`` returns."""

    def __init__(self, address: str, limits: AdaptiveLimits | None) -> None:
        self.scheduler_address = address
        self.closed = False
        self._limits = limits

    async def read_limits(self) -> AdaptiveLimits | None:
        return self._limits

    async def close_handle(self) -> None:
        self.closed = True


class Manager:
    """The manager of the pane: it awaits the factory, and lists what that has returned."""

    def __init__(self) -> None:
        self.clusters: dict[str, Any] = {}
        self.given: list[dict[str, Any]] = []
        self.fails = False

    def list_clusters(self) -> list[dict[str, Any]]:
        return [
            {"id": key, "scheduler_address": each.scheduler_address}
            for key, each in self.clusters.items()
        ]

    async def start_cluster(self, cluster_id: str, configuration: dict[str, Any]) -> None:
        self.given.append(configuration)
        cluster = await lab.start_cluster(treads="of the setting", asynchronous=True)
        if self.fails:
            raise ValueError("not taken")
        self.clusters[cluster_id] = cluster

    async def close_cluster(self, cluster_id: str) -> None:
        if isinstance(self.clusters[cluster_id], OtherCluster):
            await self.clusters[cluster_id].close()
        self.clusters.pop(cluster_id)


class OtherHandle:
    """The object of a cluster of a gateway or on Kubernetes."""

    dashboard_link = "http://127.0.0.1:8787/status"

    def __init__(self, name: str) -> None:
        self.name, self.status = name, "running"
        self.scheduler_info = {"workers": {"0": {"nthreads": 2, "memory_limit": 10**9}}}
        self.calls: list[Any] = []

    def scale(self, n: int) -> None:
        self.calls.append(n)
        self.scheduler_info["workers"]["1"] = {"nthreads": 2, "memory_limit": 10**9}

    def adapt(self, minimum: int, maximum: int | None) -> None:
        self.calls.append((minimum, maximum))

    def close(self) -> None:
        self.status = "closed"

    def detach(self) -> None:
        self.status = "detached"


class Case(SimpleNamespace):
    manager: Manager
    pane: ClusterPane
    running: list[ClusterRecord]
    limits: AdaptiveLimits | None
    silent: set[str]
    handles: list[Handle]
    elsewhere: list[ListedCluster]
    warnings: tuple[str, ...]
    attached: list[OtherHandle]
    refused: set[str]

    def names(self) -> list[str]:
        ports = {each.scheduler_address for each in self.manager.clusters.values()}
        return [each.rpartition(":")[2] for each in sorted(ports)]

    async def update(self) -> None:
        await self.pane.update()
        await asyncio.gather(*self.pane._tasks)


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch) -> Case:
    log = logging.getLogger("tests.lab")
    manager = Manager()
    made = Case(manager=manager, running=[], limits=None, silent=set(), handles=[],
                pane=ClusterPane(manager, log))  # fmt: skip

    async def attach(record: ClusterRecord) -> Handle:
        if record.name in made.silent:
            raise hyperplane.EngineError(record.engine, f"{record.name} did not answer")
        made.handles.append(Handle(record.scheduler, made.limits))
        return made.handles[-1]

    monkeypatch.setattr(pane, "attach_asynchronously", attach)
    monkeypatch.setattr(pane, "read_records", lambda: list(made.running))
    made.elsewhere, made.warnings = [], ()

    def list_elsewhere() -> Listing:
        return Listing({make_key(each): each for each in made.elsewhere}, made.warnings)

    monkeypatch.setattr(pane, "list_elsewhere", list_elsewhere)
    # The clusters of gateways and of Kubernetes.
    made.attached, made.refused = [], set()

    def attach_to_other(cluster: Any) -> OtherHandle:
        if cluster.name in made.refused:
            raise hyperplane.EngineError(cluster.engine, f"{cluster.name} did not answer")
        made.attached.append(OtherHandle(cluster.name))
        return made.attached[-1]

    monkeypatch.setattr(other_clusters, "_attach", attach_to_other)
    monkeypatch.setattr(factory, "owners", {})
    return made


def test_running_clusters_are_added_once_and_ended_ones_removed(case: Case) -> None:
    async def use() -> None:
        case.running = [record("a", 1), record("b", 2, "slurm")]
        await case.update()
        await case.update()
        assert case.names() == ["1", "2"]
        assert len(case.handles) == 2
        assert case.manager.given[0] == {"name": "a", "workers": None, "adapt": None}
        assert factory.LISTED.get() is None, "other tasks start new clusters"
        case.running = [record("b", 2, "slurm")]
        await case.update()
        assert case.names() == ["1", "2"], "the pane may be closing it"
        await case.update()
        assert case.names() == ["2"]

    asyncio.run(use())


def test_clusters_of_others_stay_and_one_that_was_stopped_in_vain_returns(case: Case) -> None:
    async def use() -> None:
        case.manager.clusters["other"] = Handle("tls://10.0.0.1:8786", None)
        case.running = [record("a", 1)]
        for _ in range(3):
            await case.update()
        assert len(case.manager.clusters) == 2
        # Its process did not answer, so the manager has removed it although it runs.
        del case.manager.clusters[make_cluster_id(case.running[0])]
        await case.update()
        assert len(case.manager.clusters) == 2

    asyncio.run(use())


def test_a_cluster_that_is_stopped_while_records_are_read_is_not_added_again(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use() -> None:
        case.running = [record("a", 1)]
        await case.update()

        def read() -> list[ClusterRecord]:
            case.manager.clusters.clear()
            return case.running

        monkeypatch.setattr(pane, "read_records", read)
        await case.update()
        assert len(case.handles) == 1

    asyncio.run(use())


def test_the_pane_adds_its_new_clusters_itself_unless_that_fails(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use() -> None:
        case.running = [record("new", 1)]
        monkeypatch.setattr(factory, "starting", {"new"})
        await case.update()
        await case.update()
        assert case.handles == []
        factory.starting.clear()
        owner = SimpleNamespace(status=SimpleNamespace(name="running"))
        factory.owners["tcp://127.0.0.1:1"] = owner
        await case.update()
        assert case.handles == [], "it may be added at this moment"
        await case.update()
        assert case.names() == ["1"]
        owner.status.name = "closed"
        case.running = []
        await case.update()
        await case.update()
        assert case.names() == []
        assert factory.owners == {}

    asyncio.run(use())


@pytest.mark.parametrize(
    ("limits", "shown"),
    [((1, 3), {"minimum": 1, "maximum": 3}), ((0, math.inf), None)],
)
def test_the_limits_of_an_adaptive_cluster_are_shown(
    case: Case, limits: tuple[int, float], shown: Any
) -> None:
    case.limits, case.running = AdaptiveLimits(*limits), [record("a", 1)]
    asyncio.run(case.update())
    assert case.manager.given == [{"name": "a", "workers": None, "adapt": shown}]


def elsewhere(name: str, engine: str) -> ListedCluster:
    return ListedCluster(name, engine, "elsewhere", "running")


def test_clusters_of_every_engine_are_listed_with_their_workers(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use() -> None:
        ray = replace(record("r", 6379, "ray:local"), workers=3, threads=7, ram_gb=3.0)
        case.running = [ray, record("s", 7077, "spark:ssh"), record("g", 80, "gateway")]
        case.elsewhere = [elsewhere("k", "kubernetes"), elsewhere("q", "slurm")]
        case.warnings = ("ray:kubernetes: no answer",)
        for _ in range(3):
            await case.update()
        found = {each.name: each for each in case.manager.clusters.values()}
        assert sorted(found) == ["g", "k", "q", "r", "s"]
        assert case.handles == [], "Dask's class is not for them"
        assert [each.name for each in case.attached] == ["g", "k"]
        threads = [each["nthreads"] for each in found["r"].scheduler_info["workers"].values()]
        memory = {each["memory_limit"] for each in found["r"].scheduler_info["workers"].values()}
        assert (threads, memory) == ([3, 2, 2], {10**9})
        assert found["g"].dashboard_link == found["k"].dashboard_link != ""
        assert found["q"].scheduler_info == {"workers": {}}
        # A worker node of Ray is lost.
        case.running[0] = replace(ray, workers=2, threads=4, ram_gb=2.0)
        await case.update()
        assert len(found["r"].scheduler_info["workers"]) == 2
        # All end elsewhere; nothing is stopped by the pane.
        case.running, case.elsewhere = [], []
        monkeypatch.setattr(pane, "LISTING_SECONDS", 0)
        for _ in range(4):
            await case.update()
        assert case.manager.clusters == {}
        assert [each.status for each in case.attached] == ["detached", "detached"]
        assert case.pane._others == {}

    asyncio.run(use())


def test_a_cluster_that_was_listed_while_it_started_is_listed_once(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use() -> None:
        case.elsewhere = [elsewhere("0123", "gateway")]
        await case.update()
        await case.update()
        assert [each.name for each in case.attached] == ["0123"]
        case.running = [
            replace(record("flights", 80, "gateway"), scheduler="gateway://127.0.0.1:80/0123")
        ]
        for _ in range(3):
            await case.update()
        assert [each.name for each in case.manager.clusters.values()] == ["flights"]
        assert case.attached[0].status == "detached", "it runs on"

    asyncio.run(use())


def test_other_clusters_are_scaled_where_the_engine_can_and_stopped(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[str] = []

    def stop(cluster: ListedCluster) -> str:
        stopped.append(cluster.name)
        return "Slurm does not answer" if cluster.name == "refused" else ""

    monkeypatch.setattr(other_clusters.cluster_stop, "stop_cluster", stop)

    async def use() -> None:
        case.running = [record("r", 6379, "ray:local"), record("s", 7077, "spark:ssh")]
        names = ("q", "refused")
        case.elsewhere = [elsewhere("k", "kubernetes"), *(elsewhere(n, "slurm") for n in names)]
        await case.update()
        await case.update()
        found = {each.name: each for each in case.manager.clusters.values()}
        await found["k"].scale(2)
        assert found["k"].adapt(minimum=1, maximum=4) == (1, 4)
        assert found["k"].adapt(minimum=None, maximum=None) == (0, math.inf)
        await asyncio.gather(*found["k"]._requests)
        assert sorted(case.attached[0].calls, key=str) == [(0, None), (1, 4), 2]
        assert len(found["k"].scheduler_info["workers"]) == 2
        with pytest.raises(hyperplane.RequestError, match="n = -1"):
            await found["k"].scale(-1)
        for name, reason in (
            ("r", r"get_ray_cluster\(extra_workers=...\)"),
            ("s", "a cluster of Spark keeps its size"),
            ("q", "this machine has not started it"),
        ):
            with pytest.raises(
                hyperplane.EngineError, match=f"'{name}' cannot be scaled.*{reason}"
            ):
                await found[name].scale(2)
            with pytest.raises(hyperplane.EngineError, match=reason):
                found[name].adapt(minimum=0, maximum=2)
        for name in ("k", "q"):
            await case.manager.close_cluster(cluster_id(case, name))
        with pytest.raises(hyperplane.EngineError, match="refused may still be running: Slurm"):
            await case.manager.close_cluster(cluster_id(case, "refused"))
        assert case.attached[0].status == "closed"
        assert stopped == ["q", "refused"]
        await case.update()
        # The platforms were asked before they were stopped.
        assert sorted(each.name for each in case.manager.clusters.values()) == ["r", "refused", "s"]

    asyncio.run(use())


def cluster_id(case: Case, name: str) -> str:
    [found] = [key for key, each in case.manager.clusters.items() if each.name == name]
    return found


@pytest.mark.process
def test_a_cluster_of_ray_that_cannot_be_stopped_stays_and_says_why(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another program in place of Python, as no such cluster runs here.
    program = tmp_path / "python"
    program.write_text('#!/bin/sh\necho "$4 of $5 failed" >&2; exit 1\n')
    program.chmod(0o755)

    async def use() -> None:
        case.running = [record("r", 6379, "ray:local")]
        await case.update()
        await case.update()
        with pytest.raises(hyperplane.EngineError, match="stop of r failed"):
            await case.manager.close_cluster(cluster_id(case, "r"))
        assert len(case.manager.clusters) == 1
        program.write_text("#!/bin/sh\n")
        await case.manager.close_cluster(cluster_id(case, "r"))
        assert case.manager.clusters == {}

    with monkeypatch.context() as patch:
        patch.setattr(other_clusters.sys, "executable", str(program))
        asyncio.run(use())


def test_a_cluster_that_does_not_answer_is_listed_without_workers(
    case: Case, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use() -> None:
        case.elsewhere, case.refused = [elsewhere("k", "kubernetes")], {"k"}
        await case.update()
        await case.update()
        [other] = case.manager.clusters.values()
        assert isinstance(other, OtherCluster)
        assert other.scheduler_info == {"workers": {}}
        with pytest.raises(hyperplane.EngineError, match="it does not answer"):
            await other.scale(2)
        case.refused = set()
        monkeypatch.setattr(pane, "LISTING_SECONDS", 0)
        await case.update()
        await case.update()
        assert len(other.scheduler_info["workers"]) == 1

    with caplog.at_level(logging.INFO):
        asyncio.run(use())
    [line] = caplog.messages
    assert line == "cluster k is listed without workers: engine kubernetes: k did not answer"


@pytest.mark.parametrize(
    ("status", "is_ending"),
    [("running", False), ("closing", True), ("2 RUNNING, 1 COMPLETING", False),
     ("3 COMPLETING", True), ("pending", False), ("stopping", True), ("", False)],
)  # fmt: skip
def test_clusters_of_platforms_that_end_are_left_out(
    status: str, is_ending: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = ListedCluster("a", "slurm", "Slurm", status)
    listing = SimpleNamespace(clusters=(cluster,), warnings=("gateway: no answer",))
    monkeypatch.setattr(other_clusters.cluster_listing, "list_clusters", lambda known: listing)
    found = other_clusters.list_elsewhere()
    assert list(found.clusters) == ([] if is_ending else ["slurm:a"])
    assert found.warnings == ("gateway: no answer",)


def test_failures_are_logged_once_and_tried_again(
    case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    async def use() -> None:
        case.running, case.silent = [record("a", 1), record("b", 2)], {"a"}
        for _ in range(3):
            await case.update()
        assert case.names() == ["2"]
        [line] = caplog.messages
        assert line.startswith("cluster a is not listed: ")
        assert line.endswith("a did not answer")
        case.silent, case.manager.fails = set(), True
        await case.update()
        assert case.handles[-1].closed, "no object is left"
        assert caplog.messages[1:] == ["cluster a is not listed: not taken"]
        case.manager.fails = False
        await case.update()
        assert case.names() == ["1", "2"]

    with caplog.at_level(logging.INFO):
        asyncio.run(use())


def test_records_that_cannot_be_read_end_nothing(
    case: Case, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls = []

    def fail() -> list[ClusterRecord]:
        calls.append(1)
        raise hyperplane.EngineError("local", "the list of clusters cannot be read")

    monkeypatch.setattr(pane, "read_records", fail)
    monkeypatch.setattr(pane, "INTERVAL_SECONDS", 0.001)

    async def use() -> None:
        running = asyncio.ensure_future(case.pane.run())
        while len(calls) < 3:
            await asyncio.sleep(0.001)
        running.cancel()

    asyncio.run(use())
    assert len(caplog.messages) == 1
    assert "the clusters of this user are not listed: " in caplog.messages[0]


def test_the_identifier_in_the_pane_fits_its_address_and_does_not_change() -> None:
    one = make_cluster_id(record("a", 1))
    assert uuid.UUID(one)  # the addresses of the pane have five parts with a dash between
    assert one == make_cluster_id(record("a", 1)) != make_cluster_id(record("a", 2))


def test_the_extension_of_the_server_lists_clusters_only_if_the_pane_starts_ours() -> None:
    added: list[object] = []
    server = SimpleNamespace(io_loop=SimpleNamespace(add_callback=added.append), log=logging)
    assert lab._jupyter_server_extension_points() == [{"module": "hyperplane.lab"}]
    for module in (None, "dask.distributed"):
        with dask.config.set({"labextension.factory.module": module}):
            lab._load_jupyter_server_extension(server)  # type: ignore[arg-type]
    with dask.config.set({"labextension": None}):
        lab._load_jupyter_server_extension(server)  # type: ignore[arg-type]
    assert added == []


def test_the_file_that_enables_the_extension_is_that_of_the_wheel() -> None:
    file = Path(hyperplane.__file__).parents[1] / "config/jupyter_server_config.d/hyperplane.json"
    [[module, enabled]] = json.loads(file.read_text())["ServerApp"]["jpserver_extensions"].items()
    assert enabled is True
    assert module == lab.__name__
