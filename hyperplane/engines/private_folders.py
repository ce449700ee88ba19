"""Folders of this user that no other user can have prepared, read or changed.

In each of them every running system (a boot and a process namespace) has a folder, because
containers that share a disk give the same numbers to different processes.
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

from hyperplane.engines.running_system import running_system

#: How often a folder is made that others remove.
_MAX_ATTEMPTS = 1000
#: The name of a running system's folder: short, since paths of sockets begin with it. Its parts
#: are for the host, for the boot, and for both with the process namespace.
_SYSTEM = re.compile("[0-9a-f]{10}")
_HOST, _BOOT = 3, 6


def private_folder(parent: str | None = None) -> Path:
    """The folder of this user and running system in a temporary directory, made if not there.

    It is in ``hyperplane-<uid>``. Where another user has put something of that name, or others
    can write to what is there, it is in another folder whose name begins so.

    Parameters
    ----------
    parent : str, optional
        The temporary directory; by default that of the system.

    Raises
    ------
    OSError
        When it cannot be made.
    """
    for _ in range(_MAX_ATTEMPTS):
        folder = _folder_of_user(parent) / _system_name()
        # Not with its parents: those would be open to other users by some masks.
        # Not `exist_ok`, which raises when the folder is gone as it looks what was there.
        with contextlib.suppress(FileExistsError, FileNotFoundError):
            folder.mkdir(mode=0o700)
        if folder.is_dir():
            return folder
    raise FileNotFoundError(errno.ENOENT, "other processes remove it all the time", str(folder))


def default_private_folder(parent: Path) -> Path:
    """What :func:`private_folder` gives where no other user has taken its name; not made."""
    return parent / f"hyperplane-{_user()}" / _system_name()


def private_folders(parent: str | None = None) -> list[Path]:
    """The folders of this user and running system in a temporary directory that are there."""
    found = [folder / _system_name() for folder in _folders_of_user(parent)]
    return [folder for folder in found if folder.is_dir()]


def folders_of_other_systems(parent: str | None = None) -> list[Path]:
    """Folders of this user's other running systems whose locks can be relied on.

    These are other containers of this machine, and this machine before it was booted. Locks of
    other machines may be unknown here, on network file systems that keep them to one machine.
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
    """The folder for the list of this user's clusters on this machine, made if it is not there.

    A temporary directory that only this user can write to comes first: programs are kept apart by
    it. Then, since all users can write to the usual one, the home directory; it is shared by
    machines and containers, so each has a folder there. ``$XDG_RUNTIME_DIR`` comes after it: it
    is removed with the last session of its user, and clusters may run on.

    Raises
    ------
    OSError
        When none of them can be made.
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
    """All folders in which clusters of this user on this machine may be listed."""
    if _is_temporary_directory_private():
        return private_folders()
    own = [parent / _machine_name() for parent in _record_parents()]
    return [*filter(_is_private_folder, own), *private_folders()]


def remove_empty(folder: Path) -> None:
    """Remove a folder of clusters and those above it that are there for it, if nothing is in it."""
    with contextlib.suppress(OSError):  # other clusters are in there
        folder.rmdir()
        if folder.name == _machine_name() or _SYSTEM.fullmatch(folder.name):
            folder.parent.rmdir()


def _user() -> str:
    return str(os.getuid()) if hasattr(os, "getuid") else getpass.getuser()


def _folder_of_user(parent: str | None) -> Path:
    """The folder of this user in a temporary directory, made if it is not there."""
    place = Path(parent or tempfile.gettempdir())
    folder = place / f"hyperplane-{_user()}"
    found = _make_folder(folder)
    if _is_private(found):
        if found.st_mode & 0o077:
            with contextlib.suppress(FileNotFoundError):
                folder.chmod(0o700)
        return folder
    for other in _alternative_folders(place):
        return other
    # The name is random, so no other user can take it beforehand.
    return Path(tempfile.mkdtemp(prefix=f"{folder.name}-", dir=place))


def _folders_of_user(parent: str | None) -> list[Path]:
    place = Path(parent or tempfile.gettempdir())
    first = place / f"hyperplane-{_user()}"
    return [*([first] if _is_private_folder(first) else []), *_alternative_folders(place)]


def _subfolders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [Path(entry) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:  # removed meanwhile
        return []


def _make_folder(folder: Path) -> os.stat_result:
    """Make a folder that another process may remove at any moment, with its last cluster."""
    for attempt in range(_MAX_ATTEMPTS):
        # Both ways: `exist_ok` raises, too, when what was there is gone as it looks what it was.
        try:
            folder.mkdir(mode=0o700, parents=True)
        except FileExistsError:
            pass
        except FileNotFoundError:  # a place that takes no folders says so, too
            if attempt == _MAX_ATTEMPTS - 1:
                raise
        with contextlib.suppress(FileNotFoundError):
            return folder.lstat()
    raise FileNotFoundError(errno.ENOENT, "others remove it all the time", str(folder))


def _is_private(found: os.stat_result) -> bool:
    """Whether something is a folder of this user that no other user can write to."""
    if not hasattr(os, "getuid"):
        return stat.S_ISDIR(found.st_mode)
    mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    return mine and not found.st_mode & 0o022


def _is_private_folder(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        return _is_private(folder.lstat())
    return False


def _alternative_folders(place: Path) -> list[Path]:
    """Folders of this user with other names, which were made while the usual one was taken."""
    wanted = re.compile(rf"hyperplane-{re.escape(_user())}-[A-Za-z0-9_]+")
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
    """The folders of this user, apart from the temporary directory, that may take ours."""
    found = []
    with contextlib.suppress(RuntimeError, OSError):  # no home directory is known
        home = Path.home()
        # With sudo it may be that of another user, in which ours would be in the way.
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
    """The name of the folders of this running system: process numbers belong to it."""
    host, system = socket.gethostname(), running_system()
    boot = system.rpartition("-")[0]
    digests = [hashlib.sha256(fact.encode()).hexdigest() for fact in (host, boot, host + system)]
    return digests[0][:_HOST] + digests[1][: _BOOT - _HOST] + digests[2][:4]


def _machine_name() -> str:
    """A name of this running system that says to a reader which machine it is."""
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", socket.gethostname())[:40].strip(".") or "host"
    return f"{name}-{_system_name()}"
