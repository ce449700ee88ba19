"""Checks of connections are installed once, whatever other libraries have replaced."""

from __future__ import annotations

from functools import wraps
from typing import Any

import pytest
from distributed.node import ServerNode

from hyperplane.core.dask_internals import comms


def test_the_check_of_dashboards_is_installed_over_that_of_another_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start(self: Any) -> None:
        raise NotImplementedError

    @wraps(start)
    def traced(self: Any) -> None:
        start(self)

    monkeypatch.setattr(ServerNode, "start_http_server", traced)
    comms._install()
    installed = ServerNode.start_http_server
    assert installed is not traced
    comms._install()  # as when the module is reloaded
    assert ServerNode.start_http_server is installed
