"""Fail tests that leave clients or clusters running, or start processes without a mark."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from published_pools import only_published_pools

#: Marks of tests that may start processes.
_OF_PROCESSES = ("process", "cluster", "service", "slow", "engine")
_STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn"}
#: Names of sockets of processes that start others: the supervisor of jobs, and a forkserver.
_SOCKETS = ("supervisor-", "listener-")
#: Programs by which ctypes finds libraries and platform the processor, once in a process, and
#: matplotlib its fonts, once on a machine.
_LOOKUP_PROGRAMS = ("ldconfig", "gcc", "cc", "ld", "objdump", "uname", "fc-list")
_started: list[str] = []


def _record_start(event: str, arguments: tuple[Any, ...]) -> None:
    # A supervisor or forkserver of an earlier test may still run, so a connection counts as a
    # start, too.
    connects = event == "socket.connect" and any(name in str(arguments[1]) for name in _SOCKETS)
    is_lookup = (
        event == "subprocess.Popen" and Path(os.fsdecode(arguments[0])).name in _LOOKUP_PROGRAMS
    )
    if (event in _STARTS or connects) and not is_lookup:
        _started.append(f"{event} {arguments[connects : connects + 1]}")


sys.addaudithook(_record_start)


@pytest.fixture(autouse=True)
def require_process_mark(request: pytest.FixtureRequest) -> Iterator[None]:
    # So that -m "not process and not cluster and ..." selects tests that are quick everywhere.
    _started.clear()
    yield
    if _started and not any(map(request.node.get_closest_marker, _OF_PROCESSES)):
        pytest.fail(f"the test starts a process and has no mark for that: {_started[0]}")


@pytest.fixture
def published_pools() -> Iterator[None]:
    """Only the documented pools, so that a pool that is added changes no expected choice."""
    with only_published_pools():
        yield


@pytest.fixture
def patient_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let checks before a start take longer: the machine of the tests may be busy."""
    from hyperplane import start_checks
    from hyperplane.guard.preflight.run_checks import run_checks

    monkeypatch.setattr(start_checks, "run_checks", partial(run_checks, limit=120))


@pytest.fixture
def short_grace_period(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill workers of this process's clusters whose tasks do not end in half a second.

    Dask waits four seconds, in vain if a test closes or restarts workers with long tasks.
    """
    from hyperplane.clusters.dask.local.cluster import GuardedNanny

    kill = GuardedNanny.kill

    def end(pid: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    async def kill_soon(nanny: GuardedNanny, *args: Any, **kwargs: Any) -> None:
        if nanny.pid is not None:
            asyncio.get_running_loop().call_later(0.5, end, nanny.pid)
        await kill(nanny, *args, **kwargs)

    monkeypatch.setattr(GuardedNanny, "kill", kill_soon)


@pytest.fixture
def forked_workers() -> Iterator[None]:
    """Fork the workers of Dask's own clusters from the forkserver of this test process.

    Otherwise each imports Dask and pandas, which takes two seconds of CPU time.
    """
    import dask.config

    from hyperplane.clusters.dask.local import forkserver
    from hyperplane.core.dask_internals.start_methods import keep_forkserver_modules

    if not forkserver.acquire([], forkserver._pre_spawn_variables()):
        yield  # not on Linux
        return
    method = {"distributed.worker.multiprocessing-method": "forkserver"}
    try:
        with dask.config.set(method), keep_forkserver_modules():
            yield
    finally:
        forkserver.release()


def _running() -> list[Any]:
    """Return running clients and clusters, clients first, so that they do not reconnect."""
    if "distributed" not in sys.modules:
        return []
    from distributed import Client, SpecCluster

    instances = [*Client._instances, *SpecCluster._instances]
    return [
        each for each in instances if str(getattr(each.status, "name", each.status)) == "running"
    ]


@pytest.fixture(autouse=True)
def fail_on_running_clusters() -> Iterator[None]:
    # Otherwise later tests would compute on a cluster that a failed test has left, and fail, too.
    before = {id(each) for each in _running()}
    yield
    left = [each for each in _running() if id(each) not in before]
    for each in left:
        with suppress(Exception):
            each.close(timeout=60)  # a cluster that hangs must not block later tests
    if left:
        pytest.fail("left running: " + ", ".join(repr(each) for each in left))
