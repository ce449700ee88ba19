"""Servers of the page, and a separate home for what they show."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import dask.config
import pytest
from ui_server import UiServer

from hyperplane.jobs.store.jobs_home import open_store


@pytest.fixture(autouse=True, scope="module")
def place() -> Iterator[Path]:
    """A folder for the jobs, records and clusters of the tests of a file."""
    # Short, because paths of sockets have at most about a hundred characters.
    folder = Path(tempfile.mkdtemp(prefix="ui-"))
    for name in ("tmp", "jobs", "state"):
        (folder / name).mkdir(mode=0o700)
    jobs = str(folder / "jobs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(folder / "tmp"))
        patch.setenv("TMPDIR", str(folder / "tmp"))
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        patch.setenv("DASK_HYPERPLANE__JOBS__HOME", jobs)
        patch.setenv("DASK_HYPERPLANE__JOBS__LINGER", "0.5s")
        with dask.config.set({"hyperplane.jobs.home": jobs, "hyperplane.jobs.linger": "0.5s"}):
            yield folder
            open_store().close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def start_server(place: Path) -> Iterator[Callable[..., UiServer]]:
    """Start servers, which end with the tests of the file."""
    del place
    servers: list[UiServer] = []

    def start(*arguments: str, folder: Path | None = None) -> UiServer:
        servers.append(UiServer(*arguments, folder=folder))
        return servers[-1]

    yield start
    for server in servers:
        server.end()


@pytest.fixture(scope="module")
def server(start_server: Callable[..., UiServer]) -> UiServer:
    """A server without actions, whose page was opened."""
    started = start_server()
    started.login()
    return started


@pytest.fixture(scope="module")
def acting_server(start_server: Callable[..., UiServer]) -> UiServer:
    """A server with actions, whose page was opened."""
    started = start_server("--allow-actions")
    started.login()
    return started
