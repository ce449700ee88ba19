"""Pools of connections close while one of them is being cancelled."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from distributed.comm.core import CommClosedError
from distributed.core import Server

from hyperplane.core.dask_internals.connection_pools import allow_repeated_cancels

ADDRESS = "tcp://127.0.0.1:1"


async def close_during_cancel(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Close a server whose pool has cancelled a connection that has not ended yet."""
    cancelled, may_end = asyncio.Event(), asyncio.Event()

    async def connect(**options: Any) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
            await may_end.wait()

    await server.rpc.start()
    monkeypatch.setattr(server.rpc, "_connect", connect)
    opening = asyncio.ensure_future(server.rpc.connect(ADDRESS))
    while not server.rpc._connecting:
        await asyncio.sleep(0)
    server.rpc.remove(ADDRESS)
    await cancelled.wait()
    asyncio.get_running_loop().call_later(0.1, may_end.set)
    await server.close()
    with pytest.raises(CommClosedError):
        await opening


def test_a_server_closes_while_a_connection_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        server = Server({})
        allow_repeated_cancels(server)
        await close_during_cancel(server, monkeypatch)

    asyncio.run(asyncio.wait_for(run(), 60))
