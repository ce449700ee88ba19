"""A file listing that the first of several shards writes and all others read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from hyperplane.core.errors import Fault, RequestError
from hyperplane.objectstore import listing
from hyperplane.objectstore.save_target import resolve_target
from hyperplane.objectstore.store_files import StoreFiles

#: A file's address and its size in bytes.
ListedFile = tuple[str, int]


def list_files(urls: Any, options: Mapping[str, Any] | None, *, sized: bool) -> list[ListedFile]:
    """List files in natural order, regardless of the order of the store or the list."""
    files = listing.find_files(urls, options, sized=sized)
    # Names that differ only in leading zeros are equal in natural order.
    files.sort(key=lambda file: (listing.natural_sort_key(file.address), file.address))
    return [(file.address, file.size) for file in files]


def read_or_create_snapshot(
    urls: Any, frozen: str | os.PathLike[str], options: Mapping[str, Any] | None
) -> list[ListedFile]:
    """Return the listing that the first shard wrote; write it if this shard is the first.

    Raises
    ------
    RequestError
        If the snapshot lists other URLs, or the file is not a snapshot.
    """
    target = resolve_target(frozen, options)
    store_files = StoreFiles(target.store)
    data = store_files.get(target.path)
    if data is None:
        files = list_files(urls, options, sized=True)
        snapshot = json.dumps({"asked": _url_texts(urls), "files": files}, indent=1).encode()
        try:
            store_files.put_new(target.path, snapshot)
            data = snapshot
        except FileExistsError:  # another shard wrote it first
            data = store_files.get(target.path) or b""
    return _parse_snapshot(data, urls, target.url)


def _url_texts(urls: Any) -> list[str]:
    many = [urls] if isinstance(urls, (str, os.PathLike)) else list(urls)
    return [os.fspath(url) for url in many]


def _parse_snapshot(data: bytes, urls: Any, shown: str) -> list[ListedFile]:
    """Parse a snapshot, and check that it was made of the same URLs."""
    advice = "use a new file for each run"
    try:
        document = json.loads(data)
        urls_listed, files = document["asked"], _pairs(document["files"])
    except (ValueError, KeyError, TypeError) as error:
        allowed = "a listing written by shard_files, or a new file name"
        raise RequestError([Fault("frozen", shown, allowed, advice)]) from error
    if urls_listed != _url_texts(urls):
        allowed = f"the same urls as when it was written: {', '.join(urls_listed)[:200]}"
        raise RequestError([Fault("frozen", f"{shown} for other urls", allowed, advice)])
    return files


def _pairs(files: Sequence[Sequence[Any]]) -> list[ListedFile]:
    return [(str(address), int(size)) for address, size in files]
