"""Names and sizes of objects on S3 and Google Cloud Storage, page by page.

The file systems of fsspec make a dictionary of about ten entries for each object, and keep it. Here
a page is two lists. Requests are sent by the file system, with its credentials, address, payment by
the requester and retries.
"""

from __future__ import annotations

import json
import re
import sys
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import unquote_plus

from hyperplane.objectstore.locations import Store

#: Objects of one request: the most that S3 returns, and that Google advises.
PAGE_SIZE = 1_000
_KEY, _SIZE = re.compile(rb"<Key>([^<&]*)</Key>"), re.compile(rb"<Size>(\d+)</Size>")
#: Key of the objects of a page in a response of botocore.
_OBJECTS = "hyperplane-objects"
#: Whether the response of the request that this context sends is read by ``_read_objects``.
_reads_objects = ContextVar("_reads_objects", default=False)


@dataclass
class Page:
    """Keys of objects in the order of the server, their sizes, and prefixes up to a delimiter."""

    keys: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)
    token: str = ""

    @property
    def last(self) -> str:
        """The last entry: that of the keys, or of the prefixes if there are no keys."""
        return (self.keys or self.prefixes or [""])[-1]


class ObjectLister(Protocol):
    """Requests of listings of one bucket.

    ``is_ordered`` is whether keys are listed in the order of their characters.
    """

    is_ordered: bool

    def list_page(
        self, prefix: str, *, delimiter: str = "", start: str = "", token: str = ""
    ) -> Page:
        """Return a page of the objects with a prefix, from the key ``start`` or the one after."""


def list_page(
    lister: ObjectLister,
    prefix: str,
    token: str,
    *,
    delimiter: str = "",
    start: str = "",
    last: str = "",
) -> Page:
    """Return the page of a token, or the first one; ``last`` is the last entry before the page.

    Raises
    ------
    OSError
        If the page, or the next one, is the one before: the listing would not end.
    """
    page = lister.list_page(prefix, delimiter=delimiter, start=start, token=token)
    if token and page.token and (page.token == token or (last and page.last == last)):
        raise repeated_page_error(prefix)
    return page


def repeated_page_error(prefix: str) -> OSError:
    """Return the error of a store that repeats a page of a listing."""
    return OSError(f"the store has sent a page of its objects with {prefix!r} twice")


def find_lister(store: Store, bucket: str) -> ObjectLister | None:
    """Return the lister of a bucket; None for other stores, and where objects have versions."""
    system = store.system
    if getattr(system, "version_aware", False) or getattr(system, "asynchronous", False):
        return None
    for module, lister in (("s3fs", S3Lister), ("gcsfs", GoogleLister)):
        library = sys.modules.get(module)  # a subclass may list in another way
        names = ("S3FileSystem", "GCSFileSystem")
        if type(system) in [getattr(library, name, None) for name in names]:
            return lister(system, bucket)
    return None


class S3Lister:
    """Listings of a bucket of S3.

    botocore needs 60 µs to parse an object. Here the objects are read, and removed from the text,
    at its event before the parser, which then parses all else, such as errors.
    """

    def __init__(self, system: Any, bucket: str) -> None:
        self._system, self._bucket = system, bucket
        self.is_ordered = not bucket.endswith("--x-s3")  # directory buckets have no order

    def list_page(
        self, prefix: str, *, delimiter: str = "", start: str = "", token: str = ""
    ) -> Page:
        """Return a page of the objects with a prefix, from the key ``start`` or the one after."""
        # By this name before the handlers of "before-parse.s3.*", of which one parses the text.
        event = "before-parse.*.ListObjectsV2"
        events = self._system.s3.meta.events
        events.register(event, _read_objects, unique_id="hyperplane-objects")
        options = {"StartAfter": start, "ContinuationToken": token, "Delimiter": delimiter}
        given = {name: value for name, value in options.items() if value}
        mark = _reads_objects.set(True)
        try:
            response = self._system.call_s3(
                "list_objects_v2",
                Bucket=self._bucket,
                Prefix=prefix,
                MaxKeys=PAGE_SIZE,
                **given,
                **self._system.req_kw,
            )
        finally:
            _reads_objects.reset(mark)
        keys, sizes = response.get(_OBJECTS) or ([], [])
        if response.get("EncodingType") == "url" and any("%" in key or "+" in key for key in keys):
            keys = [unquote_plus(key) for key in keys]
        for each in response.get("Contents", ()):  # those that _read_objects has left
            keys.append(each["Key"])
            sizes.append(each["Size"])
        prefixes = [each["Prefix"] for each in response.get("CommonPrefixes", ())]
        truncated = response.get("IsTruncated")
        return Page(keys, sizes, prefixes, response["NextContinuationToken"] if truncated else "")


def _read_objects(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any
) -> None:
    """Move the objects of a listing from its text to two lists, if their text is the usual one."""
    if not _reads_objects.get() or response_dict["status_code"] != 200:
        return
    body = response_dict["body"]
    first, last = body.find(b"<Contents>"), body.rfind(b"</Contents>") + len(b"</Contents>")
    if first < 0:
        return
    text = body[first:last]
    keys, sizes = _KEY.findall(text), _SIZE.findall(text)
    # With entities, comments, or other elements between the objects, botocore parses the page.
    counts = {len(keys), len(sizes), text.count(b"<Contents>")}
    if len(counts) > 1 or b"<!" in text or b"<CommonPrefixes>" in text:
        return
    try:
        names = b"\0".join(keys).decode().split("\0")  # no text of XML has this character
    except UnicodeDecodeError:
        return
    customized_response_dict[_OBJECTS] = names, [*map(int, sizes)]
    response_dict["body"] = body[:first] + body[last:]


class GoogleLister:
    """Listings of a bucket of Google Cloud Storage, whose answers have names and sizes only."""

    is_ordered = True

    def __init__(self, system: Any, bucket: str) -> None:
        self._system, self._bucket = system, bucket

    def list_page(
        self, prefix: str, *, delimiter: str = "", start: str = "", token: str = ""
    ) -> Page:
        """Return a page of the objects with a prefix, from the key ``start`` or the one after."""
        _, content = self._system.call(
            "GET",
            "b/{}/o",
            self._bucket,
            prefix=prefix,
            delimiter=delimiter or None,
            startOffset=start or None,
            pageToken=token or None,
            maxResults=PAGE_SIZE,
            fields="items(name,size),prefixes,nextPageToken",
        )
        page = json.loads(content)
        items = page.get("items", [])
        return Page(
            [each["name"] for each in items],
            [int(each.get("size", 0)) for each in items],
            page.get("prefixes", []),
            page.get("nextPageToken", ""),
        )
