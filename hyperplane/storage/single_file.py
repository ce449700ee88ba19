"""Saving one file."""

from __future__ import annotations

from typing import Any, Protocol

from hyperplane.errors import OutputExists
from hyperplane.storage.commit_selection import commit_protocol_for
from hyperplane.storage.encoding import encode
from hyperplane.storage.object_store import ObjectStore
from hyperplane.storage.request import SaveRequest
from hyperplane.storage.result import SaveResult


class FileContent(Protocol):
    """What a file is to hold."""

    size: int

    def compare(self, object_store: ObjectStore, path: str) -> tuple[bool, int | None]:
        """Whether a file of the store holds the same, and its bytes; None when it is gone."""
        ...

    def put(self, object_store: ObjectStore, path: str) -> None:
        """Write it, whatever is there."""
        ...

    def put_new(self, object_store: ObjectStore, path: str) -> None:
        """Write it, or raise FileExistsError when something else is there."""
        ...

    def verify(self, object_store: ObjectStore, path: str) -> None:
        """Compare what the store says of the file with what was written."""
        ...


class BytesContent:
    """Bytes in memory.

    Parameters
    ----------
    data : bytes
        All of them.
    """

    def __init__(self, data: bytes) -> None:
        self.data, self.size = data, len(data)

    def compare(self, object_store: ObjectStore, path: str) -> tuple[bool, int | None]:
        """See :class:`Content`."""
        found = object_store.get(path)
        return found == self.data, None if found is None else len(found)

    def put(self, object_store: ObjectStore, path: str) -> None:
        """See :class:`Content`."""
        object_store.put(path, self.data)

    def put_new(self, object_store: ObjectStore, path: str) -> None:
        """See :class:`Content`."""
        object_store.put_new(path, self.data)

    def verify(self, object_store: ObjectStore, path: str) -> None:
        """See :class:`Content`."""
        object_store.verify(path, self.data)


def save_file(obj: Any, request: SaveRequest) -> SaveResult:
    """Save what is one file; who looks at it sees the old one or all of the new one."""
    made = encode(obj, request.kind, request.format, request.suffix)
    return save_content(BytesContent(bytes(made.data)), made.rows, request)


def save_content(content: FileContent, rows: int | None, request: SaveRequest) -> SaveResult:
    """Save what a file is to hold."""
    target, object_store = request.target, ObjectStore(request.target.store)
    there = commit_protocol_for(target).read_state().manifest
    if there is not None and [part.name for part in there.parts] != [""]:
        if request.mode == "skip":
            return SaveResult(target.url, len(there.parts), there.rows, there.size)
        raise OutputExists(target.url, "is a folder; save one file under another name")
    if object_store.is_file(target.path):
        same, size = content.compare(object_store, target.path)
        if same or (size is not None and request.mode == "skip"):
            return SaveResult(target.url, 1, rows if same else None, size or 0)
        if size is not None and request.mode == "error":
            raise exists_error(request)
    if request.mode == "overwrite":
        content.put(object_store, target.path)
    else:
        # Not by looking first and writing then: two may have looked.
        try:
            content.put_new(object_store, target.path)
        except FileExistsError as error:
            raise exists_error(request) from error
    content.verify(object_store, target.path)
    return SaveResult(target.url, 1, rows, content.size, written=1)


def exists_error(request: SaveRequest) -> OutputExists:
    """The error of a place where something else is."""
    return OutputExists(
        request.target.url,
        "there is something else already; write mode='overwrite' to replace it, or mode='skip' "
        "to keep it",
    )
