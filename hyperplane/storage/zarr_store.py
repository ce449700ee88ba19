"""A saved Zarr store as it was when it was loaded: every file that is read is compared.

zarr is imported here, so this module is imported by the functions that have asked for it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from zarr.abc import store as abc
from zarr.core.buffer import Buffer, BufferPrototype

from hyperplane.errors import ReadError
from hyperplane.storage.manifest import ManifestEntry
from hyperplane.storage.object_store import ObjectStore
from hyperplane.storage.target import Target
from hyperplane.stores.locations import Store

_GONE = "is gone: somebody has replaced or removed it since it was loaded; load it again"
_CHANGED = (
    "is not what was saved: somebody has replaced it since it was loaded, or it is damaged; load "
    "it again, and if that does not help, remove it and save it again"
)


class VerifiedZarrStore(abc.Store):
    """Reads one version of what was saved, and nothing else.

    The names of chunks are the same in every version, so a name does not say of which version a
    file is: its size and its checksum do. What the manifest does not name is not there, and what
    it names is there as it was saved, or reading it is an error.

    Parts of a file, which only arrays with shards are read by, are cut out of the whole, because
    a checksum is of a whole. The last file that was read in parts is kept for that.

    Parameters
    ----------
    store : Store
        Where.
    folders : sequence of str
        Paths of folders that may have a file, in the order in which to look.
    parts : iterable of Part
        Of the manifest.
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
        return self.store, self.folders[-1], list(self.parts.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VerifiedZarrStore) and self._identity() == other._identity()

    __hash__ = None  # type: ignore[assignment]

    def __dask_tokenize__(self) -> Any:
        return self._identity()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last_read": ("", b"")}

    def __str__(self) -> str:
        return Target(self.store, self.folders[-1]).url

    async def get(
        self,
        key: str,
        prototype: BufferPrototype,
        byte_range: abc.ByteRequest | None = None,
    ) -> Buffer | None:
        """What was saved under a key, or a range of it; None when nothing was."""
        if key not in self.parts:
            return None
        data = await asyncio.to_thread(
            self._read_for_ranges if byte_range else self._read_whole, key
        )
        return prototype.buffer.from_bytes(_slice_range(data, byte_range))

    def _read_whole(self, key: str) -> bytes:
        """All of a file.

        Raises
        ------
        ReadError
            When it is not there as it was saved.
        """
        part, object_store = self.parts[key], ObjectStore(self.store)
        wrong = _GONE
        for folder in self.folders:
            found = object_store.get(f"{folder}/{key}")
            if found is None:
                continue
            if len(found) == part.size and hashlib.sha256(found).hexdigest() == part.sha256:
                return found
            wrong = _CHANGED
        raise ReadError(Target(self.store, f"{self.folders[-1]}/{key}").url, wrong)

    def _read_for_ranges(self, key: str) -> bytes:
        kept, data = self._last_read
        if kept != key:
            data = self._read_whole(key)
            self._last_read = key, data
        return data

    async def get_partial_values(
        self,
        prototype: BufferPrototype,
        key_ranges: Iterable[tuple[str, abc.ByteRequest | None]],
    ) -> list[Buffer | None]:
        """Several ranges."""
        return [await self.get(key, prototype, asked) for key, asked in key_ranges]

    async def exists(self, key: str) -> bool:
        """Whether something was saved under a key."""
        return key in self.parts

    async def set(self, key: str, value: Buffer) -> None:
        """Never: what is saved is replaced whole, by saving it."""
        self._check_writable()

    async def delete(self, key: str) -> None:
        """Never."""
        self._check_writable()

    async def set_partial_values(self, key_start_values: Any) -> None:
        """Never; zarr before 3.1 wants every store to have it."""
        self._check_writable()

    async def list(self) -> AsyncIterator[str]:
        """All keys."""
        for key in self.parts:
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """The keys that begin so."""
        for key in self.parts:
            if key.startswith(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """The names in a folder."""
        folder = f"{prefix.rstrip('/')}/".removeprefix("/")
        inside = (key.removeprefix(folder) for key in self.parts if key.startswith(folder))
        for name in dict.fromkeys(key.partition("/")[0] for key in inside):
            yield name


def _slice_range(data: bytes, asked: abc.ByteRequest | None) -> bytes:
    """The range of bytes that is asked for."""
    if isinstance(asked, abc.RangeByteRequest):
        return data[asked.start : asked.end]
    if isinstance(asked, abc.OffsetByteRequest):
        return data[asked.offset :]
    if isinstance(asked, abc.SuffixByteRequest):
        return data[max(0, len(data) - asked.suffix) :]
    return data
