"""Hosts for the tests of the ssh engine: network namespaces, each with a separate sshd."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask.config
import pytest
from services import SCRIPTS, Slot, need, slot, until

import hyperplane

NUMBER = 4
SMALL: dict[str, Any] = {
    "num_workers": 2,
    "nprocs": 1,
    "nthreads": 1,
    "cores_per_worker": 1,
    "ram_gb_per_proc": 0.5,
    "timeout": 120,
}


@dataclass(frozen=True)
class HostNetwork:
    """Running hosts, numbered from 1.

    Parameters
    ----------
    network : int
        Number of their network, for ``ssh_up``.
    state : Path
        The folder with the keys.
    """

    network: int
    state: Path

    def address(self, host: int) -> str:
        """Return the address of a host; beyond ``NUMBER``, one at which nothing answers."""
        return f"10.77.{self.network}.{10 + host}"

    def settings(self) -> dict[str, Any]:
        """Settings of the engine."""
        return {
            "hosts": [self.address(number) for number in range(1, NUMBER + 1)],
            "client_keys": [f"{self.state}/id"],
            "known_hosts": f"{self.state}/known_hosts",
        }

    def processes(self, *hosts: int) -> set[int]:
        """Return the processes on hosts, by default on all, without their sshd."""
        found = set()
        for host in hosts or range(1, NUMBER + 1):
            words = ["ip", "netns", "pids", f"hpssh{self.network}-{host}"]
            listed = subprocess.run(words, capture_output=True, text=True, check=True)
            for process in map(int, listed.stdout.split()):
                command = read_process_file(process, "cmdline")
                if command is not None and b"sshd" not in command:
                    found.add(process)
        return found

    def listening_addresses(self, host: int) -> list[tuple[str, int]]:
        """Return addresses at which programs listen on a host, without that of its sshd."""
        words = ["ip", "netns", "exec", f"hpssh{self.network}-{host}", "ss", "-ltnpH"]
        listed = subprocess.run(words, capture_output=True, text=True, check=True)
        lines = [line for line in listed.stdout.splitlines() if "sshd" not in line]
        pairs = [line.split()[3].rpartition(":") for line in lines]
        return [(name.strip("[]").removeprefix("::ffff:"), int(port)) for name, _, port in pairs]

    def listening_ports(self, host: int) -> list[int]:
        """Return the ports on which programs listen on a host, without that of its sshd."""
        return [port for _, port in self.listening_addresses(host)]

    def set_link(self, host: int, state: str) -> None:
        """Disconnect a host ("down") or reconnect it ("up")."""
        link = f"hpssh{self.network}v{host}"
        subprocess.run(["ip", "link", "set", link, state], check=True)


def read_process_file(process: int, name: str) -> bytes | None:
    """Return a file of ``/proc`` about a process, None if the process has ended."""
    try:
        return Path(f"/proc/{process}/{name}").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _environment(found: Slot) -> dict[str, str]:
    # Network 0 is for hosts that a user starts manually.
    network = str(found.number + 1)
    return {**os.environ, "HYPERPLANE_ENGINES": str(found.folder), "HYPERPLANE_SSH": network}


def _clean(found: Slot) -> None:
    subprocess.run(
        [SCRIPTS / "ssh_down"], env=_environment(found), check=True, start_new_session=True
    )


@contextmanager
def hosts() -> Iterator[HostNetwork]:
    """Run hosts during the block."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    programs = all(shutil.which(name, path=path) for name in ("sshd", "ip", "nsenter"))
    need("no openssh-server, iproute2 or root for hosts", programs and os.getuid() == 0)
    with slot("ssh", _clean) as mine:
        up = [SCRIPTS / "ssh_up", str(NUMBER)]
        done = subprocess.run(
            up, env=_environment(mine), capture_output=True, text=True, check=False
        )
        need(f"hosts do not come up: {done.stderr}", done.returncode == 0)
        yield HostNetwork(mine.number + 1, mine.folder / "ssh")


@pytest.fixture(scope="module")
def network() -> Iterator[HostNetwork]:
    with hosts() as running:
        yield running


@pytest.fixture(scope="module")
def surroundings(network: HostNetwork) -> Iterator[None]:
    """Apply the settings of the engine; check that no process is left after the last test."""
    settings = network.settings()
    with dask.config.set({f"hyperplane.engines.ssh.{k}": v for k, v in settings.items()}):
        yield
    until(lambda: not network.processes(), 120)


@pytest.fixture(autouse=True)
def nothing_left(
    surroundings: None, network: HostNetwork, request: pytest.FixtureRequest
) -> Iterator[None]:
    """Check that no process of a test is left on a host after it."""
    before = network.processes()
    yield
    # The processes of a shared cluster end after its last test.
    if "one_cluster" not in request.fixturenames:
        until(lambda: network.processes() <= before, 120)


def plan(**options: Any) -> hyperplane.ClusterPlan:
    return hyperplane.plan_cluster(**{"engine": "ssh", **SMALL, **options})
