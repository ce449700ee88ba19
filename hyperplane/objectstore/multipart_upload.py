"""Upload and compare large local files in blocks, so that memory use stays limited."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from hyperplane.core.errors import StorageError
from hyperplane.objectstore.locations import Location
from hyperplane.objectstore.retrying import translate_errors
from hyperplane.objectstore.store_files import (
    StoreFiles,
    choose_draft_path,
    content_type_options,
)

#: Bytes read at a time; smaller files are uploaded whole.
BLOCK_BYTES = 8 * 2**20


class MultipartUpload:
    """Upload of a large local file, which the file system reads in blocks.

    Parameters
    ----------
    source : pathlib.Path
        The file.
    """

    def __init__(self, source: Path) -> None:
        self.source = source
        self.size = source.stat().st_size

    def compare(self, store_files: StoreFiles, path: str) -> tuple[bool, int | None]:
        """Return whether a file of the store is equal, and its size; None if it does not exist."""
        try:
            info = store_files.call(path, partial(store_files.store.system.info, path))
            size = int(info["size"] or 0)
            same = size == self.size and store_files.call(
                path, partial(self._has_same_bytes, store_files, path)
            )
        except (FileNotFoundError, StorageError) as error:
            if store_files.is_missing(error):
                return False, None
            raise
        return same, size

    def _has_same_bytes(self, store_files: StoreFiles, path: str) -> bool:
        """Return whether a file of the store begins with the bytes of the local one."""
        with self.source.open("rb") as local, store_files.store.system.open(path, "rb") as remote:
            while block := local.read(BLOCK_BYTES):
                if remote.read(len(block)) != block:
                    return False
        return True

    def put(self, store_files: StoreFiles, path: str) -> None:
        """Upload the file atomically, replacing an existing one."""
        if store_files.store.local:
            store_files.call(path, partial(_copy_locally, self.source, path, Path.replace))
        else:
            store_files.call(path, partial(self._send, store_files, path))

    def put_new(self, store_files: StoreFiles, path: str) -> None:
        """Upload the file atomically, unless it exists.

        Raises
        ------
        FileExistsError
            If it exists with other content.
        """
        try:
            if store_files.store.local:
                store_files.call(path, partial(_copy_locally, self.source, path, os.link))
            else:
                store_files.call(path, partial(self._send, store_files, path, mode="create"))
        except FileExistsError:
            # If a response was lost, this process may have uploaded the file itself.
            if not self.compare(store_files, path)[0]:
                raise

    def verify(self, store_files: StoreFiles, path: str) -> None:
        """Check that the file has the same size in the store.

        Raises
        ------
        StorageError
            If the size differs.
        """
        store_files.store.system.invalidate_cache()
        size = store_files.call(path, partial(store_files.store.system.info, path))["size"]
        if int(size or 0) != self.size:
            raise StorageError(
                Location(store_files.store, path).url,
                f"has {size} bytes in the store, but {self.source} had {self.size} bytes; save it "
                "again while no process changes it",
            )

    def _send(self, store_files: StoreFiles, path: str, **options: Any) -> None:
        # Object stores publish a multipart upload when it is complete.
        system = store_files.store.system
        system.put_file(str(self.source), path, **content_type_options(system, path), **options)


def _copy_locally(source: Path, path: str, publish: Callable[[Path, str], Any]) -> None:
    """Copy a file to a temporary name on the same disk, then publish it under its path."""
    draft = choose_draft_path(path)
    try:
        shutil.copyfile(source, draft)
        publish(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def hash_file(file: Path, update: Callable[[bytes], None]) -> int:
    """Pass the blocks of a local file to ``update``, such as a hash's; return the file's size.

    Raises
    ------
    StorageError
        If the file cannot be read.
    """
    size = 0
    with translate_errors(str(file)), file.open("rb") as opened:
        while block := opened.read(BLOCK_BYTES):
            update(block)
            size += len(block)
    return size
