"""A small ssh server on the loopback address, whose commands run in a chosen environment.

It needs neither root nor sshd: connections, keys and commands are real, the host is this machine.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncssh


class SshServer:
    """A running server.

    Parameters
    ----------
    folder : Path
        Folder for keys.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, 0
        #: Environment variables of commands.
        self.variables: dict[str, str] = {}
        self.commands: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def settings(self) -> dict[str, Any]:
        """Settings of the engine."""
        return {
            "hosts": ["127.0.0.1"],
            "port": self.port,
            "username": "tester",
            "client_keys": [str(self.folder / "id")],
            "known_hosts": str(self.folder / "known_hosts"),
        }

    def start(self) -> None:
        """Listen on a free port."""
        host_key = asyncssh.generate_private_key("ssh-ed25519")
        client_key = asyncssh.generate_private_key("ssh-ed25519")
        client_key.write_private_key(str(self.folder / "id"))
        client_key.write_public_key(str(self.folder / "authorized"))
        self._thread.start()
        self._acceptor = self._run(self._listen(host_key))
        self.port = self._acceptor.get_port()
        public = host_key.export_public_key().decode().strip()
        known = f"[127.0.0.1]:{self.port} {public}\n"
        (self.folder / "known_hosts").write_text(known, encoding="utf-8")

    def stop(self) -> None:
        """Close all connections."""
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _listen(self, host_key: Any) -> Any:
        return await asyncssh.listen(
            "127.0.0.1",
            0,
            server_host_keys=[host_key],
            authorized_client_keys=str(self.folder / "authorized"),
            process_factory=self._serve,
        )

    async def _close(self) -> None:
        self._acceptor.close()
        await self._acceptor.wait_closed()

    async def _serve(self, process: Any) -> None:
        self.commands.append(process.command)
        environment = {**os.environ, **self.variables}
        done = await asyncio.to_thread(
            subprocess.run,
            ["/bin/sh", "-c", process.command],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        process.stdout.write(done.stdout)
        process.stderr.write(done.stderr)
        process.exit(done.returncode)


@contextmanager
def running_ssh_server(folder: Path) -> Iterator[SshServer]:
    """Run a server during the block."""
    server = SshServer(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()
