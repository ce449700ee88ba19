"""Owners of the ends of TCP connections, from sock_diag and from the tables in /proc."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
from users import OTHER, as_other_user

from hyperplane.platforms.local import socket_owners
from hyperplane.platforms.local.socket_owners import (
    ESTABLISHED,
    LISTEN,
    SocketOwner,
    find_listener,
    find_owner,
    read_state,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux reports owners")


@pytest.fixture(params=["sock_diag", "tables"], autouse=True)
def source(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "tables":

        def refuse(*ends: object) -> None:
            raise PermissionError(1, "as in a container that forbids it")

        monkeypatch.setattr(socket_owners, "_ask_kernel", refuse)
    return str(request.param)


@pytest.fixture(params=["127.0.0.1", "::1"])
def server(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    try:
        opened = socket.create_server((request.param, 0), family=family)
    except OSError:
        pytest.skip(f"this machine has no {request.param}")
    with opened:
        yield opened


def _ends(connection: socket.socket) -> tuple[tuple[str, int], tuple[str, int]]:
    return connection.getsockname()[:2], connection.getpeername()[:2]


def test_both_ends_of_a_connection(server: socket.socket) -> None:
    ours = SocketOwner(os.geteuid(), True, ESTABLISHED)
    with closing(socket.create_connection(server.getsockname()[:2])) as client:
        local, remote = _ends(client)
        assert find_owner(local, remote) == ours
        waiting = find_owner(remote, local)
        assert waiting is not None
        assert (waiting.has_process, waiting.state) == (False, ESTABLISHED)
        with closing(server.accept()[0]) as accepted:
            assert find_owner(remote, local) == ours
            assert read_state(accepted) == ESTABLISHED


def test_only_lines_with_the_two_ports_are_parsed(
    server: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[str] = []
    parse = socket_owners._parse_end

    def count(text: str) -> object:
        parsed.append(text)
        return parse(text)

    monkeypatch.setattr(socket_owners, "_parse_end", count)
    with socket.create_server(("127.0.0.1", 0)) as other, ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(socket.create_connection(other.getsockname()))
        client = stack.enter_context(closing(socket.create_connection(server.getsockname()[:2])))
        assert find_owner(*_ends(client)) == SocketOwner(os.geteuid(), True, ESTABLISHED)
        assert len(parsed) <= 4, "the two ends of the connection, or of its other end"


def test_a_listener_is_no_connection_and_a_connection_no_listener(server: socket.socket) -> None:
    address = server.getsockname()[:2]
    assert find_listener(address) == SocketOwner(os.geteuid(), True, LISTEN)
    assert find_owner(address, ("127.0.0.1", 1)) is None
    with closing(socket.create_connection(address)) as client:
        assert find_listener(client.getsockname()[:2]) is None


def test_a_server_on_all_addresses() -> None:
    with socket.create_server(("", 0)) as server:
        found = find_listener(("127.0.0.1", server.getsockname()[1]))
    assert found == SocketOwner(os.geteuid(), True, LISTEN)


def test_an_end_without_a_process(server: socket.socket) -> None:
    client = socket.create_connection(server.getsockname()[:2])
    local, remote = _ends(client)
    with closing(server.accept()[0]) as accepted:
        client.close()
        found = find_owner(local, remote)
        assert found is not None
        assert not found.has_process
        assert found.state != ESTABLISHED
        assert read_state(accepted) != ESTABLISHED


def test_an_ipv6_socket_with_an_ipv4_address() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_INET6) as client,
    ):
        try:
            client.connect(("::ffff:127.0.0.1", server.getsockname()[1]))
        except OSError:
            pytest.skip("this machine has no IPv6")
        accepted, address = server.accept()
        with accepted:
            found = find_owner(address, server.getsockname())
    assert found == SocketOwner(os.geteuid(), True, ESTABLISHED)


@pytest.mark.process
def test_another_user(server: socket.socket) -> None:
    address = server.getsockname()[:2]

    def connect() -> object:
        with closing(socket.create_connection(address)) as client:
            client.recv(1)  # until the parent has read the owner
            return "done"

    answers: list[SocketOwner | None] = []

    def accept() -> None:
        accepted, peer = server.accept()
        with accepted:
            answers.append(find_owner(peer[:2], address))

    thread = threading.Thread(target=accept)
    thread.start()
    assert as_other_user(connect) == "done"
    thread.join(30)
    assert answers == [SocketOwner(OTHER, True, ESTABLISHED)]
