"""A second framework, installed as a separate package, passes the contract of engines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.config
import processes_framework
import pytest
from contract import OwnedClusterContract, hyperplane_commands
from processes_framework import ENGINE, ENTRY_POINTS, ProcessOptions
from services import is_empty, until

import hyperplane
from hyperplane.clusters import records, registry, reserved_memory
from hyperplane.errors import RequestError

SMALL: dict[str, Any] = {
    "num_workers": 1,
    "nprocs": 2,
    "nthreads": 1,
    "ram_gb_per_proc": 0.5,
    "local_fit": "exact",
    "timeout": 200,
}


@pytest.fixture(autouse=True)
def installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the framework as a package, for this process and those that it starts."""
    site = tmp_path / "site"
    folder = site / "processes_framework-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: processes-framework\nVersion: 1\n"
    )
    (folder / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(site))
    code = Path(processes_framework.__file__).parent
    before = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(site), str(code), before])))


class TestProcesses(OwnedClusterContract):
    engine = ENGINE
    small = SMALL
    print_workers = "print('workers', *{client.call(os.getpid) for _ in range(4)}, flush=True)\n"

    def call(self, client: Any, function: Callable[..., Any], *arguments: Any) -> Any:
        return client.call(function, *arguments)

    @pytest.mark.cluster
    def test_the_section_of_the_plan_reaches_the_processes(self) -> None:
        plan = self.plan()
        assert plan.options == ProcessOptions(500_000_000)
        client, cluster = hyperplane.start(plan)
        assert len(client.call(bytes, 10**6)) == 10**6
        with pytest.raises(MemoryError):
            client.call(bytearray, 10**9)
        client.close()
        cluster.close()


def _plan(**arguments: Any) -> hyperplane.ClusterPlan:
    return hyperplane.plan_cluster(**{"engine": ENGINE, **SMALL, **arguments})


def test_a_plan_needs_no_memory_policy_and_no_tuning() -> None:
    with dask.config.set({"hyperplane.tuning": 7, "hyperplane.memory": 7}):
        plan = _plan()
    assert dict(plan.rows())["address space"] == "500 MB"
    assert not {"memory", "tuning"} & plan.to_dict().keys()
    assert any(note.startswith("memory is ignored") for note in _plan(memory={}).notes)


def test_the_planner_fits_a_request_to_this_machine() -> None:
    plan = _plan(num_workers=1000, nprocs=15, ram_gb_per_proc=0.3, local_fit="fit")
    assert plan.dask_workers < 15_000
    assert "this machine gives" in plan.fit_note


def test_its_settings_are_a_section_of_the_configuration() -> None:
    section = "hyperplane.engines.processes_local"
    with dask.config.set({f"{section}.program": "/usr/bin/worker.py"}):
        assert _plan().settings.program == "/usr/bin/worker.py"  # type: ignore[attr-defined]
        assert hyperplane.config.faults(registry.ENGINES) == []
    with dask.config.set({f"{section}.programm": "x"}):
        [fault] = hyperplane.config.faults(registry.ENGINES)
    assert (fault.where, fault.advice) == (f"{section}.programm", "did you mean program?")


def test_auto_can_select_the_engine_of_another_package() -> None:
    with dask.config.set({"hyperplane.engines.auto": [ENGINE, "local"]}):
        assert _plan(engine="auto").notes[0] == f"engine auto: {ENGINE}, needs nothing but Python"


def test_the_lines_of_a_start_are_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    from hyperplane.clusters import start_lines

    plan = _plan(name="mine")
    start_lines.print_start_lines(plan)
    start_lines.print_ready_lines(plan, "", 1.0)
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:] == [
        "👉 Hyperplane: starting 2 processes on this machine",
        "2 processes of mine are ready",
    ]


def test_memory_of_its_clusters_counts_as_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    record = records.ClusterRecord.from_plan(_plan())
    monkeypatch.setattr(records, "read_all", lambda starting: [record])
    assert reserved_memory.open_clusters() == [record]


def test_an_engine_whose_framework_is_missing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    home = f"{processes_framework.__name__}:LocalProcessesEngine"
    monkeypatch.setitem(registry.ENGINES.built_in, "sparkle:local", home)
    with pytest.raises(
        RequestError, match="framework = 'sparkle': expected one of dask, ray, spark, processes"
    ):
        registry.load_framework("sparkle:local")


@pytest.mark.cluster
def test_neither_a_start_nor_a_command_imports_dask_clusters(place: Path) -> None:
    code = f"""
import json, sys
import hyperplane
client, cluster = hyperplane.initialize_cluster(engine={ENGINE!r}, **{SMALL!r})
again = hyperplane.get_cluster(cluster.name)
assert again.client.call(sum, [1, 2]) == 3
again.client.close(), client.close(), cluster.close()
import hyperplane.cli.cluster
print(json.dumps(sorted(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
        env={**os.environ, "TMPDIR": str(place)},
    )
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert "processes_framework" in loaded
    assert [name for name in loaded if name.startswith("hyperplane.clusters.dask")] == []
    assert "distributed" not in loaded
    assert is_empty(place)


@pytest.mark.slow
@pytest.mark.cluster
def test_the_command_line_starts_it_in_the_foreground() -> None:
    script = "from hyperplane.cli import main; main()"
    arguments = ("--engine", ENGINE, "--num-workers=1", "--nprocs=2", "--ram-gb-per-proc=0.3")
    with subprocess.Popen(
        [sys.executable, "-c", script, "cluster", "start", *arguments, "--name=mine"],
        stdout=subprocess.PIPE,
        text=True,
    ) as held:
        until(lambda: held.poll() is not None or records.read_all())
        listed, stopped = hyperplane_commands(("cluster", "list"), ("cluster", "stop", "--all"))
        assert ENGINE in listed
        assert stopped == "mine is closed\n"
        out, _ = held.communicate(timeout=200)
    assert held.returncode == 0
    assert out.splitlines()[-1] == "mine is closed"
