"""Checks of this machine before a start: the spill folder, ports, and paths."""

from __future__ import annotations

import socket
import sys
import threading
from pathlib import Path
from typing import Any

import dask
import pytest

from hyperplane import plan_cluster
from hyperplane.clusters import registry
from hyperplane.guard.preflight import ports
from hyperplane.guard.preflight.check_deadline import CheckDeadline
from hyperplane.guard.preflight.environment import EnvironmentRequest, describe_here
from hyperplane.guard.preflight.paths import find_local_paths, find_output_folder
from hyperplane.guard.preflight.request import PreflightRequest
from hyperplane.guard.preflight.spill_disk import check_local_spill_folder
from hyperplane.platforms.local.private_folders import private_folder, remove_empty


def test_the_spill_folder_is_checked_while_other_processes_remove_theirs(tmp_path: Path) -> None:
    ended = threading.Event()

    def start_and_end() -> None:
        while not ended.is_set():
            remove_empty(private_folder(str(tmp_path)))

    other = threading.Thread(target=start_and_end)
    other.start()
    try:
        with dask.config.set({"temporary-directory": str(tmp_path)}):
            found = {check_local_spill_folder(0).state for _ in range(300)}
    finally:
        ended.set()
        other.join()
    assert "fault" not in found


def test_the_check_leaves_the_spill_folder_of_another_process(tmp_path: Path) -> None:
    folder = private_folder(str(tmp_path))
    with dask.config.set({"temporary-directory": str(tmp_path)}):
        assert check_local_spill_folder(0).state != "fault"
    assert folder.is_dir()


def test_a_spill_folder_that_is_created_by_the_start_is_judged_by_its_parent(
    tmp_path: Path,
) -> None:
    with dask.config.set({"temporary-directory": str(tmp_path / "later" / "on")}):
        assert str(tmp_path) in check_local_spill_folder(0).text
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with dask.config.set({"temporary-directory": str(tmp_path / "file")}):
        assert check_local_spill_folder(0).state == "fault"


@pytest.mark.parametrize(
    ("engine", "options", "mode", "expected"),
    [
        ("local", {}, "remote", "warning"),
        ("slurm", {"shared_folder": "/tmp"}, "remote", "warning"),
        ("ssh", {"hosts": ["a.example"]}, "local", "warning"),
        ("ssh", {"hosts": ["a.example"]}, "remote", "fault"),
        ("kubernetes", {"image": "a:1", "port_forward": "always"}, "remote", "fault"),
        ("kubernetes", {"image": "a:1", "port_forward": "never"}, "remote", ""),
    ],
)
def test_a_port_in_use_is_a_fault_only_where_the_dashboard_is_forwarded(
    engine: str, options: dict[str, object], mode: str, expected: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        plan = plan_cluster(
            engine=engine,
            engine_options=options,
            scheduler_deploy_mode=mode,
            dashboard_port=taken.getsockname()[1],
            num_workers=1,
            nprocs=1,
            nthreads=1,
            ram_gb_per_proc=0.5,
        )
        checks = registry.load(engine).preflight_checks(plan, PreflightRequest())
        found = [
            finding.state
            for check in checks
            if check.subject == "dashboard port"
            for finding in check.run(CheckDeadline(0.0))
        ]
    assert found == [expected] * bool(expected)


def test_globs_are_no_paths(tmp_path: Path) -> None:
    names = ["a.csv", "part?.parquet", "[ab].csv", "*.csv", "s3://bucket/a.csv"]
    found = find_local_paths([tmp_path / name if "://" not in name else name for name in names])
    assert found == [str(tmp_path / "a.csv")]


def test_a_home_of_an_unknown_user_and_a_hidden_path_are_no_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    unknown = "~nosuchuser-0/a.csv"
    assert find_local_paths(unknown) == [str(tmp_path / unknown)]
    assert find_output_folder(unknown) == str(tmp_path)
    hidden = tmp_path / "hidden"

    def refuse(self: Path, *arguments: Any, **options: Any) -> Any:
        if self.is_relative_to(hidden):
            raise PermissionError(13, "Permission denied", str(self))
        return stat(self, *arguments, **options)

    stat = Path.stat
    monkeypatch.setattr(Path, "stat", refuse)
    (tmp_path / "open.csv").touch()
    asked = EnvironmentRequest(
        spill=str(hidden / "spill"), paths=(unknown, str(hidden / "a.csv"), "open.csv")
    )
    found = describe_here(asked)
    assert list(found.paths.values()) == [False, False, True]
    assert found.disk["folder"] == str(tmp_path)
    found = describe_here(EnvironmentRequest(spill="~nosuchuser-0/spill"))
    assert found.disk["folder"] == str(tmp_path)


def test_an_import_hook_that_fails_makes_a_module_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hook:
        @staticmethod
        def find_spec(name: str, *_: Any) -> None:
            raise AttributeError(name)

    monkeypatch.setattr(sys, "meta_path", [Hook, *sys.meta_path])
    found = describe_here(EnvironmentRequest(modules=("json", "no_such_module")))
    assert found.modules["no_such_module"] is None


def test_any_free_port_is_not_checked() -> None:
    assert list(ports.check_dashboard_port(0)) == []
