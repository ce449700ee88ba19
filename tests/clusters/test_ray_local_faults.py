"""The engine ``ray:local`` with a program that fails, in place of that with nodes of Ray."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest
from late_clock import expire_after_first_worker
from services import is_empty

import hyperplane
from hyperplane.clusters import records
from hyperplane.clusters.framework import RUNNING
from hyperplane.clusters.local_nodes import program_process, worker_group
from hyperplane.clusters.ray import driver_environment, node_group
from hyperplane.clusters.ray.client import RayClient
from hyperplane.clusters.ray.local.engine import LocalRayEngine
from hyperplane.errors import EngineError, StartFailed, StartTimeout

pytestmark = pytest.mark.cluster

#: Starts a head and one worker node, after lines such as libraries print.
PROGRAM = """
import json, sys
print("3", flush=True)
print('["event"]', flush=True)
started = 0
for line in sys.stdin:
    request = json.loads(line)
    if "folder" in request:
        print(json.dumps({"event": "head", "address": "127.0.0.1:1", "dashboard": ""}), flush=True)
        print(json.dumps({"event": "lost", "name": "another"}), flush=True)
    elif not started:
        started = 1
        event = {"event": "worker", "name": request["worker"], "pid": 1, "host": "127.0.0.1"}
        print(json.dumps(event), flush=True)
"""


def make_plan(**others: Any) -> Any:
    return hyperplane.plan_cluster(
        engine="ray:local",
        nprocs=1,
        nthreads=1,
        ram_gb_per_proc=0.3,
        **{"num_workers": 2, "timeout": 3, **others},
    )


def test_a_timeout_counts_the_worker_nodes_after_unknown_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    monkeypatch.setattr(program_process, "_PROGRAM", str(program))
    expire_after_first_worker(monkeypatch, 100)
    with pytest.raises(StartTimeout, match="1 of 2 worker nodes have started in time"):
        LocalRayEngine().start(make_plan(timeout=60))
    assert records.read_all(starting=True) == []
    assert is_empty(Path(os.environ["TMPDIR"]))


def test_nothing_is_left_if_the_program_cannot_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*args: Any, **options: Any) -> Any:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", fail)
    with pytest.raises(StartFailed, match="Resource temporarily unavailable"):
        LocalRayEngine().start(make_plan())
    assert records.read_all(starting=True) == []
    assert is_empty(Path(os.environ["TMPDIR"]))


def test_a_client_of_a_closed_cluster_leaves_no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(address: str) -> None:
        raise ConnectionError(f"no cluster at {address}")

    ray = SimpleNamespace(is_initialized=lambda: False, init=refuse)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(driver_environment, "_read_again", lambda: None)
    before = {name: os.environ.get(name) for name in driver_environment.VARIABLES}
    variables = driver_environment.build_variables("secret", loopback=True)
    driver_environment.set_variables("127.0.0.1:1", variables)
    restore = functools.partial(driver_environment.restore_variables, "127.0.0.1:1")
    client = RayClient("ray:local", "127.0.0.1:1", variables, restore)
    with pytest.raises(EngineError, match="no cluster at"):
        _ = client.ray
    assert os.environ["RAY_ADDRESS"] == "127.0.0.1:1"  # it runs, as far as this process knows
    client.close()
    with pytest.raises(EngineError, match="no cluster at"):
        _ = client.ray
    assert {name: os.environ.get(name) for name in driver_environment.VARIABLES} == before


#: Starts a cluster of one worker node, and refuses to add another one.
FULL_PROGRAM = PROGRAM.replace(
    """    elif not started:""",
    """    elif "worker" in request and started:
        event = {"event": "not_added", "name": request["worker"], "message": "no memory is left"}
        print(json.dumps(event), flush=True)
    elif not started:""",
)


def test_a_cluster_continues_if_a_worker_node_cannot_be_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    program = tmp_path / "program.py"
    program.write_text(FULL_PROGRAM)
    monkeypatch.setattr(program_process, "_PROGRAM", str(program))
    _, cluster = LocalRayEngine().start(make_plan(num_workers=1, local_fit="exact", timeout=60))
    try:
        with pytest.raises(StartFailed, match="0 of 1 worker node have started: no memory is left"):
            cluster.add_workers(1, lambda name: None)
        assert (cluster.status, len(cluster.workers)) == (RUNNING, 1)
        cluster.handle({"event": "warning", "message": "it is slow"})
        assert f"cluster {cluster.name}: it is slow" in caplog.text
    finally:
        cluster.close()


class TestNodeGroup:
    """The nodes of a cluster, of which the starts fail."""

    @pytest.fixture
    def events(self) -> list[dict[str, Any]]:
        """The events that the group reports."""
        return []

    @pytest.fixture
    def group(
        self, monkeypatch: pytest.MonkeyPatch, events: list[dict[str, Any]]
    ) -> node_group.RayNodeGroup:
        """A running cluster with a head, whose worker nodes do not start."""

        def fail(host: str, **parameters: Any) -> Any:
            raise SystemError("its raylet has ended")

        monkeypatch.setattr(node_group, "start_node", fail)
        monkeypatch.setattr(worker_group, "_RETRY_SECONDS", 0.01)
        monkeypatch.setenv("RAY_raylet_start_wait_time_s", "30")  # the group sets another value
        group = node_group.RayNodeGroup(lambda **event: events.append(event))
        processes = [("raylet", SimpleNamespace(pid=1)), ("gcs_server", SimpleNamespace(pid=2))]
        group._head = SimpleNamespace(gcs_address="127.0.0.1:1", live_processes=lambda: processes)
        group._settings = {"folder": "/tmp/none", "idle_timeout": None}
        return group

    request: ClassVar[dict[str, Any]] = {
        "worker": "ray-worker-1", "cpus": 1, "gpus": 0, "memory": 1, "object_store": 1,
    }  # fmt: skip

    def add_ended(self, group: node_group.RayNodeGroup, starts: int) -> None:
        """Add a worker node that has run and ended."""
        ended: Any = SimpleNamespace(
            pid=3, host="127.0.0.1", is_running=lambda: False, end=lambda: None
        )
        group._requests = {"ray-worker-1": self.request}
        group._starts = {"ray-worker-1": starts}
        group._register("ray-worker-1", ended)

    def test_starts_are_counted_anew_after_a_long_run(
        self,
        group: node_group.RayNodeGroup,
        events: list[dict[str, Any]],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        group.handle({"ready": True})
        for seconds, last in ((600.0, "failed"), (0.0, "warning")):
            monkeypatch.setattr(worker_group, "_STABLE_SECONDS", seconds)
            self.add_ended(group, starts=10)
            group.check()
            assert events[-1]["event"] == last

    def test_a_withdrawn_worker_node_is_not_started_again(
        self, group: node_group.RayNodeGroup, events: list[dict[str, Any]]
    ) -> None:
        group.handle({"ready": True})
        self.add_ended(group, starts=1)
        group.handle({"withdraw": ["ray-worker-1"]})
        assert events[-1]["event"] == "worker", "one that has started remains"
        group.check()
        group.handle({"withdraw": ["ray-worker-1", "unknown"]})
        assert events[-1] == {"event": "withdrawn", "name": "ray-worker-1"}
        time.sleep(0.02)
        group.check()
        assert events[-1]["event"] == "withdrawn"

    def test_a_cluster_is_not_idle_while_tasks_wait(
        self, group: node_group.RayNodeGroup, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        usage = SimpleNamespace(resource_usage=SimpleNamespace(idle_time_ms=60_000))
        demands = SimpleNamespace(ray_task_actor_demand=["CPU"], placement_group_demand=[])
        status = SimpleNamespace(active_nodes=[], idle_nodes=[usage], resource_demands=demands)
        for name in ("ray", "ray.autoscaler", "ray.autoscaler.v2"):
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        sdk = SimpleNamespace(get_cluster_status=lambda address: status)
        monkeypatch.setitem(sys.modules, "ray.autoscaler.v2.sdk", sdk)
        group._settings["idle_timeout"] = 0.01
        group.handle({"ready": True})
        for _ in range(3):
            time.sleep(0.02)
            assert not group._is_idle()
        demands.ray_task_actor_demand = []
        time.sleep(0.02)
        assert group._is_idle()

    def test_a_start_of_a_cluster_fails_at_once(
        self, group: node_group.RayNodeGroup, events: list[dict[str, Any]]
    ) -> None:
        with pytest.raises(SystemError):
            group.handle(self.request)
        group.handle({"ready": True})
        group.handle({**self.request, "worker": "ray-worker-2"})
        assert [event["event"] for event in events] == ["not_added"]
        assert events[0]["message"] == "SystemError: its raylet has ended"

    def test_a_replacement_is_repeated_up_to_a_limit_and_the_reason_is_reported(
        self, group: node_group.RayNodeGroup, events: list[dict[str, Any]]
    ) -> None:
        group.handle({"ready": True})
        self.add_ended(group, starts=1)
        events.clear()
        deadline = time.monotonic() + 60
        while group.check():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert [event["event"] for event in events] == [
            *("lost", "warning", "warning", "abandoned", "failed"),
        ]
        reason = "it failed to start 3 times: SystemError: its raylet has ended"
        assert events[-1]["message"] == (
            f"no worker node is left: worker node ray-worker-1 is not replaced, because {reason}"
        )

    def test_an_idle_time_that_cannot_be_read_is_reported(
        self,
        group: node_group.RayNodeGroup,
        events: list[dict[str, Any]],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def refuse(address: str) -> None:
            raise AttributeError("no get_cluster_status")

        for name in ("ray", "ray.autoscaler", "ray.autoscaler.v2"):
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        sdk = SimpleNamespace(get_cluster_status=refuse)
        monkeypatch.setitem(sys.modules, "ray.autoscaler.v2.sdk", sdk)
        group._settings["idle_timeout"] = 0.01
        group.handle({"ready": True})
        deadline = time.monotonic() + 60
        while group._failed_queries < 5:
            assert group.check()  # the cluster continues
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert [event["event"] for event in events] == ["warning"]
        assert "the idle timeout has no effect" in events[0]["message"]
        assert "AttributeError: no get_cluster_status" in events[0]["message"]
