"""Estimation of the uncompressed size of files given by path, glob or URL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hyperplane.core.errors import Fault, RequestError
from hyperplane.formats import registry, zarr
from hyperplane.formats.base import SizeEstimate, SupportsSize
from hyperplane.objectstore import listing
from hyperplane.objectstore.file_names import DAMAGE_ERRORS
from hyperplane.objectstore.locations import File
from hyperplane.objectstore.redaction import describe_error, redact_url

#: RecursionError: JSON may nest lists more deeply than Python's decoder supports.
_UNREADABLE: tuple[type[Exception], ...] = (*DAMAGE_ERRORS, RecursionError)


def measure_files(urls: str | Sequence[str]) -> SizeEstimate:
    """Uncompressed size in bytes of files given by path, glob or URL, and how it was measured.

    Raises a RequestError if there are no files, or none of a supported format.
    """
    try:
        stores, files = _find_files([urls] if isinstance(urls, str) else urls)
        data = registry.detect_format(files, SupportsSize, urls) if files else None
    except RequestError as error:
        or_else = "a size such as '100GB', or "
        faults = [replace(f, where="data", allowed=or_else + f.allowed) for f in error.faults]
        raise RequestError(faults) from None
    try:
        return data.estimate_size(files) if data else zarr.measure_stores(stores)
    except _UNREADABLE as error:
        allowed = f"readable files ({describe_error(error)})"
        asked = redact_url(urls) if isinstance(urls, str) else list(map(redact_url, urls))
        raise RequestError([Fault("data", repr(asked)[:200], allowed)]) from error


def _find_files(urls: Sequence[str]) -> tuple[list[str], list[File]]:
    """Return the URLs of Zarr stores, or else the files, that URLs name."""
    stores = {url: zarr.find_stores(url) for url in urls}
    others = [url for url in urls if not stores[url]]
    found = list(dict.fromkeys(store for each in stores.values() for store in each))
    if found and others:
        asked = f"{redact_url(found[0])!r}, which is Zarr, and {redact_url(others[0])!r}"
        raise RequestError([Fault("urls", asked, "data of one format")])
    return found, listing.find_files(others) if others else []
