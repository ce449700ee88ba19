"""Publishing on a local disk: a folder takes the place of another by one rename."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from hyperplane.folder_entries import find_in
from hyperplane.storage.attempts import running_attempt
from hyperplane.storage.commit_protocol import PublishedState, conflict_error, foreign_manifest
from hyperplane.storage.manifest import Manifest, hash_names
from hyperplane.storage.object_store import ObjectStore
from hyperplane.storage.target import Target

_EXCHANGE = 2  # RENAME_EXCHANGE of linux/fs.h
_AT_FDCWD = -100


class RenameCommit:
    """On a local disk: by a rename, which is one step for every reader."""

    def __init__(self, target: Target, object_store: ObjectStore) -> None:
        self.target, self.object_store = target, object_store

    def read_state(self) -> PublishedState:
        """What others see now; the names in the folder say which manifest is of them."""
        if not os.path.lexists(self.target.path):
            self._restore_moved_folder()
        return self._read_stable_state()

    def _read_stable_state(self) -> PublishedState:
        while True:
            before = _inode(self.target.path)
            state = self._read_once()
            if _inode(self.target.path) == before:  # else it was replaced while it was listed
                return state

    def _read_once(self) -> PublishedState:
        path = Path(self.target.path)
        if path.is_dir():
            sizes = {
                name: int(info["size"])
                for name, info in self.object_store.list_files(str(path)).items()
            }
            if not sizes:
                return PublishedState()
        elif path.exists():
            sizes = {"": path.stat().st_size}
        else:
            return PublishedState()
        version = _version(hash_names(sizes), path)
        found = self.object_store.get(f"{self.target.beside}/{version}.json")
        if found is None:  # the folder may have been brought back from a copy of it
            found = self._find_only_manifest(hash_names(sizes))
        if found is not None:
            return PublishedState(version, Manifest.from_json(found))
        return PublishedState(version, foreign_manifest(sizes, self._find_saved_manifest()))

    def _restore_moved_folder(self) -> None:
        """Undo the first of two renames, when whoever did it was killed before the second."""
        if any(self._moved_folders()):
            with (
                contextlib.suppress(OSError),
                self._publish_lock(),
            ):  # one who lives has finished by then
                for aside in self._moved_folders():
                    if not os.path.lexists(self.target.path):
                        aside.rename(self.target.path)

    def _moved_folders(self) -> list[Path]:
        return find_in(Path(self.target.beside), "attempt-*.old")

    def _find_only_manifest(self, key: str) -> bytes | None:
        """The one manifest of parts with these names."""
        files = find_in(Path(self.target.beside), f"{key}-*.json")
        return self.object_store.get(str(files[0])) if len(files) == 1 else None

    def _find_saved_manifest(self) -> Manifest | None:
        """What was saved here before somebody else changed it."""
        for file in find_in(Path(self.target.beside), "*.json"):
            with contextlib.suppress(ValueError, TypeError, OSError):
                return Manifest.from_json(file.read_bytes())
        return None

    def finish_interrupted(self, state: PublishedState) -> None:
        """Nothing: a rename is all or nothing."""

    def publish(self, manifest: Manifest, staged: str, base: PublishedState) -> Manifest:
        """Rename the folder; see :class:`Commits`."""
        # A folder of its own, into which no task that runs twice can still write.
        with running_attempt() as name:
            whole = f"{self.target.beside}/{name}"
            try:
                for part in manifest.parts:
                    fresh = Path(staged, part.name)
                    found = fresh if fresh.exists() else Path(self.target.path, part.name)
                    self.object_store.copy(str(found), f"{whole}/{part.name}")
                version = _version(manifest.key, Path(whole))
                self._replace_target(whole, manifest, version, base)
            finally:
                shutil.rmtree(whole, ignore_errors=True)
        return manifest

    def _replace_target(
        self, whole: str, manifest: Manifest, version: str, base: PublishedState
    ) -> None:
        told = f"{self.target.beside}/{version}.json"
        self.object_store.put(told, manifest.to_json().encode())
        with self._publish_lock():
            if self._read_stable_state().version != base.version:
                Path(told).unlink(missing_ok=True)
                raise conflict_error(self.target)
            _exchange(whole, self.target.path)
            if base.version:
                Path(self.target.beside, f"{base.version}.json").unlink(missing_ok=True)

    def is_needed(self, attempt: str) -> bool:
        """Never: what was published is hard links."""
        del attempt
        return False

    def discard_attempt(self, attempt: str) -> None:
        """Remove the folder of an attempt."""
        shutil.rmtree(attempt, ignore_errors=True)

    def part_paths(self, manifest: Manifest) -> list[str]:
        """The paths of the parts."""
        return [f"{self.target.path}/{part.name}".rstrip("/") for part in manifest.parts]

    def data_folder(self, manifest: Manifest) -> str:
        """The path of a folder that has all of them."""
        return self.target.path

    @contextlib.contextmanager
    def _publish_lock(self) -> Iterator[None]:
        """Among those who publish at the same place; a process that dies lets go of it."""
        with Path(self.target.beside, "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _version(key: str, path: Path) -> str:
    """Of parts with the same names, as those of Zarr, the number of their folder says which."""
    return f"{key}-{path.stat().st_ino}"


def _inode(path: str) -> int | None:
    with contextlib.suppress(OSError):
        return Path(path).stat().st_ino
    return None


def _exchange(staged: str, path: str) -> None:
    """Put a folder where another thing may be; that is then where the folder was."""
    if not os.path.lexists(path):
        Path(staged).rename(path)
    elif not _try_swap(staged, path):
        aside = Path(f"{staged}.old")
        Path(path).rename(aside)  # in this moment others find nothing, and never a half
        try:
            Path(staged).rename(path)
        except BaseException:
            aside.rename(path)
            raise
        aside.rename(staged)
    if Path(staged).is_file():
        Path(staged).unlink()


def _try_swap(one: str, other: str) -> bool:
    """Whether two places could be exchanged in one step, as Linux can."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        exchange = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    done = exchange(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE)
    return bool(done == 0)
