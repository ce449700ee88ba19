"""A scheduler on a host that is stopped: the calls of its clients end, and the cluster closes."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest
from distributed import Client
from services import until
from services_ssh import HostNetwork, network, nothing_left, plan, surroundings

import hyperplane
from hyperplane.clusters.dask import recovery
from hyperplane.errors import SchedulerUnreachable, StartFailed
from hyperplane.guard import scheduler_watch
from hyperplane.guard.scheduler_watch import SchedulerWatch

pytestmark = [pytest.mark.engine, pytest.mark.slow]
__all__ = ["network", "nothing_left", "surroundings"]  # fixtures

SOON = 120.0


def test_a_stopped_scheduler_ends_the_calls_and_the_cluster_closes(
    network: HostNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler_watch, "GRACE_SECONDS", 1.0)
    client, cluster = hyperplane.start(plan(scheduler_deploy_mode="remote", stall_timeout=2))
    process = cluster.scheduler.pid
    assert process in network.processes(1)
    with client:
        future = client.submit(time.sleep, 1000, pure=False)
        until(lambda: any(client.processing().values()))
        os.kill(process, signal.SIGSTOP)
        with pytest.raises(SchedulerUnreachable, match="its process is stopped"):
            future.result(SOON)
    cluster.close()
    assert cluster.status.name == "closed"
    until(lambda: process not in network.processes(1), SOON)


def test_a_scheduler_that_continues_in_time_loses_nothing(
    network: HostNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A loaded machine may need long for the two samples of the process, and for the signal.
    monkeypatch.setattr(scheduler_watch, "GRACE_SECONDS", 600.0)
    client, cluster = hyperplane.start(plan(scheduler_deploy_mode="remote", stall_timeout=2))
    with cluster, client:
        watching = client.scheduler._watch.__self__
        assert isinstance(watching, SchedulerWatch)
        futures = client.map(lambda number: time.sleep(0.5) or number, range(10), pure=False)
        os.kill(cluster.scheduler.pid, signal.SIGSTOP)
        until(lambda: watching._silent > 5, SOON)  # longer than stall_timeout
        until(lambda: watching._state() == "stopped", SOON)  # otherwise it would have minutes
        os.kill(cluster.scheduler.pid, signal.SIGCONT)
        assert client.gather(futures) == list(range(10))
        until(lambda: watching._silent == 0, SOON)
        assert not watching._samples


def test_a_scheduler_that_stops_during_the_start_ends_it(
    network: HostNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = []

    def stop_first(client: Client, *args: Any, **options: Any) -> None:
        stopped.append(client.cluster.scheduler.pid)
        os.kill(stopped[0], signal.SIGSTOP)
        register(client, *args, **options)

    register = recovery.register
    monkeypatch.setattr(recovery, "register", stop_first)
    monkeypatch.setattr(scheduler_watch, "GRACE_SECONDS", 1.0)
    with pytest.raises(StartFailed, match="does not answer"):
        hyperplane.start(plan(scheduler_deploy_mode="remote", stall_timeout=2))
    until(lambda: stopped[0] not in network.processes(1), SOON)
