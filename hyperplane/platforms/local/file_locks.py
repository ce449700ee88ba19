"""Locks on files and folders that are held until the owning process ends.

Locks work between containers, where process numbers are meaningless. On file systems without locks,
such as some network file systems, everything counts as owned.
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

#: Seconds to wait for a process that is checking whether something is owned.
PATIENCE = 5.0
#: Open descriptors that hold the locks of this process. Those of replaced files stay open: another
#: process may have opened such a file and not yet tried its lock.
_owned: dict[Path, list[int]] = defaultdict(list)


def make_owned_folder(folder: Path) -> None:
    """Create a folder and take ownership of it.

    Raises
    ------
    FileNotFoundError
        When its parent folder does not exist.
    """
    while True:
        # Not `exist_ok`: it raises if the folder is removed between mkdir and its check.
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        # False if another container has removed the folder before it was locked.
        if take_ownership(folder, folder):
            return


def take_ownership(current: Path, path: Path) -> bool:
    """Lock `current`, a file or folder that is or will be moved to `path`; False if it is gone."""
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
    """Take a shared lock on a descriptor; give up at the deadline or if locks do not work."""
    while sys.platform != "win32" and time.monotonic() < deadline:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:  # another process is checking or removing it
            time.sleep(0.005)
        except OSError:
            return
        else:
            return


def drop_ownership(path: Path) -> None:
    """Release the locks of a file or folder."""
    for descriptor in _owned.pop(path, []):
        os.close(descriptor)


@contextlib.contextmanager
def lock_if_abandoned(path: Path) -> Iterator[bool]:
    """Yield whether no process owns a file or folder; if so, lock it for the block.

    Raises
    ------
    FileNotFoundError
        When it does not exist.
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
        # Unlock explicitly: a process forked meanwhile also has the descriptor open.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)
