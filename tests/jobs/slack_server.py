"""A Slack-like server in this process."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "xoxb-s3cret-token"


@dataclass
class Response:
    """Response of the server to one request."""

    code: int = 200
    body: str = '{"ok": true}'
    headers: dict[str, str] = field(default_factory=dict)
    #: The server responds once this is set.
    released: threading.Event | None = None


@dataclass
class Slack:
    """The server, with the requests that it received and the responses that it will send."""

    url: str
    requests: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    responses: list[Response] = field(default_factory=list)

    @property
    def documents(self) -> list[Any]:
        return [document for _, _, document in self.requests]


def serve() -> tuple[Slack, Callable[[], None]]:
    """Start a server; return it and a function that stops it."""
    slack = Slack("")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            slack.requests.append((self.path, dict(self.headers), json.loads(body)))
            response = slack.responses.pop(0) if slack.responses else Response()
            if response.released is not None:
                response.released.wait(120)
            if self.path.startswith("/api") and response == Response():
                known = self.headers["Authorization"] == f"Bearer {TOKEN}"
                response = (
                    Response() if known else Response(body='{"ok": false, "error": "invalid_auth"}')
                )
            self.send_response(response.code)
            for name, value in response.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(response.body.encode())))
            self.end_headers()
            self.wfile.write(response.body.encode())

        def do_GET(self) -> None:
            slack.requests.append((self.path, dict(self.headers), "GET"))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

        def handle(self) -> None:
            with contextlib.suppress(OSError):  # the client has disconnected
                super().handle()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    slack.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return slack, end
