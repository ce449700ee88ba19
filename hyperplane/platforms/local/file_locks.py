"""Locks on files and folders that are held until the locking process ends.

They work between containers, where process IDs are meaningless.

A process keeps a shared lock on each file and folder that it uses. Those without a lock are
abandoned and may be removed. On file systems without locks, such as some network file systems, none
counts as abandoned.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import IO

if sys.platform != "win32":
    import fcntl

#: Seconds to wait for a process that is checking whether something is locked.
LOCK_TIMEOUT_SECONDS = 5.0
#: Open descriptors with the shared locks of this process. The descriptor of a replaced file stays
#: open, because another process may have opened that file, and try to lock it later.
_locked: dict[Path, list[int]] = defaultdict(list)


@contextlib.contextmanager
def exclusive_lock(file: Path) -> Iterator[IO[str]]:
    """Wait for the lock of a file, and hold it for the block; yield the file, truncated and open.

    The lock ends when all processes that inherited the open file have closed it.
    """
    with file.open("w") as opened:
        if sys.platform != "win32":
            fcntl.flock(opened, fcntl.LOCK_EX)
        yield opened


def try_lock(file: Path) -> IO[str] | None:
    """Lock a file and return it, open for appending; None if another process has locked it.

    None is also returned if the file was removed or replaced meanwhile. Closing the file ends the
    lock.
    """
    opened = file.open("a")
    try:
        if sys.platform != "win32":
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(opened.fileno()), file.stat()):
            return opened
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        opened.close()
        raise
    opened.close()
    return None


def is_locked(file: Path) -> bool:
    """Return whether a process, also one of another container, has locked a file exclusively."""
    try:
        with file.open("r") as opened:
            if sys.platform != "win32":
                fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def create_locked_folder(folder: Path) -> None:
    """Create a folder with a shared lock.

    Raises
    ------
    FileNotFoundError
        If its parent folder does not exist.
    """
    while True:
        # Not `exist_ok`: it raises if the folder is removed between mkdir and its check.
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        # False if another container has removed the folder before it was locked.
        if share_lock(folder, folder):
            return


def share_lock(current: Path, path: Path) -> bool:
    """Take a shared lock on a file or folder; return False if it does not exist.

    ``current`` is its present path. ``path`` is the path to which the caller then moves it, or the
    same one.
    """
    if sys.platform == "win32":  # an open file cannot be removed there
        return True
    try:
        descriptor = os.open(current, os.O_RDONLY)
    except FileNotFoundError:
        return False
    before = _locked.get(path, [])
    if any(os.path.samestat(os.fstat(descriptor), os.fstat(locked)) for locked in before):
        os.close(descriptor)
        return True
    _take_shared_lock(descriptor, time.monotonic() + LOCK_TIMEOUT_SECONDS)
    with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(descriptor), current.stat()):
            _locked[path].append(descriptor)
            return True
    os.close(descriptor)
    return False


def _take_shared_lock(descriptor: int, deadline: float) -> None:
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


def release_locks(path: Path) -> None:
    """Release the shared locks of this process on a file or folder."""
    for descriptor in _locked.pop(path, []):
        os.close(descriptor)


@contextlib.contextmanager
def lock_if_abandoned(path: Path) -> Iterator[bool]:
    """Yield whether a file or folder has no lock, and if it has none, lock it for the block.

    Raises
    ------
    FileNotFoundError
        If it does not exist.
    """
    if sys.platform == "win32":
        yield False
        return
    # Opening a named pipe would otherwise wait for a process that writes to it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
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
