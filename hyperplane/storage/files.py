"""Saving one file."""

from __future__ import annotations

from typing import Any

from hyperplane.errors import OutputExists
from hyperplane.storage.formats import encoded
from hyperplane.storage.place import commits_of
from hyperplane.storage.request import Request
from hyperplane.storage.result import SaveResult
from hyperplane.storage.shelf import Shelf


def save_file(obj: Any, request: Request) -> SaveResult:
    """Save what is one file; who looks at it sees the old one or all of the new one."""
    made = encoded(obj, request.kind, request.format, request.suffix)
    return save_bytes(bytes(made.data), made.rows, request)


def save_bytes(data: bytes, rows: int | None, request: Request) -> SaveResult:
    """Save the bytes of a file."""
    target, shelf = request.target, Shelf(request.target.store)
    there = commits_of(target).state().manifest
    if there is not None and [part.name for part in there.parts] != [""]:
        if request.mode == "skip":
            return SaveResult(target.url, len(there.parts), there.rows, there.size)
        raise OutputExists(target.url, "is a folder; save one file under another name")
    found = shelf.get(target.path) if shelf.is_file(target.path) else None
    result = SaveResult(target.url, 1, rows, len(data), written=1)
    if found == data or (found is not None and request.mode == "skip"):
        return SaveResult(target.url, 1, rows if found == data else None, len(found))
    if request.mode == "overwrite":
        shelf.put(target.path, data)
    else:
        # Not by looking first and writing then: two may have looked.
        try:
            shelf.put_new(target.path, data)
        except FileExistsError as error:
            raise exists(request) from error
    shelf.verify(target.path, data)
    return result


def exists(request: Request) -> OutputExists:
    """The error of a place where something else is."""
    return OutputExists(
        request.target.url,
        "there is something else already; write mode='overwrite' to replace it, or mode='skip' "
        "to keep it",
    )
