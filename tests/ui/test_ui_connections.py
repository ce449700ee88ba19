"""Limits of connections to the page, on a socket in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from hyperplane.ui import connections

Work = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bytes]]
REQUEST = b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"


async def answer(scope: Any, receive: Any, send: Any) -> None:
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok"})


def connect(work: Work, application: Any = answer) -> bytes:
    """Call a function with a new connection to a server; no connection is left at its end."""

    async def run() -> bytes:
        loop, state = asyncio.get_running_loop(), ServerState()
        kind = connections.make_protocol_class()
        config = uvicorn.Config(
            application, http=kind, timeout_keep_alive=1, ws="none", log_config=None
        )
        server = await loop.create_server(
            lambda: kind(config=config, server_state=state, app_state={}, _loop=loop),
            "127.0.0.1",
        )
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            try:
                received = await asyncio.wait_for(work(reader, writer), 60)
            finally:
                writer.close()
            assert not state.connections
            return received

    return asyncio.run(run())


@pytest.mark.parametrize("has_answer", [False, True])
@pytest.mark.parametrize("sent", [b"", REQUEST[:9]])
def test_a_connection_without_a_whole_request_is_closed(
    monkeypatch: pytest.MonkeyPatch, sent: bytes, has_answer: bool
) -> None:
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.1)

    async def work(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        if has_answer:
            writer.write(REQUEST)
            await reader.readuntil(b"ok")
        writer.write(sent)
        return await reader.read()

    assert connect(work) == b""


def test_a_response_may_take_longer_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.05)

    async def answer_late(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.3)
        await answer(scope, receive, send)

    async def work(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(REQUEST.replace(b"host", b"connection: close\r\nhost"))
        return await reader.read()

    assert connect(work, answer_late).endswith(b"ok")


@pytest.mark.parametrize("is_known", [True, False])
def test_an_unknown_user_is_refused_before_a_byte_is_read(
    monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    monkeypatch.setattr(connections, "is_client_permitted", lambda peer, server: is_known)

    async def work(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(REQUEST.replace(b"host", b"connection: close\r\nhost"))
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""

    assert bool(connect(work)) is is_known


def test_a_connection_with_an_unknown_end_is_refused() -> None:
    assert not connections.is_permitted(None, ("127.0.0.1", 80))
    assert not connections.is_permitted(("127.0.0.1", 80), None)
