"""Private temporary folders of this process; those of ended processes are removed.

Their names have the process ID: ``_p<id>`` and ``_p<id>-<number>``.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import weakref
from pathlib import Path

import psutil

from hyperplane.core.folder_entries import find_in
from hyperplane.platforms.local import file_locks
from hyperplane.platforms.local.private_folders import (
    folders_of_other_systems,
    private_folder,
    private_folders,
    remove_empty,
)

#: Names of clusters, whose scratch folders are beside these folders, never begin with "_".
_NAME = re.compile(r"_p([0-9]+)(?:-[0-9]+)?")
_numbers = itertools.count()


def create_temporary_folder(parent: str | None = None) -> Path:
    """Create and return a new folder of this process, which only this user can read.

    Parameters
    ----------
    parent : str, optional
        The temporary directory; the system's by default.
    """
    number = next(_numbers)
    while True:  # another process may remove the private folder in between
        folder = private_folder(parent) / f"_p{os.getpid()}-{number}"
        with contextlib.suppress(FileNotFoundError):
            file_locks.create_locked_folder(folder)
            return folder


def remove_temporary_folder(folder: Path) -> None:
    """Remove a folder of :func:`create_temporary_folder`, and its parent if that is empty."""
    file_locks.release_locks(folder)
    shutil.rmtree(folder, ignore_errors=True)
    remove_empty(folder.parent)


def remove_leftovers(parent: str | None = None) -> None:
    """Remove the folders that ended processes of this user have left in a temporary directory."""
    for entry in [entry for folder in private_folders(parent) for entry in find_in(folder, "_p*")]:
        owner = _NAME.fullmatch(entry.name)
        if owner and not psutil.pid_exists(int(owner[1])):
            shutil.rmtree(entry, ignore_errors=True)
    for folder in folders_of_other_systems(parent):
        for entry in filter(lambda entry: _NAME.fullmatch(entry.name), find_in(folder, "_p*")):
            remove_if_abandoned(entry)
        remove_empty(folder)


def remove_if_abandoned(folder: Path) -> None:
    """Remove a folder unless a process holds its lock."""
    with contextlib.suppress(OSError), file_locks.lock_if_abandoned(folder) as is_abandoned:
        if is_abandoned:
            shutil.rmtree(folder, ignore_errors=True)


class TemporaryFolder:
    """A new folder of this process, removed with the last reference to this object.

    The leftovers of ended processes in the same temporary directory are removed first.

    Parameters
    ----------
    parent : str, optional
        The temporary directory; the system's by default.
    """

    def __init__(self, parent: str | None = None) -> None:
        remove_leftovers(parent)
        self.path = create_temporary_folder(parent)
        weakref.finalize(self, _remove_own, self.path, os.getpid())


def _remove_own(folder: Path, process: int) -> None:
    if process == os.getpid():  # not in a fork of it
        remove_temporary_folder(folder)
