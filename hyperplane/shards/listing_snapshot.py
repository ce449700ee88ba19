"""A listing that the first of several shards writes, and all others read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from hyperplane.errors import Fault, RequestError
from hyperplane.storage.object_store import ObjectStore
from hyperplane.storage.target import resolve_target
from hyperplane.stores import listing

#: A file's address and its bytes.
ListedFile = tuple[str, int]


def list_files(urls: Any, options: Mapping[str, Any] | None, *, sized: bool) -> list[ListedFile]:
    """Files in natural order, whatever order the store or the list has."""
    files = listing.find_files(urls, options, sized=sized)
    # Names that differ in leading zeros only are equal in natural order.
    files.sort(key=lambda file: (listing.natural_sort_key(file.address), file.address))
    return [(file.address, file.size) for file in files]


def read_or_create_snapshot(
    urls: Any, frozen: str | os.PathLike[str], options: Mapping[str, Any] | None
) -> list[ListedFile]:
    """Files as they were when the first one looked.

    Raises
    ------
    RequestError
        When the listing is one of other files, or no listing at all.
    """
    target = resolve_target(frozen, options)
    shelf = ObjectStore(target.store)
    found = shelf.get(target.path)
    if found is None:
        files = list_files(urls, options, sized=True)
        made = json.dumps({"asked": _url_texts(urls), "files": files}, indent=1).encode()
        try:
            shelf.put_new(target.path, made)
            found = made
        except FileExistsError:  # another shard was first
            found = shelf.get(target.path) or b""
    return _parse_snapshot(found, urls, target.url)


def _url_texts(urls: Any) -> list[str]:
    many = [urls] if isinstance(urls, (str, os.PathLike)) else list(urls)
    return [os.fspath(url) for url in many]


def _parse_snapshot(found: bytes, urls: Any, shown: str) -> list[ListedFile]:
    advice = "for another run name another file"
    try:
        document = json.loads(found)
        asked, files = document["asked"], _pairs(document["files"])
    except (ValueError, KeyError, TypeError) as error:
        allowed = "a listing that shard_files has written, or a name that is free"
        raise RequestError([Fault("frozen", shown, allowed, advice)]) from error
    if asked != _url_texts(urls):
        allowed = f"the listing of {', '.join(asked)[:200]}, which is what it was made of"
        raise RequestError([Fault("frozen", f"{shown} for other files", allowed, advice)])
    return files


def _pairs(files: Sequence[Sequence[Any]]) -> list[ListedFile]:
    return [(str(address), int(size)) for address, size in files]
