"""Errors in place of listings without end, if a store repeats a page of its objects.

gcsfs requests such pages for ever. botocore refuses a token that it gets twice in succession, but
not the same objects with another token.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from hyperplane.objectstore.locations import Store
from hyperplane.objectstore.object_pages import (
    GoogleLister,
    S3Lister,
    find_lister,
    repeated_page_error,
)

#: The last entry of the newest page of each listing that this context requests.
_last_entries: ContextVar[dict[Any, Any] | None] = ContextVar("_last_entries", default=None)
#: Key of the parameters of a request in its context.
_REQUEST = "hyperplane-request"


@contextmanager
def check_pages(store: Store) -> Iterator[None]:
    """Raise errors for repeated pages in listings by fsspec within the block.

    fsspec copies the context of the caller to its event loop.

    Raises
    ------
    OSError
        If a page of S3 or Google Cloud Storage has the token or last entry of the one before.
    """
    lister = None if store.local else find_lister(store, "")
    if isinstance(lister, S3Lister):
        events = store.system.s3.meta.events
        for event, handler in (
            ("before-parameter-build.s3.ListObjectsV2", _save_request),
            ("after-call.s3.ListObjectsV2", _check_s3_page),
        ):
            events.register(event, handler, unique_id=f"hyperplane-{event}")
    elif isinstance(lister, GoogleLister) and "_call" not in vars(store.system):
        store.system._call = _check_google_pages(store.system._call)
    mark = _last_entries.set({})
    try:
        yield
    finally:
        _last_entries.reset(mark)


def _check_page(
    listing: tuple[Any, ...], prefix: str, token: str, following: str, last: tuple[Any, ...]
) -> None:
    """Raise OSError if the page of a token has no end and ends as the page before."""
    entries = _last_entries.get()
    if entries is None:
        return
    is_repeated = token == following or (any(last) and entries.get(listing) == last)
    if token and following and is_repeated:
        raise repeated_page_error(prefix)
    entries[listing] = last


def _save_request(params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
    context[_REQUEST] = dict(params)


def _check_s3_page(parsed: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
    request = context.get(_REQUEST, {})
    names = [each["Key"] for each in parsed.get("Contents", ())[-1:]]
    prefixes = [each["Prefix"] for each in parsed.get("CommonPrefixes", ())[-1:]]
    _check_page(
        tuple(request.get(name) for name in ("Bucket", "Prefix", "Delimiter")),
        request.get("Prefix") or "",
        request.get("ContinuationToken") or "",
        parsed.get("NextContinuationToken") or "",
        (names, prefixes),
    )


def _check_google_pages(call: Any) -> Any:
    """Return the method of gcsfs that sends a request, with a check of pages of objects."""

    async def call_with_check(method: str, path: str, *args: Any, **options: Any) -> Any:
        result = await call(method, path, *args, **options)
        if (method, path) == ("GET", "b/{}/o") and isinstance(result, dict):
            names = [each["name"] for each in result.get("items", ())[-1:]]
            prefixes = result.get("prefixes", [])[-1:]
            keys = ("prefix", "delimiter", "startOffset", "endOffset")
            _check_page(
                (*args, *(options.get(key) for key in keys)),
                options.get("prefix") or "",
                options.get("pageToken") or "",
                result.get("nextPageToken") or "",
                # An object may have more versions than a page.
                () if options.get("versions") else (names, prefixes),
            )
        return result

    return call_with_check
