"""Read-only Zarr store of one saved version that verifies every file it reads.

This module imports zarr, so other modules import it within functions, after
``need("zarr", "array")``.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from zarr.abc import store as abc
from zarr.core.buffer import Buffer, BufferPrototype

from hyperplane.core.errors import ReadError
from hyperplane.objectstore.locations import Location, Store
from hyperplane.objectstore.store_files import StoreFiles
from hyperplane.storage.manifest import ManifestEntry
from hyperplane.storage.part_reading import GONE

_CHANGED = (
    "has changed: it was replaced since it was loaded, or it is damaged; load it again, and if "
    "that does not help, remove it and save it again"
)


class VerifiedZarrStore(abc.Store):
    """Read-only Zarr store of one saved version.

    Chunks have the same names in every version, so each file is identified by size and checksum.
    A key that is not in the manifest does not exist; a file that differs from the manifest is an
    error.

    For a byte range, which only sharded arrays need, the whole file is read, because checksums
    are those of whole files. The last such file is cached.

    Parameters
    ----------
    store : Store
        The store.
    folders : sequence of str
        Folders to search for a file, in this order.
    parts : iterable of ManifestEntry
        Files of the version.
    """

    supports_writes = False
    supports_deletes = False
    supports_partial_writes = False
    supports_listing = True

    def __init__(
        self, store: Store, folders: Sequence[str], parts: Iterable[ManifestEntry]
    ) -> None:
        super().__init__(read_only=True)
        self.store, self.folders = store, tuple(folders)
        self.parts = {part.name: part for part in parts}
        self._last_read: tuple[str, bytes] = ("", b"")

    def _identity(self) -> Any:
        """Return the values that equal stores have in common."""
        return self.store, self.folders[-1], list(self.parts.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VerifiedZarrStore) and self._identity() == other._identity()

    __hash__ = None  # type: ignore[assignment]

    def __dask_tokenize__(self) -> Any:
        return self._identity()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last_read": ("", b"")}

    def __str__(self) -> str:
        return Location(self.store, self.folders[-1]).url

    async def get(
        self,
        key: str,
        prototype: BufferPrototype,
        byte_range: abc.ByteRequest | None = None,
    ) -> Buffer | None:
        """Return the content of a key, or a range of it; None if the key does not exist."""
        if key not in self.parts:
            return None
        data = await asyncio.to_thread(
            self._read_for_ranges if byte_range else self._read_whole, key
        )
        return prototype.buffer.from_bytes(_slice_range(data, byte_range))

    def _read_whole(self, key: str) -> bytes:
        """Read a file and verify it.

        Raises
        ------
        ReadError
            If the file is gone or differs from the manifest.
        """
        part, store_files = self.parts[key], StoreFiles(self.store)
        problem = GONE
        for folder in self.folders:
            data = store_files.get(f"{folder}/{key}")
            if data is None:
                continue
            if len(data) == part.size and hashlib.sha256(data).hexdigest() == part.sha256:
                return data
            problem = _CHANGED
        raise ReadError(Location(self.store, f"{self.folders[-1]}/{key}").url, problem)

    def _read_for_ranges(self, key: str) -> bytes:
        """Read a file, or return the cached one."""
        cached_key, data = self._last_read
        if cached_key != key:
            data = self._read_whole(key)
            self._last_read = key, data
        return data

    async def get_partial_values(
        self,
        prototype: BufferPrototype,
        key_ranges: Iterable[tuple[str, abc.ByteRequest | None]],
    ) -> list[Buffer | None]:
        """Return several ranges."""
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    async def exists(self, key: str) -> bool:
        """Return whether a key exists."""
        return key in self.parts

    async def set(self, key: str, value: Buffer) -> None:
        """Raise, as the store is read-only."""
        self._check_writable()

    async def delete(self, key: str) -> None:
        """Raise, as the store is read-only."""
        self._check_writable()

    async def set_partial_values(self, key_start_values: Any) -> None:
        """Raise, as the store is read-only; zarr before 3.1 requires the method."""
        self._check_writable()

    async def list(self) -> AsyncIterator[str]:
        """Yield all keys."""
        for key in self.parts:
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Yield the keys that begin with a prefix."""
        for key in self.parts:
            if key.startswith(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names in a folder."""
        folder = f"{prefix.rstrip('/')}/".removeprefix("/")
        inside = (key.removeprefix(folder) for key in self.parts if key.startswith(folder))
        for name in dict.fromkeys(key.partition("/")[0] for key in inside):
            yield name


def _slice_range(data: bytes, byte_range: abc.ByteRequest | None) -> bytes:
    """Return the requested byte range."""
    if isinstance(byte_range, abc.RangeByteRequest):
        return data[byte_range.start : byte_range.end]
    if isinstance(byte_range, abc.OffsetByteRequest):
        return data[byte_range.offset :]
    if isinstance(byte_range, abc.SuffixByteRequest):
        return data[max(0, len(data) - byte_range.suffix) :]
    return data
