"""A test that leaves something running fails, and one that starts processes without a mark."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from published_pools import only_published_pools

#: Marks of tests that may start processes.
_OF_PROCESSES = ("process", "cluster", "service", "slow", "engine")
_STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn"}
#: Sockets of processes that start others: of the supervisor of jobs, and of a forkserver.
_ASKS = ("supervisor-", "listener-")
#: What ctypes looks for libraries with, and platform for the processor, each in the first test.
_LOOKS = ("ldconfig", "gcc", "cc", "ld", "objdump", "uname")
_started: list[str] = []


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    # These may run since an earlier test: whether a test starts one itself is chance.
    asks = event == "socket.connect" and any(name in str(arguments[1]) for name in _ASKS)
    looks = event == "subprocess.Popen" and Path(os.fsdecode(arguments[0])).name in _LOOKS
    if (event in _STARTS or asks) and not looks:
        _started.append(f"{event} {arguments[asks : asks + 1]}")


sys.addaudithook(_note)


@pytest.fixture(autouse=True)
def marks_are_true(request: pytest.FixtureRequest) -> Iterator[None]:
    # So that -m "not process and not cluster and ..." selects what is quick on any machine.
    _started.clear()
    yield
    if _started and not any(map(request.node.get_closest_marker, _OF_PROCESSES)):
        pytest.fail(f"not marked process, and starts {_started[0]}")


@pytest.fixture
def published_pools() -> Iterator[None]:
    """Only the documented pools, so that a pool that is added changes no expected choice."""
    with only_published_pools():
        yield


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
            each.close(timeout=60)  # one that hangs would hold all that come after it
    if left:
        pytest.fail("left running: " + ", ".join(repr(each) for each in left))
