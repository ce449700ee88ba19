"""The connection of a program in a job of Slurm to the process that submitted the job.

The arguments of such a program are the file with what it needs to connect, and the name of its
worker. It ends with the connection.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from hyperplane.clusters.remote_nodes.job_server import enable_keepalive
from hyperplane.core.event_loop_thread import EventLoopThread

#: Maximum bytes of the configuration.
_LIMIT = 1 << 24


class ServerConnection:
    """The connection to the server of the process that submitted the job.

    Parameters
    ----------
    file : str
        File with the address of the server, its certificate, and the token.
    name : str
        Name of the worker.
    """

    def __init__(self, file: str, name: str) -> None:
        self._loop = EventLoopThread()
        server = json.loads(Path(file).read_text())
        try:
            self._reader, self._writer = self._loop.run(self._open(server))
            self._send(worker=name, token=server["token"])
        except BaseException:
            self._loop.close()
            raise

    async def _open(
        self, server: dict[str, Any]
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = ssl.create_default_context(cadata=server["authority"])
        reader, writer = await asyncio.open_connection(
            server["host"], server["port"], ssl=context, limit=_LIMIT
        )
        enable_keepalive(writer.get_extra_info("socket"))
        return reader, writer

    def _send(self, **fields: Any) -> None:
        async def write() -> None:
            self._writer.write((json.dumps(fields) + "\n").encode())
            await self._writer.drain()

        self._loop.run(write())

    def read_configuration(self) -> dict[str, Any]:
        """Return the configuration, whose item ``variables`` is in the environment."""
        line = b""
        with suppress(OSError, ValueError):
            line = self._loop.run(self._reader.readline())
        if not line.endswith(b"\n"):
            raise SystemExit(
                "the cluster does not expect this job: it was withdrawn, another job has connected "
                "in its place, or the cluster has ended"
            )
        configuration: dict[str, Any] = json.loads(line)
        os.environ.update(configuration["variables"])
        return configuration

    def send_reply(self, **fields: Any) -> None:
        """Send the process ID of the worker as ``pid``, or a ``fault``."""
        if "fault" in fields:
            sys.stderr.write(f"{fields['fault']}\n")  # for the log of the job
        with suppress(OSError):  # the connection has ended, which ends this program
            self._send(**fields)

    def end_with_connection(self, stop: Callable[[], object], grace: float) -> None:
        """Call ``stop`` when the connection is closed; kill the process ``grace`` seconds later."""

        def wait() -> None:
            with suppress(OSError):
                self._loop.run(self._reader.read())
            stop()
            threading.Event().wait(grace)
            os._exit(1)

        threading.Thread(target=wait, name="hyperplane-connection", daemon=True).start()


def connect() -> ServerConnection:
    """Return the connection of the arguments of this program."""
    file, name = sys.argv[1:]
    try:
        return ServerConnection(file, name)
    except FileNotFoundError as error:
        raise SystemExit(
            f"{file} is not on this node: the cluster of this job has ended, or the setting "
            "shared_folder is no folder that the nodes share"
        ) from error
    except OSError as error:
        raise SystemExit(
            f"{error}: the cluster of this job has ended, or this node does not reach it by the "
            "setting interface"
        ) from error
