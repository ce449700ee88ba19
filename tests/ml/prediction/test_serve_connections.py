"""Connections of a model server: limits, half-closed sockets and TLS."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prediction_cases import Flights
from subprograms import wait_until
from test_serve_batches import SETTINGS

from hyperplane.errors import RequestError
from hyperplane.ml.serving import application, http_protocol, server_process
from hyperplane.ml.serving.serve_settings import make_settings

pytest.importorskip("starlette")
uvicorn = pytest.importorskip("uvicorn")

REQUEST = b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody"
LARGE = b"x" * 30_000_000


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the size of the body; /large with a large response, /early without reading."""
    size, path = 0, scope["path"]
    while path != "/early":
        message = await receive()
        size += len(message.get("body", b""))
        if not message.get("more_body"):
            break
    await asyncio.sleep(0.05)
    content = LARGE if path == "/large" else str(size).encode()
    headers = [(b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})


class Connections:
    """A server with the protocol of connections, in a thread."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(
            answer, http=http_protocol.make_protocol_class(), lifespan="off", ws="none",
            log_config=None, timeout_graceful_shutdown=10,
        )  # fmt: skip
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, args=([self.listener],))

    def connect(self) -> socket.socket:
        return socket.create_connection(self.listener.getsockname()[:2], timeout=60)

    def send(self, *pieces: bytes, half_closed: bool = False) -> bytes:
        """Send pieces, one after the other, and return all that arrives until the end."""
        with self.connect() as connection:
            for piece in pieces:
                connection.sendall(piece)
                time.sleep(0.02)
            if half_closed:
                connection.shutdown(socket.SHUT_WR)
            received = b""
            try:
                while data := connection.recv(65536):
                    received += data
            except ConnectionResetError:  # the rest of the request was not read
                pass
            return received


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> Iterator[Connections]:
    monkeypatch.setattr(http_protocol, "HEADER_SECONDS", 0.5)
    monkeypatch.setattr(http_protocol, "READ_SECONDS", 0.5)
    running = Connections()
    running.thread.start()
    wait_until(lambda: running.server.started, 60)
    yield running
    running.server.should_exit = True
    running.thread.join(60)
    assert not running.thread.is_alive()


def test_a_client_that_closes_its_side_for_writing_is_answered(connections: Connections) -> None:
    answered = connections.send(REQUEST, half_closed=True)
    assert answered.startswith(b"HTTP/1.1 200 OK")
    assert answered.endswith(b"4")
    assert connections.send(REQUEST * 3, half_closed=True).count(b"200 OK") == 3
    assert connections.send(REQUEST[:-1], half_closed=True) == b""


@pytest.mark.parametrize(
    "pieces",
    [
        [b""],
        [b"POST /x HTTP/1.1\r\nHo", b"st: x\r\n"],
        [b"\r\n"],
        [REQUEST, REQUEST[:30]],
    ],
    ids=["nothing", "a part", "blank", "a part after a request"],
)
def test_headers_that_do_not_arrive_in_time_are_refused(
    connections: Connections, pieces: list[bytes]
) -> None:
    answered = connections.send(*pieces)
    assert answered.count(b"200 OK") == pieces.count(REQUEST)
    assert b"408 Request Timeout" in answered
    assert answered.endswith(b'{"error": "the headers did not arrive within 0.5 seconds"}')


@pytest.mark.parametrize(
    "pieces",
    [
        [b"GET /x HTTP/1.1\r\n" + b"name: value\r\n" * 5_000 + b"\r\n"],
        [b"GET /x HTTP/1.1\r\nname: ", *[b"x" * 20_000] * 3],
        [b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\n\r\n"],
    ],
    ids=["many", "one", "path"],
)
def test_large_headers_are_refused(connections: Connections, pieces: list[bytes]) -> None:
    answered = connections.send(*pieces)
    assert answered.startswith(b"HTTP/1.1 431 ")
    assert b"at most 32,768 bytes" in answered


def test_requests_below_the_limits_are_answered_on_one_connection(connections: Connections) -> None:
    head = b"POST /x HTTP/1.1\r\nname: " + b"x" * 30_000 + b"\r\nContent-Length: 100000\r\n\r\n"
    early = b"POST /early HTTP/1.1\r\nContent-Length: 100000\r\n\r\n"
    body = b"x" * 50_000
    answered = connections.send(head, body, body, early, body, body, REQUEST, half_closed=True)
    assert answered.count(b"200 OK") == 3
    assert b"100000HTTP/1.1 200 OK" in answered


def test_a_client_that_leaves_before_the_responses_is_no_error(
    connections: Connections, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        with connections.connect() as connection:
            connection.sendall(REQUEST * 3)
            wait_until(lambda: bool(connections.server.server_state.tasks), 60)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_until(lambda: not connections.server.server_state.tasks, 60)
    assert caplog.records == []


def test_what_is_not_http_is_refused(connections: Connections) -> None:
    answered = connections.send(b"\x16\x03\x01" * 9)
    assert answered.startswith(b"HTTP/1.1 400 Bad Request")
    assert answered.endswith(b'{"error": "the request is not HTTP/1.1"}')


def test_a_slow_body_of_an_answered_request_ends_the_connection(connections: Connections) -> None:
    pieces = [b"x"] * 10_000
    head = b"POST /early HTTP/1.1\r\nContent-Length: 100000\r\n\r\n"
    with connections.connect() as connection, pytest.raises(OSError):  # noqa: PT011, PT012
        connection.sendall(head)
        assert b"200 OK" in connection.recv(65536)
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(0.02)


def test_a_response_that_is_not_read_ends_the_connection(connections: Connections) -> None:
    with connections.connect() as connection:
        connection.sendall(b"GET /large HTTP/1.1\r\n\r\n")
        wait_until(lambda: bool(connections.server.server_state.total_requests), 60)
        wait_until(lambda: not connections.server.server_state.connections, 60)


def test_a_server_without_encryption_for_other_machines_is_a_warning() -> None:
    given = {**SETTINGS, "host": "0.0.0.0", "token": "x"}
    assert "not encrypted" in make_settings("m.skops", **given).warning
    assert make_settings("m.skops", **SETTINGS).warning == ""


@pytest.mark.parametrize(
    ("names", "where", "text"),
    [
        (("both.pem", None), None, ""),
        (("certificate.pem", "key.pem"), None, ""),
        (("missing.pem", "key.pem"), "certificate", "path of a file"),
        ((None, "key.pem"), "certificate", "give the certificate of this key"),
        (("certificate.pem", "other.pem"), "key", "belongs to the certificate"),
        (("certificate.pem", None), "certificate", "belongs to the certificate"),
        (("certificate.pem", "encrypted.pem"), "key", "without a passphrase"),
        (("text.pem", "key.pem"), "key", "in PEM format"),
    ],
)
def test_a_certificate_and_its_key_are_checked(
    certificate: Path, names: tuple[str | None, str | None], where: str | None, text: str
) -> None:
    paths = [None if name is None else certificate / name for name in names]
    given = {**SETTINGS, "host": "0.0.0.0", "token": "x", "certificate": paths[0], "key": paths[1]}
    if where is None:
        settings = make_settings("m.skops", **given)
        assert settings.warning == ""
        assert json.loads(json.dumps(settings.to_dict()))["certificate"] == str(paths[0])
        return
    with pytest.raises(RequestError, match=text) as caught:
        make_settings("m.skops", **given)
    assert [fault.where for fault in caught.value.faults] == [where]


def test_a_signal_before_the_server_listens_ends_it(
    monkeypatch: pytest.MonkeyPatch, flights: Flights
) -> None:
    stop, ready = server_process.ServeStop(), list[str]()
    create = application.create_application

    def create_application(*arguments: Any) -> Any:
        stop.is_set = True  # the model is loaded, and uvicorn does not handle signals yet
        return create(*arguments)

    monkeypatch.setattr(application, "create_application", create_application)
    settings = make_settings(flights.url, **SETTINGS)
    listener = server_process.bind(settings)
    arguments = (settings, listener, lambda url, title, name: ready.append(url), stop)
    thread = threading.Thread(target=server_process.serve_socket, args=arguments, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert len(ready) == 1
