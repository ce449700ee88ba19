from __future__ import annotations

import multiprocessing.util
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from terminal import Answer, Begin, Foreground, Run
from typer.testing import CliRunner

from hyperplane.cli import app
from hyperplane.clusters.remote_nodes import slurm_listing


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process, 80 columns wide; re-raise its exceptions."""
    monkeypatch.setenv("COLUMNS", "80")

    def command(*arguments: str) -> Answer:
        result = CliRunner().invoke(app, list(arguments))
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Answer(result.exit_code, result.stdout, result.stderr)

    return command


@pytest.fixture(autouse=True)
def place(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """A separate temporary directory, without the clusters of other programs."""
    # multiprocessing and pytest keep their folders until the process ends, so not in this one.
    multiprocessing.util.get_temp_dir()
    tmp_path_factory.getbasetemp()
    # Short, because paths of sockets have at most about a hundred characters.
    folder = tempfile.mkdtemp(prefix="hp-")
    monkeypatch.setattr(tempfile, "tempdir", folder)
    monkeypatch.setenv("TMPDIR", folder)
    yield Path(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def without_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not ask the Slurm of this machine for clusters."""
    monkeypatch.setattr(slurm_listing, "find_missing_commands", lambda: ["squeue"])


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Start commands in the foreground of separate sessions, which end with the test."""
    begun: list[Foreground] = []

    def command(*arguments: str) -> Foreground:
        begun.append(Foreground(*arguments))
        return begun[-1]

    yield command
    for foreground in begun:
        for process in foreground.family():
            process.kill()
        foreground.process.communicate()
