"""The proxy of the chaos tests drops, delays, slows and cuts the connections of one worker."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from chaos_proxy import WorkerProxy


@pytest.fixture
def echo() -> Iterator[int]:
    """Port of a server that returns what it receives."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

        def answer(connection: socket.socket) -> None:
            with connection:
                try:
                    while data := connection.recv(65536):
                        connection.sendall(data)
                except OSError:
                    return

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.fixture
def proxy() -> Iterator[WorkerProxy]:
    with WorkerProxy("127.0.0.1").running() as running:
        yield running


def connect(proxy: WorkerProxy, name: str, port: int) -> socket.socket:
    connection = socket.create_connection((proxy.host, proxy.port), timeout=60)
    connection.sendall(f"{name} 127.0.0.1 {port}\n".encode())
    return connection


def ask(connection: socket.socket) -> bytes:
    connection.sendall(b"question")
    return connection.recv(100)


def test_it_forwards_both_ways(proxy: WorkerProxy, echo: int) -> None:
    with connect(proxy, "0", echo) as connection:
        assert ask(connection) == b"question"
        assert ask(connection) == b"question"


def test_dropped_connections_are_those_of_one_worker(proxy: WorkerProxy, echo: int) -> None:
    with connect(proxy, "0", echo) as victim, connect(proxy, "1", echo) as other:
        assert ask(victim) == ask(other) == b"question"
        proxy.drop("0")
        with contextlib.suppress(ConnectionError):  # a reset, if the system has reported it
            assert victim.recv(100) == b""
        assert ask(other) == b"question"


def test_a_cut_connection_is_silent_until_it_is_healed(proxy: WorkerProxy, echo: int) -> None:
    with connect(proxy, "0", echo) as connection:
        assert ask(connection) == b"question"
        proxy.set_link("0", is_cut=True)
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            ask(connection)
        connection.settimeout(60)
        proxy.heal("0")
        assert connection.recv(100) == b"question"


@pytest.mark.parametrize("state", [{"delay": 0.2}, {"bytes_per_second": 40.0}])
def test_delayed_and_slow_connections_take_longer(
    proxy: WorkerProxy, echo: int, state: dict[str, float]
) -> None:
    with connect(proxy, "0", echo) as connection:
        proxy.set_link("0", **state)
        began = time.monotonic()
        assert ask(connection) == b"question"
        assert time.monotonic() - began >= 0.4, "there and back"
