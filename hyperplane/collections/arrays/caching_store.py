"""Zarr stores of URLs, with a cache for the repeated reads that opening a store makes.

Imports zarr, an optional dependency, so callers import this module inside functions.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fsspec
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import FsspecStore, LocalStore, WrapperStore

from hyperplane.core.errors import HyperplaneError
from hyperplane.objectstore.reachability import monitor_open

#: Why a memory:// store cannot be read by workers.
MEMORY_STORE_ERROR = (
    "memory:// is the memory of this process; workers are other processes and would read "
    "missing values without any error"
)


class CachingStore(WrapperStore[Store]):
    """A store that caches all reads until :meth:`stop_caching`.

    To open a store, xarray reads the beginning of a time axis three times and looks for
    consolidated metadata twice, and each read is a round trip. The cache is never pickled.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._cache: dict[tuple[str, str], asyncio.Future[Buffer | None]] | None = {}
        self._owner_pid = os.getpid() if is_in_memory(store) else None

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Return the value of a key, or None."""
        if self._owner_pid not in (None, os.getpid()):
            # Not while unpickling: a worker that cannot deserialize a task shuts down.
            raise HyperplaneError(
                f"{MEMORY_STORE_ERROR}; write the stores to files or an object store"
            )
        cache = self._cache
        if cache is None:
            return await self._store.get(key, prototype, byte_range)
        request = (key, repr(byte_range))
        if request not in cache:
            cache[request] = asyncio.ensure_future(self._store.get(key, prototype, byte_range))
        return await cache[request]

    def stop_caching(self) -> None:
        """Discard the cache; later reads go to the store."""
        self._cache = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle_store, (self._store, self._owner_pid)


def _unpickle_store(store: Store, owner_pid: int | None) -> CachingStore:
    """Return the store, without a cache, in the process that unpickles it."""
    store_copy = CachingStore(store)
    store_copy.stop_caching()
    store_copy._owner_pid = owner_pid
    return store_copy


def is_in_memory(store: Store) -> bool:
    """Whether the data is in the memory of this process only (``memory://``)."""
    files = getattr(store, "fs", None)
    while files is not None:  # caching and archive file systems wrap another one
        protocol = files.protocol
        if "memory" in ((protocol,) if isinstance(protocol, str) else protocol):
            return True
        files = getattr(files, "sync_fs", None) or getattr(files, "fs", None)
    return False


def make_store(url: str, storage_options: Mapping[str, Any] | None) -> Store:
    """Return the Zarr store of a path or URL, without reading from it."""
    if "://" not in url:
        return LocalStore(Path(url).expanduser().absolute(), read_only=True)
    if url.startswith("file://"):
        return LocalStore(Path(fsspec.core.strip_protocol(url)), read_only=True)
    options = dict(storage_options or {})
    with monitor_open(url, options):
        return FsspecStore.from_url(url, options, read_only=True)
