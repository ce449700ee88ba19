"""Servers of JupyterLab, which end with the tests of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lab_server import SMALL, LabServer, need_labextension


@pytest.fixture(scope="module")
def start_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., LabServer]]:
    """Start servers, with other arguments for clusters than the small ones."""
    need_labextension()
    servers: list[LabServer] = []

    def start(**kwargs: Any) -> LabServer:
        folder: Path = tmp_path_factory.mktemp("lab")
        servers.append(LabServer(folder, {**SMALL, **kwargs}))
        return servers[-1]

    yield start
    for server in servers:
        server.end()


@pytest.fixture(scope="module")
def server(start_server: Callable[..., LabServer]) -> LabServer:
    """A server whose pane starts small clusters."""
    return start_server()
