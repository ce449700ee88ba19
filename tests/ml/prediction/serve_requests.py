"""A model server in a separate process, and requests to it."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


@dataclass
class Answer:
    """Status, headers and content of a response."""

    code: int
    headers: dict[str, str]
    text: str

    @property
    def content(self) -> Any:
        return json.loads(self.text)


@dataclass
class Server:
    """URL, token and process of a server."""

    url: str
    token: str = ""
    process: subprocess.Popen[str] | None = field(default=None, repr=False)
    context: ssl.SSLContext | None = None

    def connect(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        if parts.scheme == "https":
            return http.client.HTTPSConnection(
                str(parts.hostname), parts.port, timeout=120, context=self.context
            )
        return http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=120)

    def request(
        self,
        path: str,
        body: Any = None,
        token: str | None = None,
        method: str | None = None,
        **headers: str,
    ) -> Answer:
        connection = self.connect()
        try:
            return self.send(connection, path, body, token, method, **headers)
        finally:
            connection.close()

    def send(
        self,
        connection: http.client.HTTPConnection,
        path: str,
        body: Any = None,
        token: str | None = None,
        method: str | None = None,
        **headers: str,
    ) -> Answer:
        token = self.token if token is None else token
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        verb = method or ("GET" if body is None else "POST")
        connection.request(verb, path, body, headers)
        response = connection.getresponse()
        names = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, names, response.read().decode())

    def predict(self, instances: list[Any], model: str) -> Answer:
        return self.request(f"/v1/models/{model}:predict", {"instances": instances})


@contextmanager
def running_command(folder: Path, *arguments: str, **variables: str) -> Iterator[Server]:
    """Run ``hyperplane serve`` with a free port until the end of the block."""
    log = folder / "serve.log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", "import hyperplane.cli; hyperplane.cli.main()", "serve",
             "--port", "0", *arguments],
            stdout=subprocess.PIPE, stderr=errors, text=True, env={**os.environ, **variables},
        )  # fmt: skip
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("serving "), line + log.read_text()
            yield Server(line.split()[-1], process=process)
        finally:
            process.terminate()
            process.communicate(timeout=120)
