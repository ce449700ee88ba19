"""Names of save attempts, from which other processes determine whether an attempt still runs.

For each attempt the saving process keeps an anonymous memory file open, whose label Linux shows
to the user's other processes. This distinguishes leftovers of a failed save from the files of a
running one even within one process, and the label disappears when the process is killed.
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

from hyperplane.platforms.local.process_identity import running_system

_NAME = re.compile(r"attempt-(.+)-([0-9]+)-([0-9a-f]{12})(?:\.old)?")
#: Prefix of the label of an attempt.
_LABEL = "hyperplane-save-"


@contextlib.contextmanager
def running_attempt() -> Iterator[str]:
    """Yield a name for an attempt that counts as running until the block ends."""
    token = secrets.token_hex(6)
    descriptor = os.memfd_create(f"{_LABEL}{token}") if _has_memfd_labels() else None
    try:
        yield f"attempt-{process_namespace()}-{os.getpid()}-{token}"
    finally:
        if descriptor is not None:
            os.close(descriptor)


def name_shared_attempt() -> str:
    """Return a name for an attempt whose tasks run in several processes.

    It counts as that of another machine: a cleanup removes its files by their age, because no
    process has them from begin to end.
    """
    return f"attempt-tasks-{os.getpid()}-{secrets.token_hex(6)}"


def is_attempt(name: str) -> bool:
    """Return whether a name is that of an attempt."""
    return _NAME.fullmatch(name) is not None


def is_local_attempt(name: str) -> bool:
    """Return whether an attempt belongs to a process visible from this one."""
    match = _NAME.fullmatch(name)
    return match is not None and match[1] == process_namespace()


def is_running(name: str) -> bool:
    """Return whether a local attempt is still running."""
    match = _NAME.fullmatch(name)
    if match is None or not psutil.pid_exists(int(match[2])):
        return False
    if not _has_memfd_labels():
        return True
    descriptors = Path(f"/proc/{match[2]}/fd")
    try:
        links = list(descriptors.iterdir())
    except FileNotFoundError:
        return False
    except OSError:  # the process belongs to another user
        return True
    return any(f"{_LABEL}{match[3]}" in _read_link(link) for link in links)


def process_namespace() -> str:
    """Return the identity of this process ID namespace; two containers may share a host name."""
    return f"{socket.gethostname()}-{hashlib.sha256(running_system().encode()).hexdigest()[:8]}"


def _has_memfd_labels() -> bool:
    """Return whether the system shows labels of anonymous memory files."""
    return hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir()


def _read_link(link: Path) -> str:
    """Return the target of a link; empty if the link is gone."""
    try:
        return str(link.readlink())
    except OSError:  # the descriptor was closed meanwhile
        return ""
