"""What the services of engines have in common."""

from __future__ import annotations

import os

import pytest


def need(what: str, there: bool) -> None:
    """Skip where a service cannot run; fail where it must."""
    if there:
        return
    if os.environ.get("HYPERPLANE_REQUIRE_SERVICES") == "1":
        pytest.fail(f"{what}, and HYPERPLANE_REQUIRE_SERVICES is set")
    pytest.skip(what)
