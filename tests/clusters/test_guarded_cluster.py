"""Close a cluster from two threads."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import pytest
from distributed import Scheduler

from hyperplane.clusters.dask.guarded_cluster import GuardedCluster


class SlowToClose(GuardedCluster):
    """A cluster without workers whose closing the test delays."""

    def __init__(self) -> None:
        self.closing, self.may_close = threading.Event(), threading.Event()
        super().__init__(
            scheduler={"cls": Scheduler, "options": {"dashboard": False, "host": "127.0.0.1"}},
            scheduler_config={},
            cluster_config={},
            idle_timeout=None,
            release=lambda: None,
        )

    async def _close(self) -> None:
        self.closing.set()
        while not self.may_close.is_set():
            await asyncio.sleep(0.01)
        await super()._close()


@pytest.fixture
def cluster() -> Iterator[SlowToClose]:
    found = SlowToClose()
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
