"""Attempts at saving: named so that other processes see whether each of them still runs.

A process that saves has a nameless file of memory open for each attempt, whose label Linux shows to
the other processes of this user. So the parts of a save that has failed can be told from those of
one that runs, also while the process goes on, and nothing is left when it is killed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil

from hyperplane.engines.running_system import running_system

_NAME = re.compile(r"attempt-(.+)-([0-9]+)-([0-9a-f]{12})(?:\.old)?")
#: How the label of an attempt begins.
_LABEL = "hyperplane-save-"


@contextlib.contextmanager
def running_attempt() -> Iterator[str]:
    """A name for one attempt, which is seen to run for a block."""
    token = secrets.token_hex(6)
    number = os.memfd_create(f"{_LABEL}{token}") if _has_memfd_labels() else None
    try:
        yield f"attempt-{process_namespace()}-{os.getpid()}-{token}"
    finally:
        if number is not None:
            os.close(number)


def is_attempt(name: str) -> bool:
    """Whether this is the name of an attempt."""
    return _NAME.fullmatch(name) is not None


def is_local_attempt(name: str) -> bool:
    """Whether an attempt is of a process that can be seen here."""
    found = _NAME.fullmatch(name)
    return found is not None and found[1] == process_namespace()


def is_running(name: str) -> bool:
    """Whether an attempt of a process that can be seen here still runs."""
    found = _NAME.fullmatch(name)
    if found is None or not psutil.pid_exists(int(found[2])):
        return False
    if not _has_memfd_labels():
        return True
    descriptors = Path(f"/proc/{found[2]}/fd")
    try:
        links = list(descriptors.iterdir())
    except FileNotFoundError:
        return False
    except OSError:  # of another user
        return True
    return any(f"{_LABEL}{found[3]}" in _read_link(link) for link in links)


def process_namespace() -> str:
    """Where a process number means the same as here; two containers may share a host name."""
    return f"{socket.gethostname()}-{hashlib.sha256(running_system().encode()).hexdigest()[:8]}"


def _has_memfd_labels() -> bool:
    return hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir()


def _read_link(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:  # closed meanwhile
        return ""
