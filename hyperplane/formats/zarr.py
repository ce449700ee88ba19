"""The Zarr format: measures stores, which are folders or archives."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hyperplane.core.errors import Fault, RequestError
from hyperplane.core.optional import need
from hyperplane.core.units import format_bytes, plural
from hyperplane.formats.base import SizeEstimate
from hyperplane.objectstore import listing
from hyperplane.objectstore.locations import File, Location
from hyperplane.objectstore.reachability import has_answered, monitor_request

#: Files of metadata in the folder of a store.
METADATA_FILES = ("zarr.json", ".zgroup", ".zarray", ".zmetadata")


class ZarrFormat:
    """Zarr stores in zip archives."""

    name = "zarr"
    suffixes = (".zarr",)

    def estimate_size(self, files: Sequence[File]) -> SizeEstimate:
        """Measure the arrays by their metadata."""
        return measure_stores(
            [f"zip::{file.store.system.unstrip_protocol(file.path)}" for file in files]
        )


def measure_stores(urls: Sequence[str]) -> SizeEstimate:
    """Return the size of the arrays of stores, from their metadata."""
    zarr = need("zarr", "array")
    nodes = [zarr.open(url, mode="r") for url in urls]
    arrays = [
        array
        for node in nodes
        for array in ([node] if hasattr(node, "shape") else _list_arrays(node))
    ]
    total = sum(int(array.nbytes) for array in arrays)
    how = f"metadata of {plural(len(arrays), 'Zarr array')}, {format_bytes(total)}"
    return SizeEstimate(total, how)


def _list_arrays(group: Any) -> list[Any]:
    return [node for _, node in group.members(max_depth=None) if hasattr(node, "shape")]


def find_stores(url: str) -> list[str]:
    """Return the URLs of the Zarr stores that a URL or glob names; empty if it names files."""
    location = listing.resolve_location(url)
    if not listing.is_glob(location.path):
        return [url] if _is_zarr(location) else []
    locations = listing.find_entries(url)
    with ThreadPoolExecutor(listing.MAX_THREADS) as pool:
        zarr_flags = list(pool.map(_is_zarr, locations))
    zarrs = [location for location, is_zarr in zip(locations, zarr_flags, strict=True) if is_zarr]
    others = [
        location for location, is_zarr in zip(locations, zarr_flags, strict=True) if not is_zarr
    ]
    if zarrs and others:
        folder = not isinstance(others[0], File)
        which = ", a folder without the metadata of a Zarr store" if folder else ""
        asked = f"{zarrs[0].url!r}, which is Zarr, and {others[0].url!r}{which}"
        advice = "leave it out of the glob" if folder else "use a glob such as *.zarr"
        raise RequestError([Fault("urls", asked, "files of one format", advice)])
    return [location.address for location in zarrs]


def _is_zarr(location: Location) -> bool:
    if isinstance(location, File):
        return False
    url = location.address
    for mark in METADATA_FILES:
        try:
            with monitor_request(location.store, url):
                location.store.system.info(f"{location.path.rstrip('/')}/{mark}")
            return True
        except Exception:  # noqa: BLE001 - each file system raises its own
            if not has_answered(location.store, url):
                return False  # the listing raises the error
    return False
