"""What the services of engines have in common."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest


def need(what: str, there: bool) -> None:
    """Skip where a service cannot run; fail where it must."""
    if there:
        return
    if os.environ.get("HYPERPLANE_REQUIRE_SERVICES") == "1":
        pytest.fail(f"{what}, and HYPERPLANE_REQUIRE_SERVICES is set")
    pytest.skip(what)


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Wait until a condition holds, or fail."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.1)
