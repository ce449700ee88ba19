"""Zarr stores from URLs: read in few round trips, and named without secrets.

zarr is imported here, so this module is imported by the functions that have asked for it.
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

from hyperplane.errors import HyperplaneError
from hyperplane.stores.contact import opening

#: The message wherever data in the memory of one process is asked of another.
MEMORY_STORE_ERROR = (
    "memory:// is the memory of this process, and the workers are other processes: they would "
    "read missing values without any error"
)


class CachingStore(WrapperStore[Store]):
    """A store that reads each thing once while it is being opened.

    xarray reads the beginning of a time axis three times, and looks for consolidated metadata
    twice; each of these is a round trip. What was read is kept until :meth:`forget`, and never
    sent to another process.

    Parameters
    ----------
    store : zarr.abc.store.Store
        The store that is read.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._cache: dict[tuple[str, str], asyncio.Future[Buffer | None]] | None = {}
        self._owner_pid = os.getpid() if is_in_memory(store) else None

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """What the store holds under a key, or None."""
        if self._owner_pid not in (None, os.getpid()):
            # Not when it is received: a worker that cannot receive a task closes itself.
            raise HyperplaneError(
                f"{MEMORY_STORE_ERROR}; write the stores to a place that they can read"
            )
        cache = self._cache
        if cache is None:
            return await self._store.get(key, prototype, byte_range)
        request = (key, repr(byte_range))
        if request not in cache:
            cache[request] = asyncio.ensure_future(self._store.get(key, prototype, byte_range))
        return await cache[request]

    def stop_caching(self) -> None:
        """Keep nothing any more: what is read from now on is what is there then."""
        self._cache = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle_store, (self._store, self._owner_pid)


def _unpickle_store(store: Store, owner_pid: int | None) -> CachingStore:
    """The store, in the process that a task was sent to, or on the way there."""
    store_copy = CachingStore(store)
    store_copy.stop_caching()
    store_copy._owner_pid = owner_pid
    return store_copy


def is_in_memory(store: Store) -> bool:
    """Whether the data is in the memory of this process alone."""
    files = getattr(store, "fs", None)
    while files is not None:  # a cache or an archive lies before other files
        protocol = files.protocol
        if "memory" in ((protocol,) if isinstance(protocol, str) else protocol):
            return True
        files = getattr(files, "sync_fs", None) or getattr(files, "fs", None)
    return False


def make_store(url: str, storage_options: Mapping[str, Any] | None) -> Store:
    """The store behind a path or URL; nothing is read yet."""
    if "://" not in url:
        return LocalStore(Path(url).expanduser().absolute(), read_only=True)
    if url.startswith("file://"):
        return LocalStore(Path(fsspec.core.strip_protocol(url)), read_only=True)
    options = dict(storage_options or {})
    with opening(url, options):
        return FsspecStore.from_url(url, options, read_only=True)
