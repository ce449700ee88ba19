"""A server of ``hyperplane ui`` in a separate process, and requests of a browser to it."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit
from xml.etree import ElementTree

#: Seconds for a start on a busy machine.
LIMIT = 120


class Response(NamedTuple):
    """Status, headers in lower case, and text of a response."""

    code: int
    headers: dict[str, str]
    text: str


class Page(NamedTuple):
    """What a well-formed page has."""

    root: ElementTree.Element
    text: str

    @property
    def title(self) -> str:
        """The first heading."""
        return "".join(self.root.find(".//h1").itertext())

    @property
    def links(self) -> dict[str, str]:
        """Addresses by the texts of links."""
        return {"".join(each.itertext()): each.get("href") for each in self.root.iter("a")}

    @property
    def facts(self) -> dict[str, str]:
        """Texts by the labels of rows."""
        rows = [row for row in self.root.iter("tr") if row.find("th") is not None]
        return {
            "".join(row.find("th").itertext()): "".join(row.find("td").itertext())
            for row in rows
            if row.find("td") is not None
        }


def read(source: str) -> Page:
    """Read a page strictly: what is not well-formed, or is a script of the page, is an error."""
    root = ElementTree.fromstring(source.removeprefix("<!DOCTYPE html>\n"))
    for element in root.iter():
        tag = element.tag.removeprefix("{http://www.w3.org/2000/svg}")
        assert tag not in ("iframe", "object", "embed", "base"), tag
        if tag == "img":  # an artifact of a job, with a text for screen readers
            assert element.get("src").startswith(("/jobs/", "data:image/"))
            assert element.get("alt")
        if tag == "script":
            assert element.get("src") == "/live.js"
            assert not element.text
        names = [name for name in element.attrib if name.lower().startswith("on")]
        assert names == [], "an attribute has code"
        assert not element.get("href", "").lower().startswith("javascript:")
    body = root if root.find(".//body") is None else root.find(".//body")
    texts = [text for each in body.iter() if each.tag != "style"
             for text in (each.text, each.tail) if text]  # fmt: skip
    return Page(root, "\n".join(texts))


class UiServer:
    """The command in a separate session, as in another terminal."""

    def __init__(self, *arguments: str, folder: Path | None = None) -> None:
        script = "from hyperplane.cli import main; main()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, "ui", "--no-browser", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            cwd=folder,
            env={**os.environ, "COLUMNS": "80"},
        )
        watchdog = threading.Timer(LIMIT, self.process.kill)
        watchdog.start()
        line, note, hint = (self.process.stdout.readline() for _ in range(3))
        watchdog.cancel()
        prefix = "hyperplane ui is at "
        assert line.startswith(prefix), (line, self.process.communicate())
        #: File with the address and the token for programs.
        self.graphql_file = Path(
            note.strip().removeprefix("Programs find its GraphQL address in ").removesuffix(".")
        )
        assert hint == "It runs until you press Ctrl-C.\n"
        self.address = line.removeprefix(prefix).strip()
        parts = urlsplit(self.address)
        assert parts.hostname == "127.0.0.1"
        self.port = parts.port
        self.origin = f"http://127.0.0.1:{self.port}"
        self.token = parts.query.removeprefix("token=")
        self.cookie = ""

    def login(self) -> Response:
        """Open the printed address, and keep the cookie."""
        response = self.request(f"/?token={self.token}")
        self.cookie = response.headers["set-cookie"].partition(";")[0]
        return response

    def request(self, path: str, method: str = "GET", **headers: str | None) -> Response:
        """Send a request; underscores of the names of headers are hyphens."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        given.setdefault("cookie", self.cookie)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT)
        try:
            body = b"" if method == "POST" else None
            sent = {name: value for name, value in given.items() if value}
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            text = answer.read().decode()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Response(answer.status, found, text)
        finally:
            connection.close()

    def get(self, path: str, **query: object) -> Page:
        """Return a page, which must exist."""
        address = f"{path}?{urlencode(query, doseq=True)}" if query else path
        response = self.request(address)
        assert response.code == 200, (response.code, read(response.text).text)
        return read(response.text)

    def post(self, path: str) -> Response:
        """Send a form of a page of this server."""
        return self.request(path, "POST", origin=self.origin)

    def end(self, number: signal.Signals = signal.SIGINT) -> tuple[int, str, str]:
        """End it as Ctrl-C does; return exit code and both outputs."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, number)
        out, err = self.process.communicate(timeout=LIMIT)
        return self.process.returncode, out, err
