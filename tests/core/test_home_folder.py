"""Users without a home folder, such as any user of a container."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import dask
import pytest
from typer.testing import CliRunner

from hyperplane.cli import app
from hyperplane.errors import ConfigError
from hyperplane.history import list_runs, read_run
from hyperplane.jobs import list_jobs
from hyperplane.jobs.store.jobs_home import jobs_folder
from hyperplane.platforms.slurm.shared_folder import shared_folder
from hyperplane.reports import save_report
from hyperplane.spec.settings import BatchSettings

pwd = pytest.importorskip("pwd")


@pytest.fixture(autouse=True)
def no_home(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def find(*arguments: object) -> None:
        raise KeyError("uid not found: 54321")

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", find)
    monkeypatch.setattr(pwd, "getpwnam", find)
    with dask.config.set({"hyperplane.jobs.home": None, "hyperplane.jobs.store": None}):
        yield


@pytest.mark.parametrize(
    "call", [list_runs, lambda: read_run("latest"), lambda: save_report("latest"), list_jobs]
)
def test_functions_name_the_variable_to_set(call: Callable[[], object]) -> None:
    with pytest.raises(ConfigError, match=r"HOME is not set; .*; set XDG_STATE_HOME"):
        call()


@pytest.mark.parametrize("command", ["history list", "job list", "report"])
def test_commands_name_the_variable_to_set(command: str) -> None:
    answer = CliRunner().invoke(app, command.split())
    assert (answer.exit_code, "set XDG_STATE_HOME" in answer.stderr) == (2, True)


def test_a_folder_elsewhere_needs_no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with dask.config.set({"hyperplane.jobs.home": str(tmp_path / "jobs")}):
        assert jobs_folder() == tmp_path / "jobs"
    for path in ("~", "~/jobs", "~missing-user/jobs"):
        with (
            dask.config.set({"hyperplane.jobs.home": path}),
            pytest.raises(ConfigError, match=r"hyperplane\.jobs\.home = .*an unknown user"),
        ):
            jobs_folder()
    with pytest.raises(ConfigError, match="XDG_STATE_HOME or shared_folder"):
        shared_folder(BatchSettings())
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert list_runs() == []
    assert jobs_folder() == tmp_path / "hyperplane"
    assert shared_folder(BatchSettings()).parent == tmp_path / "hyperplane"
