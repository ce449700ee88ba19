"""Read the parts of a saved output, verify them, and convert them to dataframes or records."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from hyperplane.core.errors import ReadError
from hyperplane.formats.base import SupportsColumnLoad
from hyperplane.formats.hive_partitions import PartitionKeys
from hyperplane.formats.pandas_frames.from_arrow import to_frame
from hyperplane.formats.registry import load as load_format
from hyperplane.objectstore.locations import Location, Store
from hyperplane.objectstore.redaction import describe_error
from hyperplane.objectstore.retrying import call_with_retries, is_transient
from hyperplane.objectstore.store_files import StoreFiles
from hyperplane.storage.manifest import ManifestEntry
from hyperplane.storage.part_schemas import convert_frame, deserialize_schema

GONE = "is gone: it was replaced or removed since it was loaded; load it again"
T = TypeVar("T")


@dataclass(frozen=True)
class PartFile:
    """A part, its location, and the values of the columns in its folder names.

    ``path`` may be in the staging folder; ``published`` is the path in the output's folder.
    """

    store: Store
    path: str
    part: ManifestEntry
    format: str
    published: str
    keys: PartitionKeys = ()

    @property
    def url(self) -> str:
        """The URL for messages."""
        return Location(self.store, self.path).url

    def read_bytes(self) -> bytes:
        """Read the whole part and verify its size and checksum.

        Raises
        ------
        ReadError
            If the part is gone, or has another size or checksum.
        """
        store_files = StoreFiles(self.store)
        data = store_files.get(self.path)
        if data is None and self.path != self.published:  # copied from the staging folder meanwhile
            data = store_files.get(self.published)
        if data is None:
            raise ReadError(self.url, GONE)
        self._check_size(len(data))
        if self.part.sha256 and hashlib.sha256(data).hexdigest() != self.part.sha256:
            raise ReadError(self.url, "is damaged: its checksum differs; save it again")
        return data

    def _check_size(self, size: int) -> None:
        """Raise ReadError if the part has another size than when it was saved."""
        if size != self.part.size:
            problem = f"is damaged: it has {size} bytes, but {self.part.size} were saved"
            raise ReadError(self.url, f"{problem}; save it again")

    def _read_retrying(self, read: Callable[[Any], T]) -> T:
        """Call ``read`` with the opened part, verify its size; retry transient errors."""

        def open_and_read() -> tuple[Any, T]:
            path = self.path
            if path != self.published and not self.store.system.exists(path):
                path = self.published  # copied from the staging folder meanwhile
            with self.store.system.open(path, "rb") as opened:
                return getattr(opened, "size", None), read(opened)

        try:
            size, result = call_with_retries(open_and_read, self.url, store=self.store)
        except (OSError, pa.ArrowException) as error:
            cause = error.__cause__ or error
            if is_transient(cause):
                raise
            if isinstance(cause, FileNotFoundError):
                raise ReadError(self.url, GONE) from error
            raise ReadError(
                self.url,
                f"is damaged ({describe_error(cause, self.store.options)}); save it again",
            ) from error
        if isinstance(size, int):  # not all file systems return it
            self._check_size(size)
        return result

    def read_table(
        self, file_format: SupportsColumnLoad, columns: Sequence[str] | None
    ) -> pa.Table:
        """Read columns of the file, verified by its format, and columns of folder names."""
        keys = {name: value for name, value in self.keys if columns is None or name in columns}
        names = None if columns is None else [name for name in columns if name not in keys]
        table = self._read_retrying(lambda opened: file_format.load_columns(opened, names))
        for name, value in keys.items():
            table = table.append_column(name, pa.repeat(pa.scalar(value), table.num_rows))
        return table

    def read_schema(self) -> pa.Schema:
        """Return the recorded schema, or the one in the file."""
        if self.part.schema:
            return deserialize_schema(self.part.schema)
        file_format: Any = load_format(self.format)
        return self._read_retrying(file_format.load_schema)


@dataclass(frozen=True, repr=False)
class FrameReader:
    """Read parts as dataframes; Dask passes the columns that it needs.

    ``like`` is an empty dataframe, the result of
    :func:`~hyperplane.storage.part_schemas.unify_schemas`.
    """

    like: Any

    def __call__(self, file: PartFile, columns: Sequence[str] | None = None) -> Any:
        """Read a part."""
        like = self.like if columns is None else self.like[list(columns)]
        file_format: Any = load_format(file.format)
        if isinstance(file_format, SupportsColumnLoad):
            table = file.read_table(file_format, columns)
        else:
            data = file.read_bytes()
            try:
                table = file_format.decode_table(data, file.read_schema())
            except (ValueError, OverflowError, pa.ArrowException) as error:
                raise ReadError(
                    file.url,
                    f"does not match its saved schema ({describe_error(error)}); save it again",
                ) from error
            if columns is not None:
                levels = [name for name in table.column_names if name not in self.like.columns]
                table = table.select([*levels, *like.columns])
        return convert_frame(to_frame(table), like, file.url)


def read_records(file: PartFile) -> list[Any]:
    """Read the items of a part of a bag."""
    file_format: Any = load_format(file.format)
    if isinstance(file_format, SupportsColumnLoad):
        return list(file.read_table(file_format, None).to_pylist())
    items: list[Any] = file_format.decode_records(file.read_bytes())
    return items
