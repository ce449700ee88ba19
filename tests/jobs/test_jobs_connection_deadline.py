"""Servers that send a little of their answer again and again, and the end of the connections."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import dask.config
import pytest

from hyperplane.jobs import email_messages, json_posts
from hyperplane.jobs.connection_deadline import ConnectionDeadline
from hyperplane.jobs.email_messages import EmailError
from hyperplane.jobs.json_posts import PostError

#: Beginnings of answers, after each of which one character follows another.
BEGINNINGS = {
    "body": b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n",
    "no length": b"HTTP/1.1 200 OK\r\n\r\n",
    "header": b"HTTP/1.1 200 OK\r\nX: ",
    "status": b"",
}
#: Beginning of a record of TLS.
HANDSHAKE = b"\x16\x03\x03\x40\x00"


@pytest.fixture
def trickle() -> Iterator[Callable[..., int]]:
    """Return a function that starts such a server, and returns its port.

    It sends the beginnings of its answers, each but the first after a request.
    """
    servers: list[socket.socket] = []
    ended = threading.Event()

    def answer(server: socket.socket, beginnings: tuple[bytes, ...]) -> None:
        while not ended.is_set():
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                try:
                    for number, beginning in enumerate(beginnings):
                        if number:
                            connection.recv(1 << 16)
                        connection.sendall(beginning)
                    while not ended.wait(0.02):
                        connection.sendall(b"2")
                except OSError:
                    continue

    def start(*beginnings: bytes) -> int:
        server = socket.create_server(("127.0.0.1", 0))
        servers.append(server)
        threading.Thread(target=answer, args=(server, beginnings), daemon=True).start()
        return int(server.getsockname()[1])

    # A test that waits for such a server does not end: then the server ends its answers.
    limit = threading.Timer(60, ended.set)
    limit.daemon = True
    limit.start()
    yield start
    was_over = ended.is_set()
    limit.cancel()
    ended.set()
    for server in servers:
        server.close()
    assert not was_over, "the server has ended the connection"


@pytest.mark.parametrize("part", BEGINNINGS)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_post_has_a_total_time_limit(part, scheme, trickle, monkeypatch):
    monkeypatch.setattr(json_posts, "TOTAL_TIMEOUT", 0.3)
    monkeypatch.setenv("no_proxy", "*")
    # TLS reads the length of a record: the answer to its first message is never complete.
    beginning = BEGINNINGS[part] if scheme == "http" else HANDSHAKE
    port = trickle(beginning)
    with pytest.raises(PostError, match=r"no complete response in 0\.3 s; .*may have arrived"):
        json_posts.post(f"{scheme}://127.0.0.1:{port}/", {}, {})


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("part", ["header", "status"])
def test_the_answer_of_a_proxy_is_within_the_total_time_limit(part, scheme, trickle, monkeypatch):
    monkeypatch.setattr(json_posts, "TOTAL_TIMEOUT", 0.3)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv(f"{scheme}_proxy", f"http://127.0.0.1:{trickle(BEGINNINGS[part])}")
    with pytest.raises(PostError, match=r"no complete response in 0\.3 s"):
        json_posts.post(f"{scheme}://hooks.flights.example/", {}, {})


@pytest.mark.parametrize(
    ("security", "beginnings"),
    [
        ("none", [b""]),
        ("none", [b"220 x\r\n", b"250-"]),
        ("starttls", [b"220 x\r\n", b"250-x\r\n250 STARTTLS\r\n", b"220 go\r\n", HANDSHAKE]),
        ("tls", [HANDSHAKE]),
    ],
)
def test_an_email_has_a_total_time_limit(security, beginnings, trickle, monkeypatch):
    monkeypatch.setattr(email_messages, "TOTAL_TIMEOUT", 0.3)
    values = {"host": "127.0.0.1", "port": trickle(*beginnings), "security": security}
    with (
        dask.config.set({"hyperplane.email": values}),
        pytest.raises(EmailError, match=r"no complete answer in 0\.3 s; .*may have arrived"),
    ):
        email_messages.send("bob@flights.example", "s", "t", {})


def test_retries_end_at_the_total_time_limit(monkeypatch):
    """The next delay would end after it."""
    monkeypatch.setattr(json_posts, "TOTAL_TIMEOUT", 0.1)
    monkeypatch.setattr(json_posts, "_retry_seconds", lambda _: 60.0)
    monkeypatch.setenv("no_proxy", "*")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        with pytest.raises(PostError, match="in 1 attempt: no connection"):
            json_posts.post(f"http://127.0.0.1:{silent.getsockname()[1]}/", {}, {})


def test_a_connection_that_is_made_after_the_deadline_is_broken_at_once():
    ours, other = socket.socketpair()
    with ours, other, ConnectionDeadline(0.0) as deadline:
        while not deadline.is_over:
            time.sleep(0.001)
        deadline.watch(ours)
        assert other.recv(1) == b""


def test_a_connection_is_not_broken_before_the_deadline():
    ours, other = socket.socketpair()
    with ours, other:
        with ConnectionDeadline(60.0) as deadline:
            deadline.watch(ours)
        ours.sendall(b"x")
        assert other.recv(1) == b"x"
