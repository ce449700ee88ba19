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

import dask.config
import psutil
import pytest
from services import SCRIPTS, Slot, need, slot, until

from hyperplane.engines import records

SMALL: dict[str, Any] = {
    "num_workers": 1,
    "nprocs": 2,
    "nthreads": 1,
    "cores_per_worker": 2,
    "ram_gb_per_proc": 0.5,
    "timeout": 120,
}
#: All that the server's options can be told.
TOLD = {"worker_cores": "nthreads", "worker_memory": "ram_gib", "environment": "environment"}
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

    def folders(self) -> set[Path]:
        """A folder of each cluster."""
        return set((self.state / "clusters").iterdir())

    def kill(self) -> None:
        """End the server as a crash does; its clusters live on."""
        os.kill(int((self.state / "pid").read_text()), signal.SIGKILL)


def _environment(found: Slot) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "HYPERPLANE_ENGINES": str(found.folder)}


def _clean(found: Slot) -> None:
    subprocess.run([SCRIPTS / "gateway_down"], env=_environment(found), check=True)


@contextmanager
def server() -> Iterator[Server]:
    """A server that runs as long as the block does."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    there = shutil.which("dask-gateway-server", path=path) is not None
    need("no dask-gateway-server; pip install 'dask-gateway-server[local]'", there)
    with slot("gateway", _clean) as mine, pytest.MonkeyPatch.context() as patch:
        up = [SCRIPTS / "gateway_up"]
        subprocess.run(up, env=_environment(mine), check=True, stdout=subprocess.DEVNULL)
        found = Server(mine.folder / "gateway")
        for user, password in found.passwords().items():
            patch.setenv(VARIABLE.format(user=user.upper()), password)
        yield found


@pytest.fixture(scope="module")
def gateway() -> Iterator[Server]:
    with server() as running:
        yield running


@pytest.fixture(scope="module")
def surroundings(gateway: Server) -> Iterator[None]:
    """The settings of the engine for ada; nothing is left when the last test is over."""
    settings = gateway.settings()
    with dask.config.set({f"hyperplane.engines.gateway.{k}": v for k, v in settings.items()}):
        yield
    until(lambda: not gateway.processes() and not gateway.folders())


@pytest.fixture(autouse=True)
def nothing_left(
    surroundings: None, gateway: Server, request: pytest.FixtureRequest
) -> Iterator[None]:
    """No record, process or folder that a test has made is left when it is over."""
    processes, folders = set(gateway.processes()), gateway.folders()
    yield
    assert not records.read_all()
    # The processes of a cluster that several tests use end with the last one.
    if "one_cluster" not in request.fixturenames:
        until(lambda: set(gateway.processes()) <= processes, 60)
        until(lambda: gateway.folders() <= folders)
