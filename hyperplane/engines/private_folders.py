"""Folders of this user that no other user can have prepared, read or changed."""

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

#: How often a folder is made that others remove.
_TIMES = 1000


def private_folder(parent: str | None = None) -> Path:
    """The folder of this user in a temporary directory, made if it is not there.

    It is called ``hyperplane-<uid>``. Where another user has put something of that name, or others
    can write to what is there, it is another one whose name begins so.

    Parameters
    ----------
    parent : str, optional
        The temporary directory; by default that of the system.

    Raises
    ------
    OSError
        When it cannot be made.
    """
    place = Path(parent or tempfile.gettempdir())
    folder = place / f"hyperplane-{_user()}"
    found = _made(folder)
    if _is_private(found):
        if found.st_mode & 0o077:
            folder.chmod(0o700)
        return folder
    for other in _others(place):
        return other
    # The name is random, so no other user can take it beforehand.
    return Path(tempfile.mkdtemp(prefix=f"{folder.name}-", dir=place))


def private_folders(parent: str | None = None) -> list[Path]:
    """The folders of this user in a temporary directory that are there."""
    place = Path(parent or tempfile.gettempdir())
    first = place / f"hyperplane-{_user()}"
    return [*([first] if _is_private_folder(first) else []), *_others(place)]


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
    if not _temporary_is_private():
        for parent in _parents():
            with contextlib.suppress(OSError):
                folder = parent / _machine()
                found = _made(folder)
                if _is_private(found) and os.access(folder, os.W_OK | os.X_OK):
                    return folder
    return private_folder()


def record_folders() -> list[Path]:
    """All folders in which clusters of this user on this machine may be listed."""
    if _temporary_is_private():
        return private_folders()
    own = [parent / _machine() for parent in _parents()]
    return [*filter(_is_private_folder, own), *private_folders()]


def remove_empty(folder: Path) -> None:
    """Remove a folder of clusters and those above it that are there for it, if nothing is in it."""
    with contextlib.suppress(OSError):  # other clusters are in there
        folder.rmdir()
        if folder.name == _machine():
            folder.parent.rmdir()


def make_folder(folder: Path) -> None:
    """Make a folder that others may remove at any moment."""
    _made(folder)


def _user() -> str:
    return str(os.getuid()) if hasattr(os, "getuid") else getpass.getuser()


def _made(folder: Path) -> os.stat_result:
    """Make a folder that another process may remove at any moment, with its last cluster."""
    for attempt in range(_TIMES):
        # Both ways: `exist_ok` raises, too, when what was there is gone as it looks what it was.
        try:
            folder.mkdir(mode=0o700, parents=True)
        except FileExistsError:
            pass
        except FileNotFoundError:  # a place that takes no folders says so, too
            if attempt == _TIMES - 1:
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


def _others(place: Path) -> list[Path]:
    """Folders of this user with other names, which were made while the usual one was taken."""
    wanted = re.compile(rf"hyperplane-{re.escape(_user())}-[A-Za-z0-9_]+")
    try:
        with os.scandir(place) as entries:
            names = sorted(entry.name for entry in entries if wanted.fullmatch(entry.name))
    except OSError:
        return []
    return [folder for name in names if _is_private_folder(folder := place / name)]


def _temporary_is_private() -> bool:
    if not hasattr(os, "getuid"):
        return True
    with contextlib.suppress(OSError):
        return _is_private(Path(tempfile.gettempdir()).stat())
    return False


def _parents() -> list[Path]:
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
def _machine() -> str:
    """A name for this machine or container, as long as it runs: process numbers belong to it."""
    facts = [socket.gethostname()]
    for read in (
        lambda: Path("/proc/sys/kernel/random/boot_id").read_text(),
        lambda: str(Path("/proc/self/ns/pid").readlink()),
    ):
        with contextlib.suppress(OSError):
            facts.append(read())
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", facts[0])[:40].strip(".") or "host"
    return f"{name}-{hashlib.sha256(' '.join(facts).encode()).hexdigest()[:8]}"
