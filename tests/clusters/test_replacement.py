"""Memory of open clusters is not allocated twice; a cell can replace its earlier cluster."""

from __future__ import annotations

import os
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hyperplane
from hyperplane import cluster
from hyperplane.clusters import records, replacement, reserved_memory, start_lines
from hyperplane.clusters.engine import StartedCluster
from hyperplane.clusters.replacement import CodeLocation, current_location
from hyperplane.errors import RequestError
from hyperplane.platforms.local import machine
from hyperplane.sizing.machine_fit import fit_machine
from hyperplane.spec.capacity import MachineCapacity
from hyperplane.spec.worker import WorkerSpec

GB = 10**9
SMALL: dict[str, Any] = {"num_workers": 1, "nprocs": 1, "nthreads": 1, "ram_gb_per_proc": 0.3}


def _record(ram_gb: float, name: str = "open-one", **others: Any) -> records.ClusterRecord:
    fields: dict[str, Any] = {
        "name": name,
        "engine": "local",
        "scheduler": "tcp://x:1",
        "dashboard": "",
        "pid": 1,
        "started": 0.0,
        "workers": 1,
        "threads": 1,
        "ram_gb": ram_gb,
    }
    return records.ClusterRecord(**{**fields, **others})


class TestReservedMemory:
    @pytest.mark.parametrize(
        ("used", "left"),
        [(0, 2.25), (4, 5.1), (21, 20.4), (30, 20.4)],
    )
    def test_memory_for_a_second_cluster(self, monkeypatch, used, left):
        # 25 GB are free, and 21 GB are allocated to a cluster that uses a part of them.
        monkeypatch.setattr(reserved_memory, "memory_used_by", lambda pid: used * GB)
        given = reserved_memory.unreserved_memory(25 * GB, 0.9, [_record(21)])
        assert given == pytest.approx(left * GB)

    @given(
        st.integers(0, 10**12), st.lists(st.floats(0.1, 500), max_size=4), st.integers(0, 10**12)
    )
    def test_together_they_have_what_there_is_and_a_tenth(self, free, sizes, used):
        clusters = [_record(size, pid=number) for number, size in enumerate(sizes)]
        original, reserved_memory.memory_used_by = (
            reserved_memory.memory_used_by,
            lambda pid: used,
        )
        try:
            left = reserved_memory.unreserved_memory(free, 0.9, clusters)
        finally:
            reserved_memory.memory_used_by = original
        total = sum(size * GB for size in sizes)
        there = free + min(used * len(sizes), total)
        assert 0 <= left <= free * 0.9 + 1
        if total < there * 0.8:
            assert left + total <= there * 0.9 + 1 + len(sizes)

    def test_clusters_on_this_machine_count_and_others_do_not(self, monkeypatch):
        found = [
            _record(1, "mine", pid=os.getpid()),
            _record(2, "hosts", engine="ssh"),
            _record(3, "gpus", engine="cuda", scheduler=""),
        ]
        monkeypatch.setattr(records, "read_all", lambda starting: found)
        monkeypatch.setattr(machine, "free_ram", lambda: 25 * GB)
        monkeypatch.setattr(reserved_memory, "memory_used_by", lambda pid: 0)
        plan = hyperplane.plan_cluster(num_workers=1, nprocs=1, nthreads=1, ram_gb_per_proc=90)
        assert plan.total_ram == pytest.approx(18.5 * GB)
        note = "18.5 GB free less a reserve and less 4 GB of the open clusters mine, gpus; cluster."
        assert note in plan.fit_note
        assert "replace=True" in plan.fit_note
        assert plan.alerts == ()
        [line] = hyperplane.plan_cluster(**SMALL).alerts
        assert "use cores and memory of this machine: mine;" in line

    def test_planning_ignores_unreadable_records(self, monkeypatch):
        def refuse(starting: bool) -> None:
            raise PermissionError

        monkeypatch.setattr(records, "read_all", refuse)
        assert hyperplane.plan_cluster(**SMALL).dask_workers == 1

    def test_the_error_names_the_clusters_that_have_reserved_the_memory(self):
        asked = WorkerSpec(1, 1, GB, 1)
        capacity = MachineCapacity(2, 10**7, clusters=("a",), reserved_ram=21 * GB)
        with pytest.raises(
            hyperplane.DoesNotFit, match="less 21 GB of the open cluster a; cluster"
        ):
            fit_machine(asked, 1, capacity)


class Fake:
    """Stand-in for a client or cluster that can be closed."""

    def __init__(self) -> None:
        self.status = SimpleNamespace(name="running")
        self.dashboard_link = "http://127.0.0.1:1/status"
        self.scheduler_address = "tcp://127.0.0.1:2"

    def close(self) -> None:
        self.status = SimpleNamespace(name="closed")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[StartedCluster]:
    """The stand-in pairs that initialize_cluster has returned."""
    found: list[Any] = []

    def start(plan: hyperplane.ClusterPlan, sync: bool) -> Any:
        found.append(StartedCluster(Fake(), Fake()))  # type: ignore[arg-type]
        return found[-1]

    monkeypatch.setattr(replacement, "_started", [])
    monkeypatch.setattr(cluster, "start", start)
    monkeypatch.setattr(start_lines, "print_ready_lines", lambda *arguments: None)
    return found


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Simulate the execution of a notebook cell."""

    def run(cell: str | None, turn: int) -> None:
        header = {"metadata": {"cellId": cell} if cell else {}}
        shell = SimpleNamespace(execution_count=turn, get_parent=lambda: header)
        module = ModuleType("IPython")
        module.get_ipython = lambda: shell  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "IPython", module)

    return run


def _open(started: list[Any]) -> list[bool]:
    return [pair.cluster.status.name == "running" for pair in started]


class TestReplace:
    def test_a_cell_that_runs_again(self, started, notebook, capsys):
        notebook("cell-1", 1)
        hyperplane.initialize_cluster(**SMALL, name="one", replace=True)
        notebook("cell-2", 2)
        hyperplane.initialize_cluster(**SMALL, replace=True)
        notebook("cell-1", 3)
        capsys.readouterr()
        hyperplane.initialize_cluster(**SMALL, replace=True)  # an edited cell, at another line
        assert _open(started) == [False, True, True]
        assert started[0].client.status.name == "closed"
        assert capsys.readouterr().err.splitlines()[0] == (
            "👉 Hyperplane: closed one first (replace=True)"
        )

    def test_clusters_of_one_execution_do_not_replace_each_other(self, started, notebook):
        for turn in (1, 2):
            notebook("cell-1", turn)
            hyperplane.initialize_cluster(**SMALL, replace=True)
            hyperplane.initialize_cluster(**SMALL, replace=True)
        assert _open(started) == [False, False, True, True]

    def test_a_cell_without_an_id_and_a_line_of_a_script(self, started, notebook):
        for turn in (1, 2):
            notebook(None, turn)
            hyperplane.initialize_cluster(**SMALL, replace=True)
        assert _open(started) == [False, True]
        sys.modules.pop("IPython")
        for _ in range(2):
            hyperplane.initialize_cluster(**SMALL, replace=True)
        assert _open(started) == [False, True, False, True]

    def test_only_on_request(self, started):
        for replace in (False, False, None):
            hyperplane.initialize_cluster(
                **SMALL, **({} if replace is None else {"replace": replace})
            )
        assert _open(started) == [True, True, True]

    def test_through_the_other_calls(self, started):
        from hyperplane import notebook_common as nc

        advice = hyperplane.size_cluster("1MB", "light")
        for _ in range(2):
            advice.start(replace=True, nthreads=1, nprocs=1)
            nc.initialize_dask_cluster(**SMALL, replace=True)
            hyperplane.quickstart(1, "4_32", replace=True)
        assert _open(started) == [False] * 3 + [True] * 3

    def test_replace_by_name_closes_clusters_of_other_processes(self, started, monkeypatch):
        other: list[str] = []
        running = [_record(1, "flights", pid=4), _record(1, "trains", pid=4)]
        monkeypatch.setattr(records, "read_all", lambda starting=False: running)
        monkeypatch.setattr(
            replacement, "_close_in_other_process", lambda one: other.append(one.name)
        )
        hyperplane.initialize_cluster(**SMALL, name="mine")
        hyperplane.initialize_cluster(**SMALL, name="mine", replace=True)
        assert _open(started) == [False, True]
        assert other == []
        hyperplane.initialize_cluster(**SMALL, name="flights", replace=True)
        assert other == ["flights"]

    @pytest.mark.parametrize("value", [1, "yes", None])
    def test_it_is_a_flag(self, started, value):
        with pytest.raises(RequestError, match=r"replace = .*: expected True or False"):
            hyperplane.initialize_cluster(**SMALL, replace=value)
        assert started == []

    def test_closed_clusters_are_forgotten(self, started):
        for _ in range(3):
            _, running = hyperplane.initialize_cluster(**SMALL)
            running.close()
        hyperplane.initialize_cluster(**SMALL)
        assert len(replacement._started) == 1


def test_the_place_is_that_of_the_caller():
    location = current_location()
    assert location.code.rpartition(":")[0] == __file__
    assert location == CodeLocation(location.code, location.execution_count)


@pytest.mark.cluster
def test_a_real_cluster_is_replaced() -> None:
    names = []
    for _ in range(2):
        client, running = hyperplane.initialize_cluster(**SMALL, replace=True)
        names.append(running.name)
        assert [record.name for record in records.read_all()] == names[-1:]
        assert reserved_memory.memory_used_by(os.getpid()) > 10**7
    client.close()
    running.close()
    assert names[0] != names[1]
