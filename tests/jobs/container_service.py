"""Base of services for tests that run containers as processes of this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class ContainerService(ABC):
    """An HTTP server, and a thread that advances the containers; ``url`` is its address.

    A subclass sets its own attributes first.
    """

    def __init__(self) -> None:
        #: Requests: name of the operation, and body.
        self.requests: list[tuple[str, Any]] = []
        #: Name of an operation -> what happens to its next requests, in turn.
        self.faults: dict[str, list[str]] = {}
        #: Seconds from SIGTERM to SIGKILL, enough for a handler of bash on a slow machine.
        self.stop_seconds = 5.0
        #: While set, jobs do not start, for this reason.
        self.waiting_for = ""
        self._lock = threading.RLock()
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                service.answer(self, self.rfile.read(length))

            def do_GET(self) -> None:
                self.do_POST()

            def do_DELETE(self) -> None:
                self.do_POST()

            def log_message(self, *arguments: Any) -> None:
                """Write nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._closing = threading.Event()
        self._threads = [
            threading.Thread(target=self._server.serve_forever, args=(0.05,)),
            threading.Thread(target=self._drive),
        ]
        for thread in self._threads:
            thread.start()

    @abstractmethod
    def answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        """Answer one request."""

    @abstractmethod
    def ids(self) -> list[str]:
        """Return the ids of all jobs."""

    @abstractmethod
    def started(self) -> list[str]:
        """Return the ids of the jobs whose containers were started."""

    @abstractmethod
    def running(self) -> list[str]:
        """Return the ids of the jobs that have not ended."""

    @abstractmethod
    def forget(self, job_id: str) -> None:
        """Make a job vanish: its container is killed, and the service does not have it."""

    @abstractmethod
    def interrupt(self, job_id: str, reason: str) -> None:
        """End a container for a reason outside of it."""

    @abstractmethod
    def _drive(self) -> None:
        """Start, observe and end containers until the service closes."""

    @abstractmethod
    def _processes(self) -> Iterable[subprocess.Popen[bytes] | None]:
        """Return the processes of all containers."""

    def close(self) -> None:
        """End all containers and the server."""
        self._closing.set()
        self._server.shutdown()
        for thread in self._threads:
            thread.join()
        self._server.server_close()
        for process in filter(None, self._processes()):
            send_signal(process, signal.SIGKILL)  # also what a container has left behind
            process.wait()

    def count(self, operation: str) -> int:
        """Return the number of requests for an operation."""
        return sum(name == operation for name, _ in self.requests)

    def bodies(self, operation: str) -> list[Any]:
        """Return the bodies of the requests for an operation."""
        return [body for name, body in self.requests if name == operation]


def send_signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to the first process of a container, SIGKILL to all, unless it has ended."""
    with contextlib.suppress(ProcessLookupError):
        (os.killpg if number == signal.SIGKILL else os.kill)(process.pid, number)


def send(
    handler: BaseHTTPRequestHandler,
    status: int,
    body: bytes,
    kind: str = "application/json",
    **headers: str,
) -> None:
    """Send an answer."""
    handler.send_response(status)
    handler.send_header("Content-Type", kind)
    handler.send_header("Content-Length", str(len(body)))
    for name, text in headers.items():
        handler.send_header(name.replace("_", "-"), text)
    handler.end_headers()
    handler.wfile.write(body)


def drop(handler: BaseHTTPRequestHandler) -> None:
    """Close the connection of a request without an answer."""
    handler.close_connection = True
    handler.connection.close()
