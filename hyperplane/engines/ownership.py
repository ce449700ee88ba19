"""Files and folders that are locked for as long as the process that made them lives.

Locks hold between containers, where process numbers mean nothing. Where there are none, as on some
network file systems, everything counts as owned.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

if sys.platform != "win32":
    import fcntl

#: Seconds to wait for a process that looks whether something is owned.
PATIENCE = 5.0
#: The open descriptors of what this process owns, which have the locks. Those of files that were
#: replaced stay: another process may have opened such a file and not yet tried its lock.
_owned: dict[Path, list[int]] = defaultdict(list)


def make_owned_folder(folder: Path) -> None:
    """Make a folder and own it.

    Raises
    ------
    FileNotFoundError
        When the folder above it is gone.
    """
    while True:
        # Not `exist_ok`, which raises when the folder is gone as it looks what was there.
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        if take_ownership(
            folder, folder
        ):  # else another container has removed it before it was locked
            return


def take_ownership(current: Path, path: Path) -> bool:
    """Lock a file or folder whose path is, or will be, `path`; False when it is gone."""
    if sys.platform == "win32":  # an open file cannot be removed there
        return True
    try:
        descriptor = os.open(current, os.O_RDONLY)
    except FileNotFoundError:
        return False
    before = _owned.get(path, [])
    if any(os.path.samestat(os.fstat(descriptor), os.fstat(each)) for each in before):
        os.close(descriptor)
        return True
    _lock(descriptor, time.monotonic() + PATIENCE)
    with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(descriptor), current.stat()):
            _owned[path].append(descriptor)
            return True
    os.close(descriptor)
    return False


def _lock(descriptor: int, deadline: float) -> None:
    """Share the lock of a descriptor; where none is to be had in time, go without."""
    while sys.platform != "win32" and time.monotonic() < deadline:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:  # another process looks at it, or removes it
            time.sleep(0.005)
        except OSError:
            return
        else:
            return


def drop_ownership(path: Path) -> None:
    """Own a file or folder no longer."""
    for descriptor in _owned.pop(path, []):
        os.close(descriptor)


@contextlib.contextmanager
def lock_if_abandoned(path: Path) -> Iterator[bool]:
    """Whether no process owns a file or folder; then none can own it within the block.

    Raises
    ------
    FileNotFoundError
        When there is none.
    """
    if sys.platform == "win32":
        yield False
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        yield False
        return
    try:
        yield True
    finally:
        # Not by closing alone: a process forked meanwhile has it open, too.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)
