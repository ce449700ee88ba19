"""Hosts for the tests of the ssh engine: network namespaces, each with an sshd of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from services import need

SCRIPTS = Path(__file__).parents[2] / "scripts" / "engines"
NUMBER = 4


@contextmanager
def hosts() -> Iterator[dict[str, Any]]:
    """Settings of the engine for hosts that run as long as the block does."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    programs = all(shutil.which(name, path=path) for name in ("sshd", "ip", "nsenter"))
    need("no openssh-server, iproute2 or root for hosts", programs and os.getuid() == 0)
    subprocess.run([SCRIPTS / "ssh_down"], check=True)
    done = subprocess.run(
        [SCRIPTS / "ssh_up", str(NUMBER)], capture_output=True, text=True, check=False
    )
    state = done.stdout.strip()
    try:
        need(f"hosts do not come up: {done.stderr}", done.returncode == 0)
        yield {
            "hosts": [f"10.77.0.1{number}" for number in range(1, NUMBER + 1)],
            "client_keys": [f"{state}/id"],
            "known_hosts": f"{state}/known_hosts",
        }
    finally:
        subprocess.run([SCRIPTS / "ssh_down"], check=True)


def processes(host: int) -> list[int]:
    """The processes on a host, less its sshd."""
    listed = subprocess.run(
        ["ip", "netns", "pids", f"hpssh{host}"], capture_output=True, text=True, check=True
    )
    found = []
    for process in map(int, listed.stdout.split()):
        command = Path(f"/proc/{process}/cmdline")
        if command.exists() and b"sshd" not in command.read_bytes():
            found.append(process)
    return found


def set_link(host: int, state: str) -> None:
    """Cut a host off (down), or bring it back (up)."""
    subprocess.run(["ip", "link", "set", f"hpsshv{host}", state], check=True)
