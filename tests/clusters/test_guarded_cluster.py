"""Close a cluster from two threads, and lost workers."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast
from unittest import mock

import dask
import pytest
from distributed import Scheduler
from subprograms import wait_until

from hyperplane.clusters.dask import guarded_cluster
from hyperplane.clusters.dask.cluster_guards import ClusterGuards
from hyperplane.clusters.dask.guarded_cluster import GuardedCluster
from hyperplane.clusters.dask.recovery import RecoverySettings
from hyperplane.guard.memory_advice import WorkerLayout
from hyperplane.guard.oom_retry import OomRetry

#: With a free port for the dashboard: of a port that another program uses, Dask warns, and in these
#: tests a warning is an error, with which the start fails.
SCHEDULER = {
    "cls": Scheduler,
    "options": {"dashboard": False, "dashboard_address": "127.0.0.1:0", "host": "127.0.0.1"},
}


def create_cluster(kind: type[GuardedCluster] = GuardedCluster) -> GuardedCluster:
    """Start a cluster without workers."""
    return kind(
        scheduler=SCHEDULER,
        scheduler_config={},
        cluster_config={},
        guards=ClusterGuards(RecoverySettings(None, "raise"), WorkerLayout()),
        release=lambda: None,
    )


class SlowToClose(GuardedCluster):
    """A cluster without workers whose closing the test delays."""

    def __init__(self, **options: Any) -> None:
        self.closing, self.may_close = threading.Event(), threading.Event()
        super().__init__(**options)

    async def _close(self) -> None:
        self.closing.set()
        while not (self.starting or self.may_close.is_set()):  # a start that fails closes it, too
            await asyncio.sleep(0.01)
        await super()._close()


@pytest.fixture
def cluster() -> Iterator[SlowToClose]:
    found = cast(SlowToClose, create_cluster(SlowToClose))
    yield found
    found.may_close.set()
    found.close()


def test_two_threads_may_close_a_cluster(cluster: SlowToClose) -> None:
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(cluster.close_all)]
        assert cluster.closing.wait(120)
        both.append(pool.submit(cluster.close))
        time.sleep(0.3)  # so that it is usually in progress when the first one stops the loop
        cluster.may_close.set()
        assert [each.result(timeout=120) for each in both] == [None, None]
    assert cluster.status.name == "closed"


def test_close_with_a_time_limit_does_not_wait_for_another_thread(cluster: SlowToClose) -> None:
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(cluster.close)
        assert cluster.closing.wait(120)
        with pytest.raises(TimeoutError, match="another thread did not close the cluster"):
            cluster.close(timeout="100ms")  # as for a cluster of Dask
        cluster.may_close.set()
        first.result(timeout=120)


def test_a_cluster_closes_although_its_client_does_not(cluster: SlowToClose) -> None:
    client = mock.Mock()
    client.close.side_effect = ValueError("IOStream is not idle; cannot convert to SSL")
    cluster.remember_client(client)
    cluster.may_close.set()
    with pytest.raises(ValueError, match="not idle"):
        cluster.close_all()
    assert cluster.status.name == "closed"


def test_a_client_is_closed_although_its_futures_cannot_be_cancelled(
    cluster: SlowToClose,
) -> None:
    """It closes at this moment, for example."""
    client = mock.Mock(status="running", futures={"x": None})
    client.cancel.side_effect = ValueError("closed")
    cluster.remember_client(client)
    cluster.may_close.set()
    with (
        mock.patch.object(guarded_cluster, "Future"),
        pytest.raises(ValueError, match="closed"),
    ):
        cluster.close_all()
    client.close.assert_called_once_with()
    assert cluster.status.name == "closed"


class LoanDouble(OomRetry):
    """Plugin of a scheduler on whose node one nanny may have lent its memory."""

    def __init__(self) -> None:
        super().__init__(lends=True)
        self.lenders, self.questions = {"tcp://nanny"}, 0

    @property
    def suspended(self) -> set[str]:
        self.questions += 1
        return self.lenders


def test_a_worker_is_not_lost_while_it_lends_its_memory(
    cluster: SlowToClose, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have ended before the loan began, so that Dask already waits for its return."""
    loan, worker = LoanDouble(), mock.AsyncMock()
    cluster.may_close.set()
    cluster.scheduler.add_plugin(loan)

    async def lose_worker() -> None:
        cluster.workers[0] = worker
        cluster.scheduler_info["workers"]["tcp://w"] = {"name": 0, "nanny": "tcp://nanny"}
        cluster._update_worker_status("remove", "tcp://w")

    monkeypatch.setattr(guarded_cluster, "_SUSPENDED_SECONDS", 0.01)
    with dask.config.set({"distributed.deploy.lost-worker-timeout": "10ms"}):
        cluster.sync(lose_worker)
        wait_until(lambda: loan.questions > 2, 60)
        assert list(cluster.workers.values()) == [worker]
        loan.lenders = set()
        wait_until(lambda: not cluster.workers, 60)
    wait_until(lambda: worker.close.await_count == 1, 60)


def test_a_worker_that_ended_while_it_registered_is_ignored(cluster: SlowToClose) -> None:
    """The task of Dask that follows workers would end with a KeyError, as would ``close()``."""
    cluster.may_close.set()
    before = dict(cluster.scheduler_info["workers"])
    cluster._update_worker_status("remove", "tcp://never-added")
    assert cluster.scheduler_info["workers"] == before


def test_without_a_timeout_a_loan_is_not_asked_for_all_the_time(cluster: SlowToClose) -> None:
    cluster.may_close.set()
    cluster.scheduler.add_plugin(LoanDouble())
    delays: list[float] = []

    def call_later(delay: float, call: Callable[[], None]) -> None:
        delays.append(delay)
        if len(delays) == 1:
            call()

    async def lose_worker() -> None:
        cluster.workers[0] = mock.AsyncMock()
        with mock.patch.object(asyncio.get_running_loop(), "call_later", call_later):
            cluster._close_if_lost(0, "tcp://nanny")

    with dask.config.set({"distributed.deploy.lost-worker-timeout": 0}):
        cluster.sync(lose_worker)
    assert delays == [0, 1]
