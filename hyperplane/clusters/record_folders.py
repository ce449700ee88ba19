"""Folders with the records of this user's clusters on this machine."""

from __future__ import annotations

import contextlib
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


def record_folder() -> Path:
    """Create and return the folder for the records of this user's clusters on this machine.

    The first usable place of these is taken:

    - the temporary directory if only this user can write there, as a user sets one to isolate
      programs from each other;
    - the home directory, with one folder per machine and container, because they may share it;
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
                found = create_folder(folder)
                if is_private(found) and os.access(folder, os.W_OK | os.X_OK):
                    return folder
    return private_folder()


def record_folders() -> list[Path]:
    """Return all folders that may have records of this user's clusters on this machine."""
    if _is_temporary_directory_private():
        return private_folders()
    own = [parent / system_folder_name() for parent in _record_parents()]
    return [*filter(is_private_folder, own), *private_folders()]


def _is_temporary_directory_private() -> bool:
    if not hasattr(os, "getuid"):
        return True
    with contextlib.suppress(OSError):
        return is_private(Path(tempfile.gettempdir()).stat())
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
    if runtime and Path(runtime).is_absolute() and is_private_folder(Path(runtime)):
        found.append(Path(runtime) / "hyperplane")
    return found
