"""Stores, and the files and folders on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import fsspec

from hyperplane.stores.file_names import decompress, detect_compression
from hyperplane.stores.redaction import redact_url


@dataclass(frozen=True)
class Store:
    """A file system, made again wherever it is needed; never shows its options.

    Parameters
    ----------
    protocol : str
        As in the URL, such as ``file`` or ``gs``; may be a chain.
    url : str
        One URL on it, from which fsspec makes it.
    options : dict
        What fsspec is given; secrets among them.
    """

    protocol: str
    url: str = field(repr=False)
    options: Mapping[str, Any] = field(repr=False)

    @cached_property
    def system(self) -> Any:
        """The file system of fsspec."""
        return fsspec.url_to_fs(self.url, **self.options)[0]

    @property
    def local(self) -> bool:
        """Whether paths are those of this machine's own disk."""
        return self.protocol == "file"

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("protocol", "url", "options")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __dask_tokenize__(self) -> Any:
        return (self.protocol, self.url, sorted(self.options.items(), key=repr))


@dataclass(frozen=True)
class Location:
    """Where a name leads: a store and a path on it."""

    store: Store
    path: str = field(repr=False)

    @property
    def address(self) -> str:
        """The URL by which other libraries find it; a signature may be in it."""
        if self.store.local:
            return self.path
        return str(self.store.system.unstrip_protocol(self.path))

    @property
    def url(self) -> str:
        """The place as messages may name it."""
        return self.path if self.store.local else redact_url(self.address)


@dataclass(frozen=True)
class Folder(Location):
    """A folder, or what stands for one on a store without folders."""


@dataclass(frozen=True)
class File(Location):
    """One file: its bytes on its store, and what changes when it does.

    Parameters
    ----------
    store, path
        Where it is.
    size : int
        Bytes, as it is stored; 0 when they are not known.
    stamp : str
        A time, a number or a hash of this version; may be empty.
    sized : bool
        Whether its store says how many bytes it has.
    """

    size: int
    stamp: str
    sized: bool = True

    @property
    def compression(self) -> str:
        """How it is packed, by its name; empty when it is not."""
        return detect_compression(self.path)

    @contextmanager
    def open(self) -> Iterator[Any]:
        """The file for reading, unpacked."""
        with (
            self.store.system.open(self.path, "rb") as raw,
            decompress(raw, self.compression) as opened,
        ):
            yield opened

    def read_range(self, start: int, stop: int) -> bytes:
        """Some bytes of the file as it is stored."""
        if start >= stop:
            return b""
        if self.store.local:
            with Path(self.path).open("rb") as opened:
                opened.seek(start)
                return opened.read(stop - start)
        data = bytes(self.store.system.cat_file(self.path, start=start, end=stop))
        # Some servers do not know ranges, and send all of a file.
        return data if len(data) <= stop - start else data[start:stop]
