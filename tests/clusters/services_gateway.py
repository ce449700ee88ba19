"""A dask-gateway server for the tests of the gateway engine, with the users ada and ben."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask.config
import psutil
import pytest
from services import SCRIPTS, Slot, need, slot, until

from hyperplane.clusters import records

SMALL: dict[str, Any] = {
    "num_workers": 1,
    "nprocs": 2,
    "nthreads": 1,
    "cores_per_worker": 2,
    "ram_gb_per_proc": 0.5,
    "timeout": 120,
}
#: All quantities that the server's options can receive.
TOLD = {"worker_cores": "nthreads", "worker_memory": "ram_gib", "environment": "environment"}
#: The variable from which the engine takes a user's password.
VARIABLE = "HYPERPLANE_TEST_GATEWAY_{user}"


@dataclass(frozen=True)
class Server:
    """A running server.

    Parameters
    ----------
    state : Path
        The folder that ``gateway_up`` has created.
    """

    state: Path

    def addresses(self) -> dict[str, str]:
        return dict(json.loads((self.state / "server.json").read_text()))

    def passwords(self) -> dict[str, str]:
        return dict(json.loads((self.state / "users.json").read_text()))

    def settings(self, user: str = "ada", **more: Any) -> dict[str, Any]:
        """Return settings of the engine for a user whose password is in the environment."""
        addresses = self.addresses()
        return {
            "address": addresses["address"],
            "proxy_address": addresses["proxy_address"],
            "auth": "basic",
            "username": user,
            "password_variable": VARIABLE.format(user=user.upper()),
            **more,
        }

    def processes(self, but: Iterable[Path] = ()) -> list[psutil.Process]:
        """Return the schedulers, nannies and workers of the server's clusters.

        Parameters
        ----------
        but : iterable of Path
            Folders of clusters to leave out.
        """
        left_out, found = set(but), []
        for process in psutil.process_iter():
            try:
                folder = Path(process.cwd().removesuffix(" (deleted)"))
            except (psutil.Error, OSError):
                continue
            if folder.is_relative_to(self.state / "clusters") and folder not in left_out:
                found.append(process)
        return found

    def folders(self) -> set[Path]:
        """Return the folders of the clusters."""
        return set((self.state / "clusters").iterdir())

    def kill(self) -> None:
        """Kill the server; its clusters go on running."""
        os.kill(int((self.state / "pid").read_text()), signal.SIGKILL)


def _environment(found: Slot) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "HYPERPLANE_ENGINES": str(found.folder)}


def _clean(found: Slot) -> None:
    subprocess.run(
        [SCRIPTS / "gateway_down"], env=_environment(found), check=True, start_new_session=True
    )


@contextmanager
def server() -> Iterator[Server]:
    """Run a server during the block."""
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
    """Apply the settings of the engine for ada; check that nothing is left after the last test."""
    settings = gateway.settings()
    with dask.config.set({f"hyperplane.engines.gateway.{k}": v for k, v in settings.items()}):
        yield
    until(lambda: not gateway.processes() and not gateway.folders())


@pytest.fixture(autouse=True)
def nothing_left(
    surroundings: None, gateway: Server, request: pytest.FixtureRequest
) -> Iterator[None]:
    """Check that no record, process or folder of a test is left after it."""
    folders = gateway.folders()
    yield
    assert not records.read_all()
    # The processes of a shared cluster end after its last test.
    if "one_cluster" not in request.fixturenames:
        # Not by their numbers: the server may replace workers of the shared cluster at any time.
        until(lambda: not gateway.processes(but=folders))
        until(lambda: gateway.folders() <= folders)
