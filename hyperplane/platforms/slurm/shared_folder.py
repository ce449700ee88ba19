"""Folders and private files on a file system that this machine shares with the nodes."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from hyperplane.core.home_folder import find_home
from hyperplane.platforms.local.private_folders import default_private_folder
from hyperplane.spec.settings import BatchSettings

#: What a user without a home folder can do.
_ADVICE = "set XDG_STATE_HOME or shared_folder of the engine to a folder of yours on all nodes"


def shared_folder(settings: BatchSettings) -> Path:
    """Return the folder for files of this machine, on a file system that all nodes share."""
    if settings.shared_folder:
        folder = Path(settings.shared_folder).expanduser()
    else:
        state = os.environ.get("XDG_STATE_HOME") or find_home(_ADVICE) / ".local" / "state"
        folder = Path(state, "hyperplane").expanduser()
    return folder.absolute() / socket.gethostname()


def private_folder(settings: BatchSettings, name: str) -> Path:
    """Return the path of a shared folder that only this user can enter."""
    return default_private_folder(shared_folder(settings)) / name


def log_folder(settings: BatchSettings, default: Path) -> Path:
    """Return the folder for the output of jobs: ``settings.log_folder``, or else ``default``."""
    if settings.log_folder is None:
        return default
    return Path(settings.log_folder).expanduser().absolute()


def write_private_files(folder: Path, texts: Mapping[str, str]) -> None:
    """Write files that only this user can read, by their names."""
    for name, text in texts.items():
        opened = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(opened, "w") as file:
            file.write(text)


def find_removable(folder: Path) -> list[Path]:
    """Return a folder and its missing parents, the deepest first, to remove them after use."""
    return [folder, *(parent for parent in folder.parents if not parent.exists())]


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove the folders that are empty; other clusters use those that are not."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()
