"""Private names of distributed's clients: their connection to the scheduler; loads distributed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from distributed.core import PooledRPCCall

__all__ = [
    "add_periodic_check",
    "cancel_futures",
    "end_pending_futures",
    "precede_reconnection",
    "replace_calls",
    "wait_for_either",
]

#: A coroutine function with the keyword arguments of a call to the scheduler.
SchedulerCall = Callable[..., Awaitable[Any]]


class _WatchedScheduler(PooledRPCCall):
    """A client's calls to its scheduler, each of which is passed to a function."""

    def __init__(self, calls: Any, watch: Callable[[SchedulerCall], SchedulerCall]) -> None:
        super().__init__(calls.addr, calls.pool, calls.serializers, calls.deserializers)
        self._watch = watch

    def __getattr__(self, key: str) -> Any:
        return self._watch(super().__getattr__(key))


def replace_calls(client: Any, watch: Callable[[SchedulerCall], SchedulerCall]) -> Any:
    """Let `watch` wrap each call of a client to its scheduler; return Dask's object for calls."""
    original = client.scheduler
    client.scheduler = _WatchedScheduler(original, watch)
    return original


def add_periodic_check(client: Any, name: str, check: Any) -> None:
    """Start a PeriodicCallback that stops when the client closes."""
    client._periodic_callbacks[name] = check
    client.loop.add_callback(check.start)


def end_pending_futures(client: Any, create_error: Callable[[Any], Exception]) -> None:
    """End the futures of a client that are pending with an error for their key."""
    for key, state in client.futures.items():
        if state.status == "pending":
            state.set_error(create_error(key), None)


def cancel_futures(client: Any, create_error: Callable[[Any], Exception]) -> None:
    """Cancel all futures of a client with an error for their key, as Dask does."""
    for key, state in client.futures.items():
        state.cancel()
        state.exception = create_error(key)
    client.futures.clear()


def precede_reconnection(client: Any, lost: Callable[[], object]) -> None:
    """Call `lost` before a client cancels its futures because its connection was closed.

    Also before it closes, if it could not connect again.
    """
    kind = type(client)

    async def reconnect() -> None:
        closing = vars(client).get("_close")

        async def close(fast: bool = False) -> Any:
            lost()
            if closing is not None:
                return await closing(fast=fast)
            return await kind._close(client, fast=fast)

        lost()
        vars(client)["_close"] = close
        try:
            await kind._reconnect(client)
        finally:
            if closing is not None:
                vars(client)["_close"] = closing
            else:
                vars(client).pop("_close", None)

    vars(client)["_reconnect"] = reconnect


async def wait_for_either(call: asyncio.Future[Any], event: asyncio.Event) -> None:
    """Return when a call has ended or an event is set."""
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({call, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
