"""Requests of clients that a scheduler on a host passes on to the owner of its cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.core import Status

from hyperplane.clusters.dask import owner_relay
from hyperplane.clusters.dask.owner_relay import (
    TAKE_REQUEST,
    OwnerRelay,
    carry_out_requests,
)
from hyperplane.clusters.dask.owner_requests import READ_LIMITS, SCALE_OWNER
from hyperplane.errors import EngineError


class Connection:
    """A connection to a scheduler, which calls its handlers."""

    def __init__(self, handlers: dict[str, Any]) -> None:
        self.handlers, self.fails, self.taken = handlers, 0, 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def call(**arguments: Any) -> Any:
            self.taken += name == TAKE_REQUEST
            if self.fails:
                self.fails -= 1
                raise OSError("the connection has failed")
            if name not in self.handlers:
                return None  # as Dask answers
            result = self.handlers[name](**arguments)
            return await result if asyncio.iscoroutine(result) else result

        return call


class Owner:
    """A cluster object."""

    _adaptive = None

    def __init__(self, connection: Connection) -> None:
        self.status, self.scheduler_comm = Status.running, connection
        self.asked: list[int] = []

    def scale(self, n: int) -> None:
        if n > 4:
            raise EngineError("ssh", "no host is free for one more node")
        if n < 0:
            raise ValueError("a fault")
        self.asked.append(n)


def use(work: Callable[[Connection, Owner], Any], with_relay: bool = True) -> None:
    """Run an owner beside its scheduler."""

    async def run() -> None:
        scheduler = SimpleNamespace(handlers={})
        if with_relay:
            OwnerRelay(scheduler)  # type: ignore[arg-type]
        connection = Connection(scheduler.handlers)
        owner = Owner(connection)
        following = asyncio.ensure_future(carry_out_requests(owner))
        await work(connection, owner)
        owner.status = Status.closed
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    asyncio.run(run())


def test_requests_are_carried_out_in_turn_and_errors_are_those_of_the_owner() -> None:
    async def work(connection: Connection, owner: Owner) -> None:
        scale = getattr(connection, SCALE_OWNER)
        assert await asyncio.gather(*(scale(n=n) for n in (1, 2, 3))) == [True] * 3
        assert owner.asked == [1, 2, 3]
        assert await getattr(connection, READ_LIMITS)() is None
        with pytest.raises(EngineError, match="no host is free for one more node"):
            await scale(n=5)
        with pytest.raises(EngineError, match="ValueError: a fault"):
            await scale(n=-1)
        assert await scale(n=4)

    use(work)


def test_an_owner_that_does_not_answer_is_an_error_and_its_request_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(owner_relay, "ANSWER_SECONDS", 0.05)
    monkeypatch.setattr(owner_relay, "WAIT_SECONDS", 0.05)

    async def run() -> None:
        scheduler = SimpleNamespace(handlers={})
        relay = OwnerRelay(scheduler)  # type: ignore[arg-type]
        with pytest.raises(EngineError, match="did not answer within"):
            await relay.scale_owner(n=3)
        assert await relay.take_request() == {}, "its client has the error already"
        assert relay.return_result(number=1, answer={"value": True}), "it came too late"

    asyncio.run(run())


def test_the_owner_asks_again_after_a_pause_or_an_error_of_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(owner_relay, "WAIT_SECONDS", 0.01)
    monkeypatch.setattr(owner_relay, "RETRY_SECONDS", 0.01)

    async def work(connection: Connection, owner: Owner) -> None:
        connection.fails = 2
        while connection.taken < 5:
            await asyncio.sleep(0.01)
        assert await getattr(connection, SCALE_OWNER)(n=2)
        assert owner.asked == [2]

    use(work)


def test_the_owner_of_a_scheduler_without_these_requests_stops_asking() -> None:
    async def work(connection: Connection, owner: Owner) -> None:
        await asyncio.sleep(0.05)
        assert connection.taken == 1

    use(work, with_relay=False)


def test_an_owner_that_is_collected_is_no_longer_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner_relay, "WAIT_SECONDS", 0.01)

    async def run() -> None:
        scheduler = SimpleNamespace(handlers={})
        OwnerRelay(scheduler)  # type: ignore[arg-type]
        owner = Owner(Connection(scheduler.handlers))
        following = asyncio.ensure_future(carry_out_requests(owner))
        await asyncio.sleep(0)
        del owner
        async with asyncio.timeout(30):
            await following

    asyncio.run(run())
