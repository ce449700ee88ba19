"""Large files of this machine: compared and sent by blocks, never held whole."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from hyperplane.errors import StorageError
from hyperplane.storage.object_store import Shelf, type_options
from hyperplane.storage.retrying import attempt, told
from hyperplane.storage.target import Target

T = TypeVar("T")
#: Bytes that are read at once; a file of no more is sent whole.
BLOCK = 8 * 2**20


class LargeFile:
    """A file of this machine, to be saved without being held in memory.

    Parameters
    ----------
    source : pathlib.Path
        The file.
    """

    def __init__(self, source: Path) -> None:
        self.source = source
        self.size = source.stat().st_size

    def compared(self, shelf: Shelf, path: str) -> tuple[bool, int | None]:
        """Whether a file of the store holds the same, and its bytes; None when it is gone."""
        try:
            info = _do(shelf, path, partial(shelf.store.system.info, path))
            size = int(info["size"] or 0)
            same = size == self.size and _do(shelf, path, partial(self._is_like, shelf, path))
        except (FileNotFoundError, StorageError) as error:
            if shelf.missing(error):
                return False, None
            raise
        return same, size

    def _is_like(self, shelf: Shelf, path: str) -> bool:
        with self.source.open("rb") as mine, shelf.store.system.open(path, "rb") as theirs:
            while block := mine.read(BLOCK):
                if theirs.read(len(block)) != block:
                    return False
        return True

    def put(self, shelf: Shelf, path: str) -> None:
        """Send it; who looks at the file there sees the old one or all of the new one."""
        if shelf.store.local:
            _do(shelf, path, partial(_copied, self.source, path, Path.replace))
        else:
            _do(shelf, path, partial(self._sent, shelf, path))

    def put_new(self, shelf: Shelf, path: str) -> None:
        """Send it to where no file is yet.

        Raises
        ------
        FileExistsError
            When there is one, with something else in it.
        """
        try:
            if shelf.store.local:
                _do(shelf, path, partial(_copied, self.source, path, os.link))
            else:
                _do(shelf, path, partial(self._sent, shelf, path, mode="create"))
        except FileExistsError:
            # After a lost answer it may have been ourselves.
            if not self.compared(shelf, path)[0]:
                raise

    def verify(self, shelf: Shelf, path: str) -> None:
        """Compare the size that the store tells.

        Raises
        ------
        StorageError
            When it is another one.
        """
        shelf.store.system.invalidate_cache()
        size = _do(shelf, path, partial(shelf.store.system.info, path))["size"]
        if int(size or 0) != self.size:
            raise StorageError(
                Target(shelf.store, path).url,
                f"has {size} bytes in the store, and {self.source} had {self.size}; save it again, "
                "when nobody changes it",
            )

    def _sent(self, shelf: Shelf, path: str, **options: Any) -> None:
        # Object stores show a file that comes in several pieces when the last one has come.
        system = shelf.store.system
        system.put_file(str(self.source), path, **type_options(system, path), **options)


def _copied(source: Path, path: str, publish: Callable[[Path, str], Any]) -> None:
    """Copy a file on the disk under another name, which then becomes the one it shall have."""
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name[:200]}.{secrets.token_hex(6)}.part")
    try:
        shutil.copyfile(source, draft)
        publish(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _do(shelf: Shelf, path: str, work: Callable[[], T]) -> T:
    def in_turn() -> T:
        with shelf.throttle.turn():
            return work()

    url = Target(shelf.store, path).url
    return attempt(in_turn, url, store=shelf.store, throttled=shelf.throttle.refused)


def hashed(file: Path, update: Callable[[bytes], None]) -> int:
    """Hand on a file of this machine by blocks; the bytes that it has.

    Raises
    ------
    StorageError
        When it cannot be read.
    """
    size = 0
    with told(str(file)), file.open("rb") as opened:
        while block := opened.read(BLOCK):
            update(block)
            size += len(block)
    return size
