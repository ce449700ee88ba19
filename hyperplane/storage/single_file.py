"""Saving one file."""

from __future__ import annotations

from typing import Any, Protocol

from hyperplane.errors import OutputExists
from hyperplane.storage.commit_selection import commits_of
from hyperplane.storage.encoding import encoded
from hyperplane.storage.object_store import Shelf
from hyperplane.storage.request import Request
from hyperplane.storage.result import SaveResult


class Content(Protocol):
    """What a file is to hold."""

    size: int

    def compared(self, shelf: Shelf, path: str) -> tuple[bool, int | None]:
        """Whether a file of the store holds the same, and its bytes; None when it is gone."""
        ...

    def put(self, shelf: Shelf, path: str) -> None:
        """Write it, whatever is there."""
        ...

    def put_new(self, shelf: Shelf, path: str) -> None:
        """Write it, or raise FileExistsError when something else is there."""
        ...

    def verify(self, shelf: Shelf, path: str) -> None:
        """Compare what the store says of the file with what was written."""
        ...


class Held:
    """Bytes in memory.

    Parameters
    ----------
    data : bytes
        All of them.
    """

    def __init__(self, data: bytes) -> None:
        self.data, self.size = data, len(data)

    def compared(self, shelf: Shelf, path: str) -> tuple[bool, int | None]:
        """See :class:`Content`."""
        found = shelf.get(path)
        return found == self.data, None if found is None else len(found)

    def put(self, shelf: Shelf, path: str) -> None:
        """See :class:`Content`."""
        shelf.put(path, self.data)

    def put_new(self, shelf: Shelf, path: str) -> None:
        """See :class:`Content`."""
        shelf.put_new(path, self.data)

    def verify(self, shelf: Shelf, path: str) -> None:
        """See :class:`Content`."""
        shelf.verify(path, self.data)


def save_file(obj: Any, request: Request) -> SaveResult:
    """Save what is one file; who looks at it sees the old one or all of the new one."""
    made = encoded(obj, request.kind, request.format, request.suffix)
    return save_content(Held(bytes(made.data)), made.rows, request)


def save_content(content: Content, rows: int | None, request: Request) -> SaveResult:
    """Save what a file is to hold."""
    target, shelf = request.target, Shelf(request.target.store)
    there = commits_of(target).state().manifest
    if there is not None and [part.name for part in there.parts] != [""]:
        if request.mode == "skip":
            return SaveResult(target.url, len(there.parts), there.rows, there.size)
        raise OutputExists(target.url, "is a folder; save one file under another name")
    if shelf.is_file(target.path):
        same, size = content.compared(shelf, target.path)
        if same or (size is not None and request.mode == "skip"):
            return SaveResult(target.url, 1, rows if same else None, size or 0)
        if size is not None and request.mode == "error":
            raise exists(request)
    if request.mode == "overwrite":
        content.put(shelf, target.path)
    else:
        # Not by looking first and writing then: two may have looked.
        try:
            content.put_new(shelf, target.path)
        except FileExistsError as error:
            raise exists(request) from error
    content.verify(shelf, target.path)
    return SaveResult(target.url, 1, rows, content.size, written=1)


def exists(request: Request) -> OutputExists:
    """The error of a place where something else is."""
    return OutputExists(
        request.target.url,
        "there is something else already; write mode='overwrite' to replace it, or mode='skip' "
        "to keep it",
    )
