"""A dask-gateway server for the tests of the gateway engine, with the users ada and ben."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from services import need

SCRIPTS = Path(__file__).parents[2] / "scripts" / "engines"
#: The variable that the engine is told to take a user's password from.
VARIABLE = "HYPERPLANE_TEST_GATEWAY_{user}"


@dataclass(frozen=True)
class Server:
    """A server that runs.

    Parameters
    ----------
    state : Path
        The folder that ``gateway_up`` has made.
    """

    state: Path

    def addresses(self) -> dict[str, str]:
        return dict(json.loads((self.state / "server.json").read_text()))

    def passwords(self) -> dict[str, str]:
        return dict(json.loads((self.state / "users.json").read_text()))

    def settings(self, user: str = "ada", **more: Any) -> dict[str, Any]:
        """Settings of the engine for a user; their passwords are in the environment."""
        told = self.addresses()
        return {
            "address": told["address"],
            "proxy_address": told["proxy_address"],
            "auth": "basic",
            "username": user,
            "password_variable": VARIABLE.format(user=user.upper()),
            **more,
        }

    def processes(self) -> list[psutil.Process]:
        """The schedulers, nannies and workers of the server's clusters."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.cwd().startswith(str(self.state / "clusters")):
                    found.append(process)
            except (psutil.Error, OSError):
                continue
        return found

    def kill(self) -> None:
        """End the server as a crash does; its clusters live on."""
        os.kill(int((self.state / "pid").read_text()), signal.SIGKILL)


@contextmanager
def server(folder: Path) -> Iterator[Server]:
    """A server that runs as long as the block does."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    there = shutil.which("dask-gateway-server", path=path) is not None
    need("no dask-gateway-server; pip install 'dask-gateway-server[local]'", there)
    environment = {**os.environ, "PATH": path, "HYPERPLANE_ENGINES": str(folder)}
    subprocess.run([SCRIPTS / "gateway_up"], env=environment, check=True, stdout=subprocess.DEVNULL)
    found = Server(folder / "gateway")
    for user, password in found.passwords().items():
        os.environ[VARIABLE.format(user=user.upper())] = password
    try:
        yield found
    finally:
        subprocess.run([SCRIPTS / "gateway_down"], env=environment, check=True)
        for user in ("ada", "ben"):
            os.environ.pop(VARIABLE.format(user=user.upper()), None)
