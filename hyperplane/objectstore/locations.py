"""Stores, and the locations, files, and folders on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import fsspec

from hyperplane.objectstore.file_names import decompress, detect_compression
from hyperplane.objectstore.redaction import redact_url


@dataclass(frozen=True)
class Store:
    """A file system, reconstructed in each process; its repr never shows the options.

    Parameters
    ----------
    protocol : str
        Protocol of the file system, such as ``file`` or ``gs``; the first one of a chain.
    url : str
        Any URL on the store, from which fsspec constructs the file system.
    options : dict
        Options for fsspec; may contain secrets.
    """

    protocol: str
    url: str = field(repr=False)
    options: Mapping[str, Any] = field(repr=False, hash=False)

    @cached_property
    def system(self) -> Any:
        """The fsspec file system."""
        return fsspec.url_to_fs(self.url, **self.options)[0]

    @property
    def local(self) -> bool:
        """Whether the store is the local disk."""
        return self.protocol == "file"

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("protocol", "url", "options")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __dask_tokenize__(self) -> Any:
        return (self.protocol, self.url, sorted(self.options.items(), key=repr))


@dataclass(frozen=True)
class Location:
    """A resolved location: file system and path."""

    store: Store
    path: str = field(repr=False)

    @property
    def address(self) -> str:
        """The URL for other libraries; may contain a signature."""
        if self.store.local:
            return self.path
        return str(self.store.system.unstrip_protocol(self.path))

    @property
    def url(self) -> str:
        """The URL for messages, without secrets."""
        return self.path if self.store.local else redact_url(self.address)


@dataclass(frozen=True)
class Folder(Location):
    """A folder, or a common prefix on a store without folders."""


@dataclass(frozen=True)
class File(Location):
    """One file and the version of its content.

    Parameters
    ----------
    store, path
        Location of the file.
    size : int
        Stored bytes; 0 if unknown.
    stamp : str
        Modification time, generation, or hash of this version; may be empty.
    sized : bool
        Whether the store knows the size.
    """

    size: int
    stamp: str
    sized: bool = True

    @property
    def compression(self) -> str:
        """Compression by the file's name; empty if it is not compressed."""
        return detect_compression(self.path)

    @contextmanager
    def open(self) -> Iterator[Any]:
        """Open the file for reading decompressed bytes."""
        with (
            self.store.system.open(self.path, "rb") as raw,
            decompress(raw, self.compression) as opened,
        ):
            yield opened

    def read_range(self, start: int, stop: int) -> bytes:
        """Read stored bytes from ``start`` to before ``stop``."""
        if start >= stop:
            return b""
        if self.store.local:
            with Path(self.path).open("rb") as opened:
                opened.seek(start)
                return opened.read(stop - start)
        data = bytes(self.store.system.cat_file(self.path, start=start, end=stop))
        # Servers without range requests send the whole file.
        return data if len(data) <= stop - start else data[start:stop]
