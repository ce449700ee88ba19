"""Commits on local disk: the new folder replaces the old one by one rename."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from hyperplane.core.folder_entries import find_in
from hyperplane.objectstore.locations import Location
from hyperplane.objectstore.save_target import Target
from hyperplane.objectstore.store_files import StoreFiles
from hyperplane.storage.manifest import Manifest, hash_names, parse_manifest_file
from hyperplane.storage.published_state import PublishedState, conflict_error, foreign_manifest
from hyperplane.storage.save_attempts import running_attempt

_EXCHANGE = 2  # RENAME_EXCHANGE of linux/fs.h
_AT_FDCWD = -100


class RenameCommit:
    """Commit protocol of local disks: a rename of a folder is atomic for all readers."""

    def __init__(self, target: Target, store_files: StoreFiles) -> None:
        self.target, self.store_files = target, store_files

    def read_state(self) -> PublishedState:
        """Return the published state; the names in the folder identify its manifest."""
        if not os.path.lexists(self.target.path):
            self._restore_moved_folder()
        return self._read_stable_state()

    def _read_stable_state(self) -> PublishedState:
        """Return the state of a folder that was not replaced during the listing."""
        while True:
            before = _inode(self.target.path)
            state = self._read_once()
            if _inode(self.target.path) == before:  # otherwise replaced during the listing
                return state

    def _read_once(self) -> PublishedState:
        """Return the state of the folder, which may be replaced meanwhile."""
        path = Path(self.target.path)
        if path.is_dir():
            sizes = {
                name: int(info["size"])
                for name, info in self.store_files.list_files(str(path)).items()
            }
            if not sizes:
                return PublishedState()
        elif path.exists():
            sizes = {"": path.stat().st_size}
        else:
            return PublishedState()
        version = _version(hash_names(sizes), path)
        manifest = self._read_manifest(f"{self.target.metadata_folder}/{version}.json")
        if manifest is None:  # a restored copy of the folder has another inode
            manifest = self._find_only_manifest(hash_names(sizes))
        if manifest is not None:
            return PublishedState(version, manifest)
        return PublishedState(version, foreign_manifest(sizes, self._find_saved_manifest()))

    def _restore_moved_folder(self) -> None:
        """Undo the first of two renames if the process was killed before the second."""
        if any(self._moved_folders()):
            # A live process holds the lock until both renames are done.
            with contextlib.suppress(OSError), self._publish_lock():
                for moved in self._moved_folders():
                    if not os.path.lexists(self.target.path):
                        moved.rename(self.target.path)

    def _moved_folders(self) -> list[Path]:
        """Return published folders that were renamed away, on systems that cannot swap paths."""
        return find_in(Path(self.target.metadata_folder), "attempt-*.old")

    def _read_manifest(self, path: str) -> Manifest | None:
        """Return the manifest in a file; None if it does not exist."""
        data = self.store_files.get(path)
        return (
            None if data is None else parse_manifest_file(data, Location(self.target.store, path))
        )

    def _find_only_manifest(self, key: str) -> Manifest | None:
        """Return the manifest of parts with these names, if there is exactly one."""
        files = find_in(Path(self.target.metadata_folder), f"{key}-*.json")
        return self._read_manifest(str(files[0])) if len(files) == 1 else None

    def _find_saved_manifest(self) -> Manifest | None:
        """Return the manifest of the last save before another program changed the folder."""
        for file in find_in(Path(self.target.metadata_folder), "*.json"):
            with contextlib.suppress(ValueError, TypeError, OSError):
                return Manifest.from_json(file.read_bytes())
        return None

    def finish_interrupted(self, state: PublishedState) -> None:
        """Do nothing: :meth:`read_state` undoes an interrupted exchange of two folders."""

    def publish(self, manifest: Manifest, staged: str, base: PublishedState) -> Manifest:
        """Rename the folder; see :class:`CommitProtocol`."""
        # In a separate folder: a task that runs twice may still write to the staging folder.
        with running_attempt() as name:
            folder = f"{self.target.metadata_folder}/{name}"
            try:
                for part in manifest.parts:
                    new = Path(staged, part.name)
                    source = new if new.exists() else Path(self.target.path, part.name)
                    self.store_files.copy(str(source), f"{folder}/{part.name}")
                version = _version(manifest.key, Path(folder))
                self._replace_target(folder, manifest, version, base)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        return manifest

    def _replace_target(
        self, folder: str, manifest: Manifest, version: str, base: PublishedState
    ) -> None:
        """Replace the published folder under the lock, if its state is still ``base``."""
        manifest_path = f"{self.target.metadata_folder}/{version}.json"
        self.store_files.put(manifest_path, manifest.to_json().encode())
        with self._publish_lock():
            if self._read_stable_state().version != base.version:
                Path(manifest_path).unlink(missing_ok=True)
                raise conflict_error(self.target)
            _exchange(folder, self.target.path)
            if base.version:
                Path(self.target.metadata_folder, f"{base.version}.json").unlink(missing_ok=True)

    def is_needed(self, attempt: str) -> bool:
        """Return False: the published folder has hard links to the files of the attempt."""
        del attempt
        return False

    def discard_attempt(self, attempt: str) -> None:
        """Remove the folder of an attempt."""
        shutil.rmtree(attempt, ignore_errors=True)

    def part_paths(self, manifest: Manifest) -> list[str]:
        """Return the paths of the parts."""
        return [f"{self.target.path}/{part.name}".rstrip("/") for part in manifest.parts]

    def data_folder(self, manifest: Manifest) -> str:
        """Return the path of the published folder."""
        return self.target.path

    @contextlib.contextmanager
    def _publish_lock(self) -> Iterator[None]:
        """Hold the lock of processes that publish this output; it ends with the process."""
        with Path(self.target.metadata_folder, "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _version(key: str, path: Path) -> str:
    """Return the version of a folder; file names are not enough, as Zarr stores have the same."""
    return f"{key}-{path.stat().st_ino}"


def _inode(path: str) -> int | None:
    """Return the inode of a path; None if it does not exist."""
    with contextlib.suppress(OSError):
        return Path(path).stat().st_ino
    return None


def _exchange(staged: str, path: str) -> None:
    """Rename a staged folder to a path; an existing folder at the path gets the staged name."""
    if not os.path.lexists(path):
        Path(staged).rename(path)
    elif not _try_swap(staged, path):
        moved = Path(f"{staged}.old")
        Path(path).rename(moved)  # for a moment readers find no output, but never an incomplete one
        try:
            Path(staged).rename(path)
        except BaseException:
            moved.rename(path)
            raise
        moved.rename(staged)
    if Path(staged).is_file():
        Path(staged).unlink()


def _try_swap(staged: str, path: str) -> bool:
    """Exchange two paths in one step, which only Linux supports; return whether it succeeded."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        exchange = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    status = exchange(_AT_FDCWD, os.fsencode(staged), _AT_FDCWD, os.fsencode(path), _EXCHANGE)
    return bool(status == 0)
