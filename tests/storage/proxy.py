"""A proxy with injected faults in front of a real store, to test the libraries' own retries.

Its faults are :class:`faulty_store.Faults`; rates are fractions of requests.
"""

from __future__ import annotations

import contextlib
import http.client
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from faulty_store import Faults

_BODIES = {
    "gcs": '{{"error": {{"code": {code}, "message": "{name}"}}}}',
    "s3": '<?xml version="1.0"?><Error><Code>{name}</Code><Message>{name}</Message></Error>',
}
_NAMES = {
    "gcs": {"429": "rateLimitExceeded", "403": "forbidden", "404": "notFound"},
    "s3": {
        "429": "TooManyRequests",
        "500": "InternalError",
        "503": "SlowDown",
        "403": "AccessDenied",
        "404": "NoSuchBucket",
    },
}
_OWN = {"connection", "keep-alive", "transfer-encoding", "content-length", "location", "date"}


class Proxy:
    """Test handle of a proxy: its URL, its faults, which may be changed, and its counts."""

    def __init__(self, upstream: str, faults: Faults) -> None:
        self.upstream, self.faults = upstream.rstrip("/"), faults
        self.url = ""
        #: Requests by ``ok``, ``lost`` or the kind of the fault.
        self.outcomes: Counter[str] = Counter()
        #: Set at the end, to wake threads that delay an answer.
        self.closing = threading.Event()
        self._tries: Counter[str] = Counter()
        self._lock = threading.Lock()

    def draw(self, request: str, writes: bool) -> str:
        """Draw what happens to a request."""
        faults = self.faults
        with self._lock:
            self._tries[request] += 1
            attempt = self._tries[request]
        dice = random.Random(f"{faults.seed} {request} {attempt}")
        slow, refused, lost = dice.random(), dice.random(), dice.random()
        kind = dice.choice(faults.kinds)
        if slow < faults.slow:
            self.closing.wait(faults.slow_seconds)
        if writes and lost < faults.lost:
            return "lost"
        if faults.permanent == "404" or (faults.permanent and writes):
            return faults.permanent
        return kind if refused < faults.transient else "ok"

    def note(self, outcome: str) -> None:
        """Count a request."""
        with self._lock:
            self.outcomes[outcome] += 1


@contextlib.contextmanager
def before(upstream: str, **faults: object) -> Iterator[Proxy]:
    """Run a proxy before a store, on 127.0.0.1."""
    proxy = Proxy(upstream, Faults(**faults))  # type: ignore[arg-type]

    class Handler(_Handler):
        pass

    Handler.proxy = proxy
    server = _Server(("127.0.0.1", 0), Handler)
    proxy.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield proxy
    finally:
        proxy.closing.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    #: Length of the accept queue; with the default of 5, many of 100 connections took seconds.
    request_queue_size = 128


class _Handler(BaseHTTPRequestHandler):
    proxy: Proxy
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # clients may disconnect at any time
            super().handle()

    def log_message(self, *parts: object) -> None:
        """Log nothing."""

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        writes = self.command in ("PUT", "POST", "DELETE")
        outcome = self.proxy.draw(f"{self.command} {self.path}", writes)
        self.proxy.note(outcome)
        if outcome in ("ok", "lost"):
            status, headers, content = self._forwarded(body)
            if outcome == "ok":
                self._send(status, headers, content)
                return
            outcome = "closed"
        if outcome == "reset":
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()
        elif outcome == "closed":
            self.connection.shutdown(socket.SHUT_RDWR)
        elif outcome == "timeout":
            self.proxy.closing.wait(self.proxy.faults.slow_seconds)
        else:
            self._refuse(outcome)
            return
        self.close_connection = True

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815

    def _forwarded(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        """Return the store's answer, with its addresses replaced by that of the proxy."""
        upstream = http.client.HTTPConnection(urlsplit(self.proxy.upstream).netloc)
        with contextlib.closing(upstream):
            headers = {k: v for k, v in self.headers.items() if k.lower() != "expect"}
            upstream.request(self.command, self.path, body, headers)
            reply = upstream.getresponse()
            reply_headers = [
                (key, value) for key, value in reply.getheaders() if key.lower() not in _OWN
            ]
            place = reply.getheader("Location")
            if place:
                reply_headers.append(
                    ("Location", place.replace(self.proxy.upstream, self.proxy.url))
                )
            length = reply.getheader("Content-Length")
            content = reply.read()
            if self.command == "HEAD":
                reply_headers.append(("Content-Length", length or "0"))
            return reply.status, reply_headers, content

    def _refuse(self, kind: str) -> None:
        like, after = self.proxy.faults.like, self.proxy.faults.retry_after
        name = _NAMES[like].get(kind, "backendError")
        headers = [] if after is None else [("Retry-After", str(after))]
        if self.command == "HEAD":
            self._send(int(kind), [*headers, ("Content-Length", "0")], b"")
            return
        self._send(int(kind), headers, _BODIES[like].format(code=kind, name=name).encode())

    def _send(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        self.send_response(status)
        for key, value in headers:
            self.send_header(key, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
