"""A temporary directory of its own for each test: clusters of other programs are not its affair.

And programs in a session of their own, which are ended with the test.
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
    # pytest keeps its own for as long as the process lives: not in the one of a test.
    tmp_path_factory.getbasetemp()
    with temporary_directory():
        yield


@pytest.fixture
def few_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have workers of other programs load no more than Dask itself does: they start sooner."""
    for name, value in FEW_IMPORTS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(autouse=True)
def default_scheduler() -> Iterator[None]:
    """The scheduler that Dask uses by default is after each test what it was before."""
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
    """A temporary directory of the program's own, to see what it leaves."""
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
