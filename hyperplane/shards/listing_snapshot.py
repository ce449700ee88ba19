"""A listing that the first of several shards writes, and all others read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from hyperplane.errors import Fault, RequestError
from hyperplane.storage.object_store import Shelf
from hyperplane.storage.target import target_of
from hyperplane.stores import listing

#: A file's address and its bytes.
Listed = tuple[str, int]


def sorted_files(urls: Any, options: Mapping[str, Any] | None, *, sized: bool) -> list[Listed]:
    """Files in natural order, whatever order the store or the list has."""
    files = listing.find(urls, options, sized=sized)
    # Names that differ in leading zeros only are equal in natural order.
    files.sort(key=lambda file: (listing.natural(file.address), file.address))
    return [(file.address, file.size) for file in files]


def frozen_files(
    urls: Any, frozen: str | os.PathLike[str], options: Mapping[str, Any] | None
) -> list[Listed]:
    """Files as they were when the first one looked.

    Raises
    ------
    RequestError
        When the listing is one of other files, or no listing at all.
    """
    target = target_of(frozen, options)
    shelf = Shelf(target.store)
    found = shelf.get(target.path)
    if found is None:
        files = sorted_files(urls, options, sized=True)
        made = json.dumps({"asked": _asked(urls), "files": files}, indent=1).encode()
        try:
            shelf.put_new(target.path, made)
            found = made
        except FileExistsError:  # another shard was first
            found = shelf.get(target.path) or b""
    return _read(found, urls, target.url)


def _asked(urls: Any) -> list[str]:
    many = [urls] if isinstance(urls, (str, os.PathLike)) else list(urls)
    return [os.fspath(url) for url in many]


def _read(found: bytes, urls: Any, shown: str) -> list[Listed]:
    advice = "for another run name another file"
    try:
        document = json.loads(found)
        asked, files = document["asked"], _pairs(document["files"])
    except (ValueError, KeyError, TypeError) as error:
        allowed = "a listing that shard_files has written, or a name that is free"
        raise RequestError([Fault("frozen", shown, allowed, advice)]) from error
    if asked != _asked(urls):
        allowed = f"the listing of {', '.join(asked)[:200]}, which is what it was made of"
        raise RequestError([Fault("frozen", f"{shown} for other files", allowed, advice)])
    return files


def _pairs(files: Sequence[Sequence[Any]]) -> list[Listed]:
    return [(str(address), int(size)) for address, size in files]
