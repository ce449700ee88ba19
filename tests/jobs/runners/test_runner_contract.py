"""The contract of runners: this machine, Slurm's commands, and a runner of another package."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import live_slurm
import outside_runner
import pytest
from runner_cases import make_job
from runner_contract import STEP, RunnerContract

from hyperplane.errors import RequestError
from hyperplane.jobs import Pipeline, Step
from hyperplane.jobs.exporters.registry import EXPORTERS, create_exporter, render
from hyperplane.jobs.runners.local import LocalRunner
from hyperplane.jobs.runners.registry import RUNNERS


class SharedFilesContract(RunnerContract):
    """The contract for runners whose steps access the files of this machine."""

    def unsupported(self, folder: Path) -> tuple[Pipeline, str]:
        notebook = {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        (folder / "a.ipynb").write_text(json.dumps(notebook))
        step = Step(name="a", kind="notebook", path="a.ipynb", kernel="no-such-kernel")
        return make_job(step, root=folder).pipeline, "no-such-kernel"

    def test_a_missing_folder_is_an_error_of_the_start(self, runner: Any, tmp_path: Path) -> None:
        attempt = replace(self.attempt(tmp_path, "true"), folder=str(tmp_path / "gone"))
        with pytest.raises(FileNotFoundError, match="gone"):
            self.run(runner, lambda runner: runner.start(attempt, STEP, 1.0))


class TestLocal(SharedFilesContract):
    name = "local"

    def unavailable(self, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
        return None


class TestSlurm(SharedFilesContract):
    name = "slurm"

    @pytest.fixture
    def options(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
        folder = tmp_path / "slurm"
        folder.mkdir()
        live_slurm.install(folder)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        monkeypatch.setattr("hyperplane.jobs.runners.slurm.runner.POLL_SECONDS", 0.2)
        return {}

    def unavailable(self, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> str:
        monkeypatch.setenv("PATH", "/nonexistent")
        return "sbatch"


class TestAnotherPackage(SharedFilesContract):
    name = "shell"

    @pytest.fixture(autouse=True)
    def installed_package(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Install the runner as a package, for this process and those that it starts."""
        site = tmp_path / "site"
        folder = site / "outside_runner-1.0.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: outside-runner\nVersion: 1\n"
        )
        (folder / "entry_points.txt").write_text(outside_runner.ENTRY_POINTS)
        code = str(Path(outside_runner.__file__).parent)
        monkeypatch.syspath_prepend(str(site))
        paths = [str(site), code, os.environ.get("PYTHONPATH", "")]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))

    def unavailable(self, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> str:
        options["shell"] = "no-such-shell"
        return "no no-such-shell on the PATH"

    def test_a_package_cannot_replace_a_built_in_runner(self) -> None:
        assert RUNNERS.names() == [*RUNNERS.built_in, "shell"]
        assert RUNNERS.load("local") is LocalRunner

    def test_the_exporter_of_a_package_renders_and_replaces_no_built_in_one(
        self, tmp_path: Path
    ) -> None:
        job = make_job(STEP, root=tmp_path)
        [document] = render("words", job, prefix="- ")
        assert document == ("words.txt", "- true", "step")
        assert EXPORTERS.names() == [*EXPORTERS.built_in, "words"]
        assert render("slurm", job)[-1].name == "submit.sh"
        with pytest.raises(RequestError, match="prefx: unknown option of words; expected prefix"):
            create_exporter("words", prefx="x")
