"""The list of running clusters in the pane, with a manager that does what that of the pane does."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask.config
import pytest

import hyperplane
from hyperplane import lab
from hyperplane.clusters.dask.attach import AdaptiveLimits
from hyperplane.clusters.records import ClusterRecord
from hyperplane.lab import factory, pane
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
        self.clusters.pop(cluster_id)


class Case(SimpleNamespace):
    manager: Manager
    pane: ClusterPane
    running: list[ClusterRecord]
    limits: AdaptiveLimits | None
    silent: set[str]
    handles: list[Handle]

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
    monkeypatch.setattr(factory, "owners", {})
    return made


def test_running_clusters_are_added_once_and_ended_ones_removed(case: Case) -> None:
    async def use() -> None:
        case.running = [record("a", 1), record("b", 2, "slurm"), record("c", 3, "kubernetes")]
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
