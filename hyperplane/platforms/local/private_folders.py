"""Folders of this user that no other user can create, read or change.

Each contains one folder for every running system (a boot and a process namespace), because
containers that share a disk use the same process IDs for different processes.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import getpass
import hashlib
import os
import re
import socket
import stat
import tempfile
from pathlib import Path

from hyperplane.platforms.local.process_identity import running_system

#: Attempts to create a folder that other processes remove.
_MAX_ATTEMPTS = 1000
#: Name of a running system's folder, which is short because paths of sockets contain it. Its parts
#: are digests of the host, of the boot, and of both with the process namespace.
_SYSTEM = re.compile("[0-9a-f]{10}")
#: Where the digests of the host and of the boot end in that name.
_HOST, _BOOT = 3, 6


def private_folder(parent: str | None = None) -> Path:
    """Create and return the folder of this user and running system in a temporary directory.

    Its parent is ``hyperplane-<uid>``, or, if another user owns or can write to that folder, one
    whose name begins with ``hyperplane-<uid>-``.

    Parameters
    ----------
    parent : str, optional
        The temporary directory; the system's by default.

    Raises
    ------
    OSError
        If it cannot be created.
    """
    for _ in range(_MAX_ATTEMPTS):
        folder = _folder_of_user(parent) / _system_name()
        # Not `parents`: with some umasks, other users could write to the created parents.
        # Not `exist_ok`: it raises if the folder is removed between mkdir and its check.
        with contextlib.suppress(FileExistsError, FileNotFoundError):
            folder.mkdir(mode=0o700)
        if folder.is_dir():
            return folder
    raise FileNotFoundError(errno.ENOENT, "other processes keep removing it", str(folder))


def default_private_folder(parent: Path) -> Path:
    """Return the path that :func:`private_folder` uses unless another user owns its name."""
    return parent / f"hyperplane-{_user_name()}" / _system_name()


def private_folders(parent: str | None = None) -> list[Path]:
    """Return the existing folders of this user and running system in a temporary directory."""
    folders = [folder / _system_name() for folder in _folders_of_user(parent)]
    return [folder for folder in folders if folder.is_dir()]


def folders_of_other_systems(parent: str | None = None) -> list[Path]:
    """Return the folders of this user's other running systems whose locks are reliable.

    These are other containers on this machine and earlier boots of it. Folders of other machines
    are left out, because on some network file systems their locks are not visible here.
    """
    own = _system_name()
    others = [
        folder
        for user_folder in _folders_of_user(parent)
        for folder in _subfolders(user_folder)
        if _SYSTEM.fullmatch(folder.name) and folder.name != own
    ]
    host, boot = own[:_HOST], own[_HOST:_BOOT]
    return [
        folder
        for folder in others
        if folder.name[:_HOST] == host or folder.name[_HOST:_BOOT] == boot
    ]


def remove_empty(folder: Path) -> None:
    """Remove a folder of this user and system if it is empty, and then its parent if that is."""
    with contextlib.suppress(OSError):  # not empty
        folder.rmdir()
        if folder.name == system_folder_name() or _SYSTEM.fullmatch(folder.name):
            folder.parent.rmdir()


def _user_name() -> str:
    return str(os.getuid()) if hasattr(os, "getuid") else getpass.getuser()


def _folder_of_user(parent: str | None) -> Path:
    """Create and return the folder of this user in a temporary directory."""
    temporary = Path(parent or tempfile.gettempdir())
    folder = temporary / f"hyperplane-{_user_name()}"
    status = create_folder(folder)
    if is_private(status):
        if status.st_mode & 0o077:
            with contextlib.suppress(FileNotFoundError):
                folder.chmod(0o700)
        return folder
    for other in _alternative_folders(temporary):
        return other
    # The name is random, so no other user can create it first.
    return Path(tempfile.mkdtemp(prefix=f"{folder.name}-", dir=temporary))


def _folders_of_user(parent: str | None) -> list[Path]:
    temporary = Path(parent or tempfile.gettempdir())
    first = temporary / f"hyperplane-{_user_name()}"
    return [*([first] if is_private_folder(first) else []), *_alternative_folders(temporary)]


def _subfolders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [Path(entry) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:  # removed meanwhile
        return []


def create_folder(folder: Path) -> os.stat_result:
    """Create a folder unless it exists, and return its status; other processes may remove it."""
    for attempt in range(_MAX_ATTEMPTS):
        # Not `exist_ok`: it raises if the folder is removed between mkdir and its check.
        try:
            folder.mkdir(mode=0o700, parents=True)
        except FileExistsError:
            pass
        except FileNotFoundError:  # removed meanwhile, or a file system that permits no folders
            if attempt == _MAX_ATTEMPTS - 1:
                raise
        with contextlib.suppress(FileNotFoundError):
            return folder.lstat()
    raise FileNotFoundError(errno.ENOENT, "other processes keep removing it", str(folder))


def is_private(status: os.stat_result) -> bool:
    """Return whether a file status is that of a folder that only this user can write to."""
    if not hasattr(os, "getuid"):
        return stat.S_ISDIR(status.st_mode)
    is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    return is_own and not status.st_mode & 0o022


def is_private_folder(folder: Path) -> bool:
    """Return whether a path is a folder that only this user can write to."""
    with contextlib.suppress(OSError):
        return is_private(folder.lstat())
    return False


def _alternative_folders(temporary: Path) -> list[Path]:
    """Return the folders of this user that replace a ``hyperplane-<uid>`` of another user."""
    pattern = re.compile(rf"hyperplane-{re.escape(_user_name())}-[A-Za-z0-9_]+")
    try:
        with os.scandir(temporary) as entries:
            names = sorted(entry.name for entry in entries if pattern.fullmatch(entry.name))
    except OSError:
        return []
    return [folder for name in names if is_private_folder(folder := temporary / name)]


@functools.lru_cache(maxsize=1)
def _system_name() -> str:
    """Return the name of this running system's folders."""
    host, system = socket.gethostname(), running_system()
    boot = system.rpartition("-")[0]
    digests = [hashlib.sha256(text.encode()).hexdigest() for text in (host, boot, host + system)]
    return digests[0][:_HOST] + digests[1][: _BOOT - _HOST] + digests[2][:4]


def system_folder_name() -> str:
    """Return a name for folders of this running system, which begins with the host name."""
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", socket.gethostname())[:40].strip(".") or "host"
    return f"{name}-{_system_name()}"
