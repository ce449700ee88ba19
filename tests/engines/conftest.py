"""A temporary directory of its own for each test: clusters of other programs are not its affair."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dask.config
import pytest
from services import temporary_directory

from hyperplane.demo import data


@pytest.fixture(autouse=True)
def own_temporary_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    # pytest keeps its own for as long as the process lives: not in the one of a test.
    tmp_path_factory.getbasetemp()
    with temporary_directory():
        yield


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
