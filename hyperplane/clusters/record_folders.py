"""Folders with the records of this user's clusters on this machine."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from pathlib import Path

from hyperplane.platforms.local.private_folders import (
    create_folder,
    is_private,
    is_private_folder,
    private_folder,
    private_folders,
    system_folder_name,
)

_FULL_DISK = (
    "free space on that disk, or set XDG_STATE_HOME, or TMPDIR if the file is in the temporary "
    "directory, to a folder on another disk"
)


def record_folder() -> Path:
    """Create and return the folder for the records of this user's clusters on this machine.

    It is in the first of these places that is usable:

    - the temporary directory if only this user can write there: a user who sets such a directory
      isolates programs from each other;
    - the home directory, in a separate folder for each machine and container that may share it;
    - ``$XDG_RUNTIME_DIR``, which is removed with the user's last session while clusters may run;
    - a private folder in the shared temporary directory.

    Raises
    ------
    OSError
        If it cannot be created in any of these places.
    """
    if not _is_temporary_directory_private():
        for parent in _record_parents():
            with contextlib.suppress(OSError):
                folder = parent / system_folder_name()
                status = create_folder(folder)
                if is_private(status) and os.access(folder, os.W_OK | os.X_OK):
                    return folder
    return private_folder()


def write_draft(file: Path, text: str) -> Path:
    """Write a text to a draft of a record, which only this user can read; return its path.

    Raises
    ------
    OSError
        If it cannot be written. The error names the record, and what to do if the disk is full.
    """
    draft = file.with_suffix(f".{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "w") as opened:
            opened.write(text)
    except OSError as error:  # without a path
        with contextlib.suppress(OSError):
            draft.unlink()
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = f"; {_FULL_DISK}" if is_full else ""
        raise OSError(error.errno, f"{error.strerror}: {str(file)!r}{advice}") from error
    return draft


def record_folders() -> list[Path]:
    """Return all folders that may have records of this user's clusters on this machine."""
    if _is_temporary_directory_private():
        return private_folders()
    folders = [parent / system_folder_name() for parent in _record_parents()]
    return [*filter(is_private_folder, folders), *private_folders()]


def _is_temporary_directory_private() -> bool:
    if not hasattr(os, "getuid"):
        return True
    with contextlib.suppress(OSError):
        return is_private(Path(tempfile.gettempdir()).stat())
    return False


def _record_parents() -> list[Path]:
    """Return parents for the folder of records in the home and runtime directories."""
    parents = []
    with contextlib.suppress(RuntimeError, OSError):  # no home directory is known
        home = Path.home()
        # With sudo it may belong to another user, who could not remove our folder.
        if home.stat().st_uid == os.getuid():
            state = os.environ.get("XDG_STATE_HOME")
            base = Path(state) if state and Path(state).is_absolute() else home / ".local" / "state"
            parents.append(base / "hyperplane" / "clusters")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_absolute() and is_private_folder(Path(runtime)):
        parents.append(Path(runtime) / "hyperplane")
    return parents
