"""A local cluster closes while worker processes start that will never have started."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from distributed import Client, WorkerPlugin
from process_states import has_ended
from subprograms import SOON, wait_until

import hyperplane

ONE: dict[str, Any] = {
    "num_workers": 1,
    "nprocs": 1,
    "nthreads": 1,
    "ram_gb_per_proc": 0.5,
    "local_fit": "exact",
}
pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.usefixtures("few_imports")]


class StopWhileStarting(WorkerPlugin):
    """Stop each worker process that starts while the file `marker` is there."""

    def __init__(self, marker: str) -> None:
        self.marker = marker

    def setup(self, worker: Any) -> None:
        if Path(self.marker).exists():
            os.kill(os.getpid(), signal.SIGSTOP)


def stopped_workers(cluster: Any) -> list[int]:
    """Return the worker processes of a cluster that are stopped."""
    started = [getattr(nanny.process, "pid", None) for nanny in list(cluster._created)]
    stopped = []
    for pid in filter(None, started):
        with suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() == psutil.STATUS_STOPPED:
                stopped.append(pid)
    return stopped


@pytest.fixture
def started(tmp_path: Path) -> Iterator[tuple[Client, Any]]:
    """Client and cluster of one process; each later process stops before it has started."""
    client, cluster = hyperplane.start(hyperplane.plan_cluster(**ONE))
    marker = tmp_path / "stop"
    client.register_plugin(StopWhileStarting(str(marker)))
    marker.touch()
    yield client, cluster
    client.close()
    for pid in stopped_workers(cluster):  # only if the test has failed
        os.kill(pid, signal.SIGKILL)
    cluster.close(timeout=SOON)


@pytest.mark.parametrize("scheduler_ends", [False, True])
def test_a_cluster_closes_while_a_worker_is_restarting(
    started: tuple[Client, Any], scheduler_ends: bool, caplog: pytest.LogCaptureFixture
) -> None:
    client, cluster = started
    [pid] = client.run(os.getpid).values()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: stopped_workers(cluster), SOON)
    [process] = map(psutil.Process, stopped_workers(cluster))
    if scheduler_ends:
        client.close()
        loop = cluster.loop.asyncio_loop
        asyncio.run_coroutine_threadsafe(cluster.scheduler.close(), loop).result(SOON)
    cluster.close(timeout=SOON)
    assert cluster.status.name == "closed"
    assert has_ended(process)
    assert "CancelledError" not in caplog.text


def test_a_cluster_closes_while_a_new_worker_starts(started: tuple[Client, Any]) -> None:
    _, cluster = started
    cluster.scale(2)
    wait_until(lambda: stopped_workers(cluster), SOON)
    [process] = map(psutil.Process, stopped_workers(cluster))
    cluster.close(timeout=SOON)
    assert cluster.status.name == "closed"
    assert has_ended(process)
