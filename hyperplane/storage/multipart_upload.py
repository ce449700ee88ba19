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
from hyperplane.storage.object_store import ObjectStore, content_type_options
from hyperplane.storage.retrying import call_with_retries, translate_errors
from hyperplane.storage.target import Target

T = TypeVar("T")
#: Bytes that are read at once; a file of no more is sent whole.
BLOCK_BYTES = 8 * 2**20


class MultipartUpload:
    """A file of this machine, to be saved without being held in memory.

    Parameters
    ----------
    source : pathlib.Path
        The file.
    """

    def __init__(self, source: Path) -> None:
        self.source = source
        self.size = source.stat().st_size

    def compare(self, object_store: ObjectStore, path: str) -> tuple[bool, int | None]:
        """Whether a file of the store holds the same, and its bytes; None when it is gone."""
        try:
            info = _call_store(object_store, path, partial(object_store.store.system.info, path))
            size = int(info["size"] or 0)
            same = size == self.size and _call_store(
                object_store, path, partial(self._has_same_bytes, object_store, path)
            )
        except (FileNotFoundError, StorageError) as error:
            if object_store.is_missing(error):
                return False, None
            raise
        return same, size

    def _has_same_bytes(self, object_store: ObjectStore, path: str) -> bool:
        with self.source.open("rb") as mine, object_store.store.system.open(path, "rb") as theirs:
            while block := mine.read(BLOCK_BYTES):
                if theirs.read(len(block)) != block:
                    return False
        return True

    def put(self, object_store: ObjectStore, path: str) -> None:
        """Send it; who looks at the file there sees the old one or all of the new one."""
        if object_store.store.local:
            _call_store(object_store, path, partial(_copy_locally, self.source, path, Path.replace))
        else:
            _call_store(object_store, path, partial(self._send, object_store, path))

    def put_new(self, object_store: ObjectStore, path: str) -> None:
        """Send it to where no file is yet.

        Raises
        ------
        FileExistsError
            When there is one, with something else in it.
        """
        try:
            if object_store.store.local:
                _call_store(object_store, path, partial(_copy_locally, self.source, path, os.link))
            else:
                _call_store(
                    object_store, path, partial(self._send, object_store, path, mode="create")
                )
        except FileExistsError:
            # After a lost answer it may have been ourselves.
            if not self.compare(object_store, path)[0]:
                raise

    def verify(self, object_store: ObjectStore, path: str) -> None:
        """Compare the size that the store tells.

        Raises
        ------
        StorageError
            When it is another one.
        """
        object_store.store.system.invalidate_cache()
        size = _call_store(object_store, path, partial(object_store.store.system.info, path))[
            "size"
        ]
        if int(size or 0) != self.size:
            raise StorageError(
                Target(object_store.store, path).url,
                f"has {size} bytes in the store, and {self.source} had {self.size}; save it again, "
                "when nobody changes it",
            )

    def _send(self, object_store: ObjectStore, path: str, **options: Any) -> None:
        # Object stores show a file that comes in several pieces when the last one has come.
        system = object_store.store.system
        system.put_file(str(self.source), path, **content_type_options(system, path), **options)


def _copy_locally(source: Path, path: str, publish: Callable[[Path, str], Any]) -> None:
    """Copy a file on the disk under another name, which then becomes the one it shall have."""
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name[:200]}.{secrets.token_hex(6)}.part")
    try:
        shutil.copyfile(source, draft)
        publish(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _call_store(object_store: ObjectStore, path: str, work: Callable[[], T]) -> T:
    def in_turn() -> T:
        with object_store.throttle.acquire():
            return work()

    url = Target(object_store.store, path).url
    return call_with_retries(
        in_turn, url, store=object_store.store, throttled=object_store.throttle.reduce
    )


def hash_file(file: Path, update: Callable[[bytes], None]) -> int:
    """Hand on a file of this machine by blocks; the bytes that it has.

    Raises
    ------
    StorageError
        When it cannot be read.
    """
    size = 0
    with translate_errors(str(file)), file.open("rb") as opened:
        while block := opened.read(BLOCK_BYTES):
            update(block)
            size += len(block)
    return size
