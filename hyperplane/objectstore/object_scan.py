"""List the sizes of very many objects of S3 and Google Cloud Storage with little memory.

The names are those that :func:`hyperplane.objectstore.listing.find_files` finds.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import compress
from typing import Any

from fsspec.utils import glob_translate

from hyperplane.core.errors import check
from hyperplane.objectstore import listing
from hyperplane.objectstore.locations import Location
from hyperplane.objectstore.object_pages import ObjectLister, Page, find_lister, list_page
from hyperplane.objectstore.object_ranges import RangeRequest, Request, iterate_pages
from hyperplane.objectstore.reachability import monitor_request


@dataclass(frozen=True)
class ObjectScan:
    """A folder or glob of a bucket, the first request of its listing, and the bucket's address."""

    name: Any
    location: Location
    address: str
    lister: ObjectLister
    first: Request

    def iterate_sizes(self) -> Iterator[tuple[str, int]]:
        """Yield address and size of each object, in no order; none if there is no such bucket.

        Raises
        ------
        RequestError
            If the store refuses a request.
        """
        store, is_first = self.location.store, True
        pages = iterate_pages(self.lister, self.first)
        while True:
            try:
                with monitor_request(store, os.fspath(self.name)):
                    page = next(pages, None)
                faults = []
            except Exception as error:  # noqa: BLE001 - each file system raises its own
                if is_first and isinstance(error, FileNotFoundError):
                    return
                faults = [listing.unreadable_fault(self.name, error, store.options)]
            check(faults)
            if page is None:
                return
            is_first = False
            yield from zip([self.address + key for key in page.keys], page.sizes, strict=True)


def plan_object_scan(name: Any, location: Location) -> ObjectScan | None:
    """Return how to list a folder or glob; None for all else, which find_files lists."""
    system, path = location.store.system, location.path
    is_glob = listing.is_glob(path)
    path = path if is_glob else path.rstrip("/")
    bucket, _, key = path.partition("/")
    # The name of an access point has a "/".
    if bucket.startswith("arn:") or not bucket or listing.is_glob(bucket):
        return None
    if "//" in path or path.endswith("/"):
        return None
    lister = find_lister(location.store, bucket)
    if lister is None:
        return None
    first: Request
    try:
        with monitor_request(location.store, os.fspath(name)):
            if system.info(path)["type"] != "directory":
                return None
        first = _request_folder(f"{key}/" if key else "")
    except FileNotFoundError:
        if not is_glob:
            return None
        try:
            first = _request_glob(bucket, key)
        except (ValueError, re.error):
            return None
    except Exception:  # noqa: BLE001 - find_files has the same error, and reports it
        return None
    return ObjectScan(name, location, system.unstrip_protocol(bucket) + "/", lister, first)


def _request_folder(folder: str) -> RangeRequest:
    """Return the request of all objects in a folder that are not hidden there."""

    def select(page: Page) -> Page:
        text = "/" + "/".join(page.keys)
        if "/_" not in text and "/." not in text:
            return page
        return _filter(page, lambda key: not _is_hidden(key, folder))

    return RangeRequest(folder, select)


def _request_glob(bucket: str, pattern: str) -> Request:
    """Return the first request of the objects that a glob matches, and of those in its folders.

    Raises
    ------
    ValueError, re.error
        If the pattern is not valid.
    """
    stem = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
    folder = stem[: stem.rfind("/") + 1]
    shows_hidden = listing.is_hidden(pattern[len(folder) :])
    if "**" in pattern:
        glob = _Glob(bucket, pattern, folder, shows_hidden)
        return RangeRequest(stem, lambda page: _filter(page, glob.lists))
    ends = [number for number, letter in enumerate(pattern) if letter == "/"]
    parts = [*(pattern[:end] for end in ends if end >= len(folder)), pattern]
    return _LevelRequest(stem, [_Glob(bucket, part, folder, shows_hidden) for part in parts])


class _Glob:
    """A glob of keys, and what it matches, hidden objects only if ``shows_hidden``.

    ``folder`` is the text before the first wildcard, up to its last ``/``.
    """

    def __init__(self, bucket: str, pattern: str, folder: str, shows_hidden: bool) -> None:
        self._folder, self._shows_hidden = folder, shows_hidden
        # In a pattern "**" has another meaning at its begin, which is that of the bucket.
        self._bucket, self._regex = bucket, re.compile(glob_translate(f"{bucket}/{pattern}"))
        self._end = "/" if pattern.endswith("/**") else ""
        self.matched_folders = lru_cache(self._find_matched_folders)

    def matches(self, key: str) -> bool:
        """Return whether the pattern matches a key, or a folder without its last ``/``."""
        if self._regex.match(f"{self._bucket}/{key}") is None:
            return False
        return self._shows_hidden or not _is_hidden(key, self._folder)

    def lists(self, key: str) -> bool:
        """Return whether the pattern matches a key, or a folder in which the key is not hidden."""
        if self.matches(key):
            return True
        folders = self.matched_folders(key.rpartition("/")[0])
        return any(not _is_hidden(key, folder) for folder in folders)

    def _find_matched_folders(self, folder: str) -> list[str]:
        """Return those of a folder and the folders above it that the pattern matches."""
        found = []
        while len(folder) + 1 >= len(self._folder) and folder:
            if self.matches(folder + self._end):
                found.append(folder + "/")
            folder = folder.rpartition("/")[0]
        return found


@dataclass(frozen=True)
class _LevelRequest:
    """What is directly in a folder of a glob without ``**``: a glob for each of its levels."""

    prefix: str
    globs: Sequence[_Glob]
    token: str = ""
    last: str = ""

    def send(self, lister: ObjectLister, idle: int) -> tuple[Page, Sequence[Request]]:
        """Return the matched objects of the last level, and the requests of matched folders."""
        del idle
        page = list_page(lister, self.prefix, self.token, delimiter="/", last=self.last)
        glob, *deeper = self.globs
        folders = [folder for folder in page.prefixes if glob.matches(folder[:-1])]
        rest = replace(self, token=page.token, last=page.last)
        following: list[Request] = [rest] if page.token else []
        if deeper:
            return Page(), [*following, *(_LevelRequest(folder, deeper) for folder in folders)]
        return _filter(page, glob.matches), [*following, *map(_request_folder, folders)]


def _filter(page: Page, is_listed: Callable[[str], bool]) -> Page:
    listed = [is_listed(key) for key in page.keys]
    return Page([*compress(page.keys, listed)], [*compress(page.sizes, listed)])


def _is_hidden(key: str, folder: str) -> bool:
    """Return whether a part of a key is hidden, of those in a folder that ends in ``/``."""
    path = key.rstrip("/")
    inside = path[len(folder) :] if path.startswith(folder) else path.rpartition("/")[2]
    return listing.is_hidden(inside)
