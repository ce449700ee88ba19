"""When the lease of a cluster expires, with a clock of the test."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Client, Nanny, Scheduler
from distributed.worker import get_client

from hyperplane.guard import busy, lease
from hyperplane.guard.lease import HANDLER, LeaseGuard


class CheckedLease:
    """A lease of 40 s, 300 s while a connection is open and during the start, checked each second.

    Parameters
    ----------
    monkeypatch : pytest.MonkeyPatch
        Replaces the clock.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.ended = 1000.0, 0
        monkeypatch.setattr(lease, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.scheduler: Any = SimpleNamespace(handlers={}, clients={}, client_comms={})
        self.guard = LeaseGuard(40, 300)
        monkeypatch.setattr(self.guard, "end", self._count_end)
        asyncio.run(self._start())

    async def _start(self) -> None:
        await self.guard.start(self.scheduler)
        await self.guard.close()

    def _count_end(self) -> None:
        self.ended += 1

    def connect(self, client: str) -> None:
        self.scheduler.clients[client] = SimpleNamespace(last_seen=self.now)
        self.scheduler.client_comms[client] = None

    def disconnect(self, client: str) -> None:
        del self.scheduler.clients[client], self.scheduler.client_comms[client]

    def wait(self, seconds: int, heartbeats: str = "", renewals: bool = False) -> bool:
        """Let time pass; return whether the lease has expired."""
        for second in range(seconds):
            self.now += 1
            if heartbeats and second % 5 == 0:
                self.scheduler.clients[heartbeats].last_seen = self.now
            if renewals and second % 5 == 0:
                self.scheduler.handlers[HANDLER]()
            self.guard.check_lease()
        return self.guard.expired


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> CheckedLease:
    return CheckedLease(monkeypatch)


def test_a_lease_expires_some_seconds_after_the_last_client_has_gone(
    checked: CheckedLease, caplog: pytest.LogCaptureFixture
) -> None:
    checked.connect("Client-1")
    assert not checked.wait(1000, heartbeats="Client-1")
    checked.disconnect("Client-1")
    assert not checked.wait(34)  # the last heartbeat was up to 5 s before
    assert checked.wait(10)
    assert checked.ended == 1, "ended once, however many checks follow"
    assert "no program has used this cluster for 40 s" in caplog.text


def test_another_client_renews_the_lease(checked: CheckedLease) -> None:
    checked.connect("Client-1")
    checked.wait(10, heartbeats="Client-1")
    checked.disconnect("Client-1")
    checked.wait(30)
    checked.connect("Client-2")
    assert not checked.wait(1000, heartbeats="Client-2")


def test_the_owner_renews_the_lease_without_a_client(checked: CheckedLease) -> None:
    assert not checked.wait(1000, renewals=True)
    assert checked.wait(45)


def test_a_silent_client_has_more_time_while_its_connection_is_open(checked: CheckedLease) -> None:
    checked.connect("Client-1")
    checked.wait(10, heartbeats="Client-1")
    assert not checked.wait(290), "it may hold the GIL"
    checked.wait(1, heartbeats="Client-1")
    assert not checked.wait(290)
    assert checked.wait(20), "or be on a machine that is gone, behind a proxy"


def test_silence_before_the_end_of_the_connection_counts(checked: CheckedLease) -> None:
    checked.connect("Client-1")
    checked.wait(10, heartbeats="Client-1")
    checked.wait(30)
    checked.disconnect("Client-1")  # TCP has noticed that the machine is gone
    assert not checked.wait(5)
    assert checked.wait(10)


def test_a_cluster_that_starts_waits_longer_for_the_first_renewal(checked: CheckedLease) -> None:
    assert not checked.wait(290)
    checked.connect("Client-1")
    assert not checked.wait(100, heartbeats="Client-1")
    checked.disconnect("Client-1")
    assert checked.wait(45)


def test_a_cluster_whose_start_was_killed_ends(checked: CheckedLease) -> None:
    assert checked.wait(305)


def test_the_time_in_which_the_scheduler_was_stopped_does_not_count(checked: CheckedLease) -> None:
    checked.connect("Client-1")
    checked.wait(10, heartbeats="Client-1")
    checked.disconnect("Client-1")
    checked.now += 3600
    assert not checked.wait(30)
    assert checked.wait(15)


def test_a_lease_that_is_renewed_in_time_before_the_platform_acts_is_valid_again(
    checked: CheckedLease,
) -> None:
    checked.connect("Client-1")
    checked.wait(10, heartbeats="Client-1")
    checked.disconnect("Client-1")
    assert checked.wait(45)
    checked.connect("Client-2")
    assert not checked.wait(1)


def test_a_client_that_is_disconnecting_is_no_error(checked: CheckedLease) -> None:
    checked.connect("Client-1")
    checked.wait(10, heartbeats="Client-1")
    del checked.scheduler.clients["Client-1"]  # its connection is still open
    assert checked.wait(45)


@pytest.mark.parametrize("module", [lease, busy])
def test_a_guard_that_a_preload_has_added_is_started_once(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    watches: list[Any] = []

    def watch(callback: Any, interval: float) -> Any:
        watches.append(callback)
        return SimpleNamespace(start=lambda: None, stop=lambda: None)

    plugins: list[Any] = []
    ttl = SimpleNamespace(callback=lambda: None)
    scheduler: Any = SimpleNamespace(
        add_plugin=plugins.append,
        handlers={},
        worker_ttl=300,
        periodic_callbacks={"worker-ttl": ttl},
    )
    monkeypatch.setattr(module, "PeriodicCallback", watch)

    async def start() -> None:
        await module.dask_setup(scheduler)
        callback = ttl.callback
        for plugin in plugins:  # as the scheduler does after its preloads
            await plugin.start(scheduler)
        assert ttl.callback is callback

    asyncio.run(start())
    assert len(watches) == 1


@pytest.mark.cluster
def test_a_client_of_a_task_does_not_renew_the_lease() -> None:
    asyncio.run(_client_of_a_task())


async def _client_of_a_task() -> None:
    options: dict[str, Any] = {"dashboard_address": "127.0.0.1:0", "host": "127.0.0.1"}

    def connect() -> str:
        return get_client().id

    async with (
        Scheduler(**options) as scheduler,
        Nanny(scheduler.address, nthreads=1, **options),  # a separate process has its own client
    ):
        guard = LeaseGuard(0.4, 0.4)
        scheduler.add_plugin(guard)
        await guard.start(scheduler)
        async with Client(scheduler.address, asynchronous=True) as client:
            of_task = await client.submit(connect)
            assert not guard.expired
        assert list(scheduler.client_comms) == [of_task]
        while not guard.expired:
            await asyncio.sleep(0.05)
