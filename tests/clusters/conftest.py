"""Fixtures: a separate temporary directory for each test, and programs in separate sessions.

The directory hides clusters of other programs; the programs are ended with the test.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import dask.config
import psutil
import pytest
from services import temporary_directory
from subprograms import FEW_IMPORTS, Program, Run

from hyperplane.demo import data


@pytest.fixture(autouse=True)
def own_temporary_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    # pytest keeps its directory until the process ends, so it must not be in that of a test.
    tmp_path_factory.getbasetemp()
    with temporary_directory():
        yield


@pytest.fixture
def few_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers of other programs import only what Dask imports, so that they start faster."""
    for name, value in FEW_IMPORTS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(autouse=True)
def default_scheduler() -> Iterator[None]:
    """Check that a test does not change Dask's default scheduler."""
    before = dask.config.get("scheduler", default=None)
    yield
    if before is None:
        dask.config.config.pop("scheduler", None)
    else:
        dask.config.set(scheduler=before)


@pytest.fixture(scope="session")
def flights_of_2013(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the main job's data, as Parquet files."""
    folder, _ = data.prepare(tmp_path_factory.mktemp("flights"))
    return folder


@pytest.fixture
def place() -> Path:
    """A separate temporary directory of the program, to check what it leaves behind."""
    folder = Path(tempfile.gettempdir()) / "t"
    folder.mkdir()
    return folder


@pytest.fixture
def run(place: Path) -> Iterator[Run]:
    """Start programs that are ended with the test, by id."""
    started: list[Program] = []

    def begin(text: str, place: Path = place, **options: Any) -> Program:
        started.append(Program(text, place, **options))
        return started[-1]

    yield begin
    for program in started:
        for process in program.family():
            with suppress(psutil.Error):
                process.kill()
        program.process.kill()
        program.process.communicate()


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Client of two worker processes with one thread each, for tests of gangs."""
    import hyperplane

    client, cluster = hyperplane.start(
        hyperplane.plan_cluster(
            1, nprocs=2, nthreads=1, ram_gb_per_proc=0.5, engine="local", local_fit="exact"
        )
    )
    with cluster, client:
        yield client


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Folders of checkpoints and of files with the ids of ranks."""
    checkpoints, pids = tmp_path / "checkpoints", tmp_path / "pids"
    checkpoints.mkdir()
    pids.mkdir()
    return checkpoints, pids
