"""Where something is saved: a place on a store, and the folder beside it for what is not yet."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from hyperplane.errors import Fault, RequestError
from hyperplane.stores.places import Store
from hyperplane.stores.secrets import said, shown


@dataclass(frozen=True)
class Target:
    """A place that is saved to.

    Parameters
    ----------
    store : Store
        Where.
    path : str
        Path on it, without a slash at its end.
    """

    store: Store
    path: str = field(repr=False)

    @property
    def url(self) -> str:
        """The place as messages may name it."""
        return self.path if self.store.local else shown(self.address(self.path))

    @property
    def name(self) -> str:
        """The last part of the path."""
        return PurePosixPath(self.path).name

    @property
    def parent(self) -> str:
        """The folder that it is in."""
        return str(PurePosixPath(self.path).parent)

    @property
    def beside(self) -> str:
        """The folder for manifests, and for parts that are not yet published.

        It lies beside the place and not in it: a file that is no part, hidden or not, stops some
        readers of folders (Polars, and Dask with ``filesystem="arrow"``).
        """
        return f"{self.parent}/.{self.name}.hyperplane"

    def address(self, path: str) -> str:
        """A path of the store as other libraries find it."""
        return path if self.store.local else str(self.store.system.unstrip_protocol(path))


def target_of(url: Any, storage_options: Mapping[str, Any] | None) -> Target:
    """What a URL names.

    Raises
    ------
    RequestError
        When it is none, is a glob, or names a whole bucket or disk.
    """
    allowed = "a path or URL of one file or folder"
    if not isinstance(url, (str, os.PathLike)) or not str(url).strip():
        raise RequestError([Fault("url", repr(url)[:80], allowed)])
    text = os.fspath(url)
    options = dict(storage_options or {})
    try:
        system, path = fsspec.url_to_fs(text, **options)
    except (ImportError, OSError, ValueError, TypeError) as error:
        wrong = f"a URL that fsspec can open ({said(error, options, text)})"
        raise RequestError([Fault("url", repr(shown(text)), wrong)]) from error
    path = path.rstrip("/")
    if isinstance(system, LocalFileSystem):
        store = Store("file", "file:///", options)
        deep = path not in ("", "/")
    else:
        protocol = system.protocol if isinstance(system.protocol, str) else system.protocol[0]
        store = Store(protocol, text, options)
        deep = protocol == "memory" or "/" in path.strip("/")
    if not deep:
        raise RequestError([Fault("url", repr(shown(text)), f"{allowed}, not a whole store")])
    if "*" in path or ".." in PurePosixPath(path).parts:
        raise RequestError([Fault("url", repr(shown(text)), f"{allowed}, without * and ..")])
    return Target(store, path)
