"""A temporary directory of its own for each test: clusters of other programs are not its affair."""

from __future__ import annotations

import multiprocessing.util
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import dask.config
import pytest

from hyperplane.demo import data


@pytest.fixture(autouse=True)
def own_temporary_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    # Multiprocessing and pytest keep theirs for as long as the process lives: not in this one.
    multiprocessing.util.get_temp_dir()
    tmp_path_factory.getbasetemp()
    # Short, because the path of a socket may have a hundred characters and no more.
    folder = tempfile.mkdtemp(prefix="hp-")
    monkeypatch.setattr(tempfile, "tempdir", folder)
    monkeypatch.setenv("TMPDIR", folder)
    yield
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def default_scheduler() -> Iterator[None]:
    """Dask keeps a closed client's scheduler as the default when clients close out of order."""
    before = dask.config.get("scheduler", default=None)
    yield
    dask.config.set(scheduler=before)


@pytest.fixture(scope="session")
def flights_of_2013(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the main job's data, as Parquet files."""
    folder, _ = data.prepare(tmp_path_factory.mktemp("flights"))
    return folder
