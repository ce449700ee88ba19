"""Last steps of a remote start: the client, all workers, equal versions, or a reason."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import dask.config
import pytest
from distributed import Client, LocalCluster
from distributed.client import _global_clients

import hyperplane
from hyperplane.clusters.dask import recovery, start_errors, wait_for_workers
from hyperplane.clusters.dask.kubernetes import start as kubernetes_start
from hyperplane.clusters.dask.settings import restore_client_settings
from hyperplane.errors import SchedulerUnreachable, StartFailed, StartTimeout
from hyperplane.spec.settings import RemoteSettings

SETTINGS = RemoteSettings()


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """A cluster of one worker."""
    with LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0") as running:
        yield running
    restore_client_settings("joined")


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait_for_workers, "POLL_INTERVAL", 0.2)


def plan(workers: int, timeout: float = 120) -> hyperplane.ClusterPlan:
    return hyperplane.plan_cluster(
        engine="local",
        local_fit="exact",
        name="joined",
        num_workers=workers,
        nprocs=1,
        nthreads=1,
        ram_gb_per_proc=0.2,
        timeout=timeout,
    )


def clients() -> list[Client]:
    return [client for client in _global_clients.values() if client.status != "closed"]


def nothing() -> str:
    return "reason unknown."


def join(
    cluster: LocalCluster, workers: int, look: Callable[[], str] = nothing, timeout: float = 120
) -> Client:
    asked = plan(workers, timeout)
    return wait_for_workers.connect_client(cluster, asked, SETTINGS, time.monotonic(), look)


def test_the_client_is_returned_with_its_settings_applied(cluster: LocalCluster) -> None:
    with join(cluster, 1) as client:
        assert client.submit(sum, [1, 2]).result() == 3
        assert dask.config.get("dataframe.shuffle.method") == "tasks"


def test_explain_wait_is_called_while_workers_are_missing(cluster: LocalCluster) -> None:
    looks = []

    def look() -> str:
        looks.append(len(looks))
        if len(looks) == 2:
            cluster.scale(2)
        return "pending"

    with join(cluster, 2, look) as client:
        assert len(client.nthreads()) == 2
    assert len(looks) >= 2


def test_a_timeout_says_how_many_came_and_why(cluster: LocalCluster) -> None:
    began = time.monotonic()
    with pytest.raises(StartTimeout) as caught:
        join(cluster, 3, lambda: "job 17 waits: Resources.", timeout=0.7)
    assert time.monotonic() - began >= 0.7
    assert caught.value.engine == "local"
    assert str(caught.value).endswith(
        "1 of 3 worker processes connected within 0.7 s (timeout); everything was closed again. "
        "job 17 waits: Resources."
    )
    assert clients() == []


def test_the_time_that_the_start_took_before_counts(cluster: LocalCluster) -> None:
    asked, began = plan(2, timeout=1000), time.monotonic()
    with pytest.raises(StartTimeout):
        wait_for_workers.connect_client(cluster, asked, SETTINGS, began - 1001, nothing)


def test_connected_workers_are_accepted_after_the_deadline(cluster: LocalCluster) -> None:
    with wait_for_workers.connect_client(
        cluster, plan(1, timeout=1), SETTINGS, time.monotonic() - 2, nothing
    ):
        pass


@pytest.mark.parametrize(
    "error", [StartFailed("slurm", "the image is not there"), KeyboardInterrupt()]
)
def test_an_error_of_explain_wait_ends_the_wait(
    cluster: LocalCluster, error: BaseException
) -> None:
    def look() -> str:
        raise error

    with pytest.raises(type(error)):
        join(cluster, 2, look)
    assert clients() == []


def test_different_versions_end_the_wait(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Client._get_versions

    async def others(client: Client) -> Any:
        reported: Any = await real(client)
        reported["scheduler"]["packages"]["dask"] = "1.0"
        return reported

    monkeypatch.setattr(Client, "_get_versions", others)
    with pytest.raises(StartFailed, match=r"dask .* here, 1\.0 on the scheduler"):
        join(cluster, 1)
    assert clients() == []


def test_a_scheduler_that_does_not_answer_is_an_error_of_ours(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(self: Client) -> None:
        raise OSError("connection refused")

    monkeypatch.setattr(Client, "_get_versions", refused)
    said = f"{cluster.scheduler_address} does not answer this machine .OSError: connection refused"
    with pytest.raises(StartFailed, match=said):
        join(cluster, 1)
    assert clients() == []


def _stop(*args: object, **options: object) -> None:
    raise SchedulerUnreachable("no answer")


def test_a_scheduler_that_stops_while_it_gets_plugins_is_no_scheduler_without_plugins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client: Any = SimpleNamespace(register_plugin=_stop)
    monkeypatch.setattr(recovery, "register", _stop)
    with pytest.raises(SchedulerUnreachable):
        wait_for_workers._add_plugins(client, client, plan(1))
    recorder: Any = SimpleNamespace(spill=False, plan_fields={})
    with pytest.raises(SchedulerUnreachable):
        kubernetes_start._measure_usage(client, recorder)


async def _never(*args: object, **options: object) -> Any:
    await asyncio.sleep(1000)


def test_the_wait_for_workers_ends_if_the_scheduler_stops(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_errors, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(wait_for_workers, "_poll_workers", _never)
    with pytest.raises(StartFailed, match=r"does not answer this machine \(TimeoutError"):
        join(cluster, 2, timeout=0.5)
    assert clients() == []


def test_the_comparison_of_versions_ends_if_the_scheduler_or_a_worker_stops(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_errors, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(Client, "_get_versions", _never)
    said = f"{cluster.scheduler_address}, or a worker that it asks, did not answer within"
    with pytest.raises(StartFailed, match=said):
        join(cluster, 1, timeout=0.5)
    assert clients() == []
