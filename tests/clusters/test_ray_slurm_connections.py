"""Connections of the jobs of the engine ``ray:slurm`` with the program that submitted them."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from services import until

from hyperplane.clusters.ray.worker_program import RayWorkerProgram
from hyperplane.clusters.remote_nodes import job_connection
from hyperplane.clusters.remote_nodes.job_connection import ServerConnection
from hyperplane.clusters.remote_nodes.job_server import JobServer
from hyperplane.clusters.remote_nodes.worker_program import _create_folder
from hyperplane.core.event_loop_thread import EventLoopThread

Connect = Callable[[str], ServerConnection]


class Server:
    """A server for jobs in a thread, and what a job needs to connect."""

    def __init__(self, folder: Path) -> None:
        self.loop = EventLoopThread()
        self.server = JobServer()
        self.file = folder / "connection.json"
        self.file.write_text(self.run(self.server.start("127.0.0.1", folder)))

    def run(self, work: Any) -> Any:
        return self.loop.start(work).result(60)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        async def call() -> Any:
            return function(*arguments)

        return self.run(call())

    def close(self) -> None:
        self.run(self.server.close())
        self.run(asyncio.sleep(0.05))  # refused connections are closing
        self.loop.close()

    def wait(self, future: Any) -> Any:
        async def wait() -> Any:
            return await asyncio.wait_for(future, 60)

        return self.run(wait())


@pytest.fixture
def connect(server: Server) -> Iterator[Connect]:
    """A function that connects the job with a worker node."""
    connected = []

    def connect(name: str) -> ServerConnection:
        connected.append(ServerConnection(str(server.file), name))
        return connected[-1]

    yield connect
    for connection in connected:
        connection._loop.run(close(connection))
        connection._loop.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    yield made
    made.close()


async def close(job: ServerConnection) -> None:
    """Close a connection before its event loop: its other end may have done it already."""
    job._writer.close()
    with suppress(OSError, TimeoutError):
        await asyncio.wait_for(job._writer.wait_closed(), 5)


class TestConnections:
    def test_a_job_gets_its_configuration_and_replies(
        self, server: Server, connect: Connect
    ) -> None:
        future = server.call(server.server.expect, "one")
        job = connect("one")
        connection = server.wait(future)
        assert connection.host == "127.0.0.1"
        assert not server.server.is_expected("one")
        received: list[Any] = []

        def answer() -> None:
            received.append(job.read_configuration())
            job.send_reply(pid=7)

        thread = threading.Thread(target=answer)
        thread.start()
        sent = {"variables": {"HYPERPLANE_TEST": "set"}, "text": "é" * 100_000}
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HYPERPLANE_TEST", "")  # so that it is restored
            assert server.run(connection.exchange(sent)) == {"pid": 7}
            thread.join(60)
        assert received == [sent]
        ended = threading.Event()
        job.end_with_connection(ended.set, 1000)
        assert not connection.ended.is_set()
        server.call(connection.close)
        assert ended.wait(60), "the job ends with the connection"

    def test_the_end_of_a_job_is_seen(self, server: Server, connect: Connect) -> None:
        future = server.call(server.server.expect, "one")
        job = connect("one")
        connection = server.wait(future)
        job._loop.run(close(job))
        assert server.run(connection.exchange({})) == {}
        until(connection.ended.is_set, 60)

    @pytest.mark.parametrize("name", ["two", "forgotten", "one"])
    def test_jobs_that_are_not_expected_are_refused(
        self, server: Server, connect: Connect, name: str
    ) -> None:
        """Among them a second job with the name of one that has connected."""
        for each in ("one", "forgotten"):
            server.call(server.server.expect, each)
        server.call(server.server.forget, "forgotten")
        if name == "one":
            connect("one")
            until(lambda: not server.server.is_expected("one"), 60)
        job = connect(name)
        with pytest.raises(SystemExit, match="does not expect this job"):
            job.read_configuration()

    @pytest.mark.parametrize("line", ["wrong token", "[]", "{", '{"worker": "one"}', "x" * 200_000])
    def test_without_the_token_nothing_is_sent(self, server: Server, line: str) -> None:
        server.call(server.server.expect, "one")
        known = json.loads(server.file.read_text())
        if line == "wrong token":
            line = json.dumps({"worker": "one", "token": "f" * len(known["token"])})
        context = ssl.create_default_context(cadata=known["authority"])
        received = b""
        with (
            socket.create_connection((known["host"], known["port"]), 60) as plain,
            context.wrap_socket(plain, server_hostname=known["host"]) as encrypted,
            # It was closed with data that had not been read, perhaps while it was sent.
            suppress(ConnectionError, ssl.SSLEOFError),
        ):
            encrypted.sendall(f"{line}\n".encode())
            received = encrypted.recv(1)
        assert received == b""
        assert server.server.is_expected("one")

    def test_a_server_with_another_certificate_is_refused(
        self, server: Server, connect: Connect, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        other = Server(tmp_path_factory.mktemp("other"))
        known = json.loads(server.file.read_text())
        known["authority"] = json.loads(other.file.read_text())["authority"]
        server.file.write_text(json.dumps(known))
        with pytest.raises(ssl.SSLCertVerificationError):
            connect("one")
        other.close()

    def test_the_certificates_are_accepted_by_strict_checks(self, server: Server) -> None:
        """Those that Python 3.13 has by default."""
        known = json.loads(server.file.read_text())
        context = ssl.create_default_context(cadata=known["authority"])
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        with (
            socket.create_connection((known["host"], known["port"]), 60) as plain,
            context.wrap_socket(plain, server_hostname=known["host"]) as encrypted,
        ):
            assert encrypted.version() == "TLSv1.3"

    def test_the_wait_for_a_job_ends_with_its_error(self, server: Server) -> None:
        future = server.call(server.server.expect, "one")
        server.call(server.server.fail, "one", RuntimeError("it has ended"))
        with pytest.raises(RuntimeError, match="it has ended"):
            server.wait(future)
        server.call(server.server.fail, "one", RuntimeError("again"))  # of a job that has failed


def test_the_folder_of_a_node_is_created_and_short_enough_for_sockets(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        made = _create_folder({"local_directory": f"{short}/new"}, RayWorkerProgram())
        assert made.parent == Path(short, "new")
        long = Path(short, "x" * 60)
        with pytest.raises(OSError, match="too long for the sockets of Ray"):
            _create_folder({"local_directory": str(long)}, RayWorkerProgram())
        assert not any(long.iterdir())


def with_port(text: str, port: int) -> str:
    return json.dumps({**json.loads(text), "port": port})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (Path.unlink, "is no folder that the nodes share"),
        (lambda file: file.write_text(with_port(file.read_text(), 9)), "does not reach it"),
    ],
)
def test_a_job_that_cannot_connect_says_why(
    server: Server, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], Any], message: str
) -> None:
    change(server.file)
    monkeypatch.setattr("sys.argv", ["job_program", str(server.file), "one"])
    with pytest.raises(SystemExit, match=message):
        job_connection.connect()
