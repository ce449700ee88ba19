"""Folders of this user that no other user can prepare, read or change.

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
#: Name of a running system's folder; short, because paths of sockets begin with it. Its parts are
#: digests of the host, of the boot, and of both with the process namespace.
_SYSTEM = re.compile("[0-9a-f]{10}")
_HOST, _BOOT = 3, 6


def private_folder(parent: str | None = None) -> Path:
    """Create and return the folder of this user and running system in a temporary directory.

    It is in ``hyperplane-<uid>``. If another user owns that name or can write to that folder, it is
    in a folder whose name begins with ``hyperplane-<uid>-``.

    Parameters
    ----------
    parent : str, optional
        The temporary directory; the system's by default.

    Raises
    ------
    OSError
        When it cannot be created.
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
    found = [folder / _system_name() for folder in _folders_of_user(parent)]
    return [folder for folder in found if folder.is_dir()]


def folders_of_other_systems(parent: str | None = None) -> list[Path]:
    """Return the folders of this user's other running systems whose locks are reliable.

    These are other containers on this machine and earlier boots of it. Folders of other machines
    are left out, because on some network file systems their locks are not visible here.
    """
    own = _system_name()
    found = [
        folder
        for above in _folders_of_user(parent)
        for folder in _subfolders(above)
        if _SYSTEM.fullmatch(folder.name) and folder.name != own
    ]
    host, boot = own[:_HOST], own[_HOST:_BOOT]
    return [each for each in found if each.name[:_HOST] == host or each.name[_HOST:_BOOT] == boot]


def record_folder() -> Path:
    """Create and return the folder for the records of this user's clusters on this machine.

    It is in the temporary directory if only this user can write there: such a directory is set to
    isolate programs. Otherwise it is in the home directory, in a folder per machine and container,
    because they may share the home. ``$XDG_RUNTIME_DIR`` is used after the home directory, because
    it is removed with the user's last session while clusters may still run.

    Raises
    ------
    OSError
        When it cannot be created in any of these places.
    """
    if not _is_temporary_directory_private():
        for parent in _record_parents():
            with contextlib.suppress(OSError):
                folder = parent / _machine_name()
                found = _make_folder(folder)
                if _is_private(found) and os.access(folder, os.W_OK | os.X_OK):
                    return folder
    return private_folder()


def record_folders() -> list[Path]:
    """Return all folders that may have records of this user's clusters on this machine."""
    if _is_temporary_directory_private():
        return private_folders()
    own = [parent / _machine_name() for parent in _record_parents()]
    return [*filter(_is_private_folder, own), *private_folders()]


def remove_empty(folder: Path) -> None:
    """Remove a folder of this module and its parent, if they are empty."""
    with contextlib.suppress(OSError):  # not empty
        folder.rmdir()
        if folder.name == _machine_name() or _SYSTEM.fullmatch(folder.name):
            folder.parent.rmdir()


def _user_name() -> str:
    return str(os.getuid()) if hasattr(os, "getuid") else getpass.getuser()


def _folder_of_user(parent: str | None) -> Path:
    """Create and return the folder of this user in a temporary directory."""
    place = Path(parent or tempfile.gettempdir())
    folder = place / f"hyperplane-{_user_name()}"
    found = _make_folder(folder)
    if _is_private(found):
        if found.st_mode & 0o077:
            with contextlib.suppress(FileNotFoundError):
                folder.chmod(0o700)
        return folder
    for other in _alternative_folders(place):
        return other
    # The name is random, so no other user can create it first.
    return Path(tempfile.mkdtemp(prefix=f"{folder.name}-", dir=place))


def _folders_of_user(parent: str | None) -> list[Path]:
    place = Path(parent or tempfile.gettempdir())
    first = place / f"hyperplane-{_user_name()}"
    return [*([first] if _is_private_folder(first) else []), *_alternative_folders(place)]


def _subfolders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [Path(entry) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:  # removed meanwhile
        return []


def _make_folder(folder: Path) -> os.stat_result:
    """Create a folder, which other processes may remove at any moment, and return its status."""
    for attempt in range(_MAX_ATTEMPTS):
        # Not `exist_ok`: it raises if the folder is removed between mkdir and its check.
        try:
            folder.mkdir(mode=0o700, parents=True)
        except FileExistsError:
            pass
        except FileNotFoundError:  # removed meanwhile, or a place that permits no folders
            if attempt == _MAX_ATTEMPTS - 1:
                raise
        with contextlib.suppress(FileNotFoundError):
            return folder.lstat()
    raise FileNotFoundError(errno.ENOENT, "other processes keep removing it", str(folder))


def _is_private(found: os.stat_result) -> bool:
    """Return whether a file status is that of a folder which only this user can write to."""
    if not hasattr(os, "getuid"):
        return stat.S_ISDIR(found.st_mode)
    mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    return mine and not found.st_mode & 0o022


def _is_private_folder(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        return _is_private(folder.lstat())
    return False


def _alternative_folders(place: Path) -> list[Path]:
    """Return the folders of this user that replace a ``hyperplane-<uid>`` of another user."""
    wanted = re.compile(rf"hyperplane-{re.escape(_user_name())}-[A-Za-z0-9_]+")
    try:
        with os.scandir(place) as entries:
            names = sorted(entry.name for entry in entries if wanted.fullmatch(entry.name))
    except OSError:
        return []
    return [folder for name in names if _is_private_folder(folder := place / name)]


def _is_temporary_directory_private() -> bool:
    if not hasattr(os, "getuid"):
        return True
    with contextlib.suppress(OSError):
        return _is_private(Path(tempfile.gettempdir()).stat())
    return False


def _record_parents() -> list[Path]:
    """Return parents for the folder of records in the home and runtime directories."""
    found = []
    with contextlib.suppress(RuntimeError, OSError):  # no home directory is known
        home = Path.home()
        # With sudo it may belong to another user, who could not remove our folder.
        if home.stat().st_uid == os.getuid():
            state = os.environ.get("XDG_STATE_HOME")
            own = Path(state) if state and Path(state).is_absolute() else home / ".local" / "state"
            found.append(own / "hyperplane" / "clusters")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_absolute() and _is_private_folder(Path(runtime)):
        found.append(Path(runtime) / "hyperplane")
    return found


@functools.lru_cache(maxsize=1)
def _system_name() -> str:
    """Return the name of this running system's folders."""
    host, system = socket.gethostname(), running_system()
    boot = system.rpartition("-")[0]
    digests = [hashlib.sha256(fact.encode()).hexdigest() for fact in (host, boot, host + system)]
    return digests[0][:_HOST] + digests[1][: _BOOT - _HOST] + digests[2][:4]


def _machine_name() -> str:
    """Return a name of this running system that begins with the name of the machine."""
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", socket.gethostname())[:40].strip(".") or "host"
    return f"{name}-{_system_name()}"
