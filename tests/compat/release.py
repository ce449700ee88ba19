"""Copies of the files that released versions have written."""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
from pathlib import Path
from typing import Any

from scripts.compat.fixtures import relocation

DATA = Path(__file__).parent / "data"


class Release:
    """A copy of all files of one version, with the paths and the machine of this test.

    Parameters
    ----------
    version : str
        The version.
    top : Path
        Folder to make for the copy.
    """

    def __init__(self, version: str, top: Path) -> None:
        self.top, self.place = top, relocation.copy_to(top, DATA / f"v{version}")

    def expected(self, name: str) -> Any:
        """Return the values that the version itself has read from its files."""
        return json.loads((self.top / "expected" / f"{name}.json").read_text())


def contains(found: Any, expected: Any, path: str = "") -> list[str]:
    """Return the differences; additional keys are allowed, because versions add keys."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return [
            difference
            for key, value in expected.items()
            for difference in contains(found.get(key, "(missing)"), value, f"{path}.{key}")
        ]
    if isinstance(expected, list) and isinstance(found, list) and len(found) == len(expected):
        return [
            difference
            for number, pair in enumerate(zip(found, expected, strict=True))
            for difference in contains(*pair, f"{path}[{number}]")
        ]
    return [] if found == expected else [f"{path}: {found!r} is not {expected!r}"]


def digest(text: str, length: int) -> str:
    """Return the beginning of a checksum, which is part of file names."""
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def system_folder() -> str:
    """Return the name of this boot's and process namespace's folder in 0.1.0."""
    host, system = socket.gethostname(), relocation.this_system()
    return digest(host, 3) + digest(system.rpartition("-")[0], 3) + digest(host + system, 4)


def record_folder(temporary: Path) -> Path:
    """Create the folder in which 0.1.0 lists clusters, in a temporary directory of one user."""
    folder = temporary / f"hyperplane-{os.getuid()}" / system_folder()
    folder.mkdir(mode=0o700, parents=True)
    folder.parent.chmod(0o700)
    return folder


def shared_record_folder(state: Path) -> Path:
    """Create the folder in which 0.1.0 lists clusters, in a temporary directory of all users."""
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", socket.gethostname())[:40].strip(".") or "host"
    folder = state / "hyperplane" / "clusters" / f"{name}-{system_folder()}"
    folder.mkdir(mode=0o700, parents=True)
    return folder


def started(pid: int) -> str:
    """Return the start time of a process, in ticks since the boot."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
