"""What a test leaves running fails that test, and is closed before the next one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest


def _running() -> list[Any]:
    """Clients first, so that none is left to reconnect."""
    if "distributed" not in sys.modules:
        return []
    from distributed import Client, SpecCluster

    instances = [*Client._instances, *SpecCluster._instances]
    return [
        each for each in instances if str(getattr(each.status, "name", each.status)) == "running"
    ]


@pytest.fixture(autouse=True)
def nothing_left_running() -> Iterator[None]:
    # Without it the first test that fails midway takes dozens with it: work goes to its workers.
    before = {id(each) for each in _running()}
    yield
    left = [each for each in _running() if id(each) not in before]
    for each in left:
        with suppress(Exception):
            each.close()
    if left:
        pytest.fail("left running: " + ", ".join(repr(each) for each in left))
