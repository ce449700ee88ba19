"""Connections from the jobs with workers, through which each gets its configuration.

A job and the process that submitted it are connected as long as both run. Each sees the end of the
other at once, which squeue would report later.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
import socket
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

from hyperplane.clusters.remote_nodes.certificates import CertificateAuthority

#: Seconds in which a new connection has to name its job.
_HELLO_SECONDS = 30.0
#: Seconds without an answer after which a connection is tested, between tests, and their number.
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 6}


def enable_keepalive(connection: Any) -> None:
    """Let a connection end when the other machine has been unreachable for a minute and a half."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):  # not on macOS
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class JobConnection:
    """The connection of a running job.

    Parameters
    ----------
    reader, writer
        Its streams.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        #: Address of the node, as this machine sees it.
        self.host = str(writer.get_extra_info("peername")[0])
        #: Set when the program of the job has ended or cannot be reached.
        self.ended = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None

    async def exchange(self, configuration: dict[str, Any]) -> dict[str, Any]:
        """Send the configuration, and return the reply; empty if the job has ended without one."""
        try:
            self._writer.write((json.dumps(configuration) + "\n").encode())
            await self._writer.drain()
            reply = json.loads(await self._reader.readline() or b"{}")
        except (OSError, ValueError):
            reply = {}
        self._watch = asyncio.create_task(self._wait())
        return reply if isinstance(reply, dict) else {}

    async def _wait(self) -> None:
        with suppress(OSError):
            while await self._reader.read(1024):
                pass
        self.ended.set()

    def close(self) -> None:
        """Close the connection, which ends the program of the job."""
        if self._watch is not None:
            self._watch.cancel()
        self.ended.set()
        self._writer.close()


class JobServer:
    """Accepts the connections of expected jobs at an address of this machine."""

    def __init__(self) -> None:
        self._token = secrets.token_hex(32)
        self._expected: dict[str, asyncio.Future[JobConnection]] = {}
        self._server: asyncio.Server | None = None

    async def start(self, host: str, folder: Path) -> str:
        """Listen, and return as text what a job needs to connect; it contains a secret.

        The certificate is in ``folder``, which only this user can enter.
        """
        issued = CertificateAuthority().issue(host)
        own = folder / "jobs"
        own.mkdir(mode=0o700)
        issued.write(own)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(own / "certificate.pem", own / "key.pem")
        self._server = await asyncio.start_server(self._accept, host, 0, ssl=context)
        port = self._server.sockets[0].getsockname()[1]
        return json.dumps(
            {
                "host": host,
                "port": port,
                "token": self._token,
                "authority": issued.authority.decode(),
            }
        )

    def expect(self, name: str) -> asyncio.Future[JobConnection]:
        """Return a future of the connection of the job with a worker."""
        self._expected[name] = asyncio.get_running_loop().create_future()
        return self._expected[name]

    def is_expected(self, name: str) -> bool:
        """Return whether the job with a worker has not connected yet."""
        return name in self._expected

    def fail(self, name: str, error: Exception) -> None:
        """Let the future of an expected job raise an error."""
        future = self._expected.pop(name, None)
        if future is not None and not future.done():
            future.set_exception(error)

    def forget(self, name: str) -> None:
        """Refuse the connection of a job that was expected."""
        self._expected.pop(name, None)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name = await self._read_name(reader)
        future = None if name is None else self._expected.pop(name, None)
        if future is None or future.done():
            writer.close()
            return
        enable_keepalive(writer.get_extra_info("socket"))
        future.set_result(JobConnection(reader, writer))

    async def _read_name(self, reader: asyncio.StreamReader) -> str | None:
        """Return the name of the worker; None without the token of the cluster."""
        with suppress(OSError, ValueError, KeyError, TypeError, TimeoutError):
            hello = json.loads(await asyncio.wait_for(reader.readline(), _HELLO_SECONDS))
            name, token = str(hello["worker"]), str(hello["token"])
            if hmac.compare_digest(token.encode(), self._token.encode()):
                return name
        return None

    async def close(self) -> None:
        """Accept no more connections."""
        if self._server is not None:
            self._server.close()
