"""Saving arrays and data sets as Zarr."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from hyperplane.errors import Fault, RequestError
from hyperplane.optional import need
from hyperplane.storage.files import exists
from hyperplane.storage.manifest import Manifest, Part
from hyperplane.storage.parts import attempt_at, verify
from hyperplane.storage.place import commits_of
from hyperplane.storage.request import Request
from hyperplane.storage.result import SaveResult
from hyperplane.storage.target import Target


def save_array(obj: Any, request: Request) -> SaveResult:
    """Save an array or a data set as a Zarr store, published whole."""
    target = request.target
    commits = commits_of(target)
    base = commits.state()
    commits.settle(base)
    old = base.manifest
    if old is not None and request.mode == "skip":
        return SaveResult(target.url, len(old.parts), None, old.size)
    if old is not None and request.mode == "append":
        advice = "xarray's own to_zarr(append_dim=...) does, without the guarantees of this"
        raise RequestError([Fault("mode", "'append'", "not for arrays", advice)])
    with attempt_at(commits) as staged:
        kind, write = _writer(obj)
        if target.store.local:
            write(staged)
        else:
            write(target.address(staged), storage_options=dict(target.store.options))
        listed = commits.shelf.listing(staged)
        hashed = partial(_part, staged, local=target.store.local)
        parts = commits.shelf.each(lambda item: hashed(*item), sorted(listed.items()))
        manifest = Manifest("zarr", kind, tuple(parts))
        if manifest.same_content(old):
            return SaveResult(target.url, len(parts), None, manifest.size)
        if old is not None and request.mode == "error":
            raise exists(request)
        verify(commits.shelf, staged, parts)
        commits.publish(manifest, staged, base)
        return SaveResult(target.url, len(parts), None, manifest.size, written=len(parts))


def _writer(obj: Any) -> tuple[str, Callable[..., Any]]:
    need("zarr", "array")
    if type(obj).__module__.startswith("dask"):
        return "array", obj.to_zarr
    need("xarray", "array")
    name = type(obj).__name__
    return ("dataset" if name == "Dataset" else "dataarray"), partial(obj.to_zarr, mode="w")


def _part(folder: str, name: str, info: dict[str, Any], *, local: bool) -> Part:
    """A file that Zarr wrote; its checksum where it can be read at little cost."""
    sha = hashlib.sha256(Path(folder, name).read_bytes()).hexdigest() if local else ""
    return Part(name, int(info["size"] or 0), sha)


def load_array(target: Target, kind: str, folder: str) -> Any:
    """The array or data set in a folder, lazily."""
    options = {} if target.store.local else {"storage_options": dict(target.store.options)}
    if kind == "array":
        import dask.array as da

        return da.from_zarr(target.address(folder), **options)
    xarray = need("xarray", "array")
    if kind == "dataarray":
        return xarray.open_dataarray(target.address(folder), engine="zarr", chunks={}, **options)
    return xarray.open_zarr(target.address(folder), **options)
