"""Save an object as one file."""

from __future__ import annotations

from typing import Any, Protocol

from hyperplane.core.errors import OutputExists
from hyperplane.core.public_calls import warn_caller
from hyperplane.formats.registry import load as load_format
from hyperplane.objectstore.store_files import StoreFiles
from hyperplane.storage.commit_protocol import commit_protocol_for
from hyperplane.storage.object_checks import check_rows_are_stored
from hyperplane.storage.object_encoding import encode_object
from hyperplane.storage.request import SaveRequest
from hyperplane.storage.result import SaveResult


class FileContent(Protocol):
    """The content of a file to save."""

    size: int

    def compare(self, store_files: StoreFiles, path: str) -> tuple[bool, int | None]:
        """Return whether a file of the store is equal, and its size; None if it does not exist."""
        ...

    def put(self, store_files: StoreFiles, path: str) -> None:
        """Write the file, replacing an existing one."""
        ...

    def put_new(self, store_files: StoreFiles, path: str) -> None:
        """Write the file, or raise FileExistsError if it exists with other content."""
        ...

    def verify(self, store_files: StoreFiles, path: str) -> None:
        """Compare the store's metadata of the file with what was written."""
        ...


class BytesContent:
    """Content in memory."""

    def __init__(self, data: bytes) -> None:
        self.data, self.size = data, len(data)

    def compare(self, store_files: StoreFiles, path: str) -> tuple[bool, int | None]:
        """See :class:`FileContent`."""
        data = store_files.get(path)
        return data == self.data, None if data is None else len(data)

    def put(self, store_files: StoreFiles, path: str) -> None:
        """See :class:`FileContent`."""
        store_files.put(path, self.data)

    def put_new(self, store_files: StoreFiles, path: str) -> None:
        """See :class:`FileContent`."""
        store_files.put_new(path, self.data)

    def verify(self, store_files: StoreFiles, path: str) -> None:
        """See :class:`FileContent`."""
        store_files.verify(path, self.data)


def save_file(obj: Any, request: SaveRequest) -> SaveResult:
    """Save an object as one file, atomically."""
    if request.kind == "table":
        file_format: Any = load_format(request.format)
        encoded = file_format.encode_table(obj)
        check_rows_are_stored(obj, encoded.table)
        if request.format in ("csv", "tsv"):
            _warn_of_empty_text(encoded.table, request.format.upper())
        return save_content(BytesContent(bytes(encoded.data)), encoded.rows, request)
    rows = (int(obj.shape[0]) if obj.ndim else 1) if request.kind == "numpy" else None
    data = encode_object(obj, request.kind, request.format, request.suffix)
    return save_content(BytesContent(data), rows, request)


def _warn_of_empty_text(table: Any, format_name: str) -> None:
    """Warn if a file of one column has empty text, which has the notation of a missing value."""
    from hyperplane.formats.csv.write import has_lone_empty_text  # loads pyarrow.csv

    if not has_lone_empty_text(table):
        return
    warn_caller(
        f"column {table.column_names[0]!r} has the value '', which load reads as missing from a "
        f"single {format_name} file of one column; add a column, or save it as Parquet"
    )


def save_content(content: FileContent, rows: int | None, request: SaveRequest) -> SaveResult:
    """Save the content of one file."""
    target, store_files = request.target, StoreFiles(request.target.store)
    published = commit_protocol_for(target).read_state().manifest
    if published is not None and [part.name for part in published.parts] != [""]:
        if request.mode == "skip":
            return SaveResult(target.url, len(published.parts), published.rows, published.size)
        raise OutputExists(target.url, "is a folder; save the file under another name")
    if store_files.is_file(target.path):
        same, size = content.compare(store_files, target.path)
        if same or (size is not None and request.mode == "skip"):
            return SaveResult(target.url, 1, rows if same else None, size or 0)
        if size is not None and request.mode == "error":
            raise exists_error(request)
    if request.mode == "overwrite":
        content.put(store_files, target.path)
    else:
        # Not put() after the check above: another process may have saved in between.
        try:
            content.put_new(store_files, target.path)
        except FileExistsError as error:
            raise exists_error(request) from error
    content.verify(store_files, target.path)
    return SaveResult(target.url, 1, rows, content.size, written=1, published=True)


def exists_error(request: SaveRequest) -> OutputExists:
    """Return the error of a target that holds something else."""
    return OutputExists(
        request.target.url,
        "something else is already saved there; pass mode='overwrite' to replace it, or "
        "mode='skip' to keep it",
    )
