"""Partitions that are byte ranges of text or Avro files."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Protocol

import polars as pl

from hyperplane.formats.column_mapping import ColumnMapping
from hyperplane.formats.file_changes import (
    ANY_HEAD,
    HeadChecksum,
    check_local_size,
    check_opened_size,
    has_only_grown,
    read_planned_range,
)
from hyperplane.formats.file_partition import FilePartition
from hyperplane.formats.filters import Filters
from hyperplane.formats.partitions import Bounds
from hyperplane.formats.request import OnError
from hyperplane.objectstore.file_names import decompress
from hyperplane.objectstore.locations import File


class ByteRangeDecoder(Protocol):
    """Decoder of byte ranges into columns."""

    @property
    def record_end(self) -> bytes:
        """The bytes that end a record, or a block of records."""
        ...

    def decode(self, byte_range: ByteRange, names: Collection[str]) -> pl.DataFrame:
        """Return some columns of a byte range."""
        ...


@dataclass(frozen=True)
class ByteRange:
    """A contiguous byte range of one file.

    Parameters
    ----------
    file : File
        The file.
    start, stop : int
        First byte and end; a compressed file is one range.
    decoder : ByteRangeDecoder
        Decodes the bytes into columns of the file.
    mapping : ColumnMapping
        Converts these to columns of the data set.
    nbytes : int
        Estimated bytes in memory.
    head : HeadChecksum
        Checksum of the first bytes of the file.
    """

    file: File
    start: int
    stop: int
    decoder: ByteRangeDecoder
    mapping: ColumnMapping
    nbytes: int
    head: HeadChecksum = field(default=ANY_HEAD, kw_only=True)

    @property
    def urls(self) -> tuple[str, ...]:
        """The URL of the file, for messages."""
        return (self.file.url,)

    @property
    def identity(self) -> Any:
        """Identifies the range within its file, for a token."""
        return (self.start, self.stop, repr(self.decoder))

    def fetch(self, names: Collection[str]) -> pl.LazyFrame:
        """Return some columns of the file."""
        check_local_size(self.file, None if self.file.compression else self.has_grown)
        return self.decoder.decode(self, names).lazy()

    def __str__(self) -> str:
        return f"{self.file.url}[{self.start}:{self.stop}]"

    def read_data(self) -> bytes:
        """Read the bytes, decompressed."""
        if self.file.compression:
            system, path = self.file.store.system, self.file.path
            with system.open(path, "rb") as raw:
                check_opened_size(self.file, raw)
                with decompress(raw, self.file.compression) as opened:
                    return bytes(opened.read())[self.start :]
        return self.read_bytes(self.start, self.stop)

    def read_bytes(self, start: int, stop: int) -> bytes:
        """Read stored bytes of the file; raise ReadError if it has changed since it was planned."""
        return read_planned_range(self.file, start, stop, self.has_grown)

    def has_grown(self) -> bool:
        """Whether the file, which is longer than planned, only has more records."""
        return has_only_grown(self.file, self.head, self.decoder.record_end)


@dataclass(frozen=True, repr=False)
class ByteRangePartition(FilePartition):
    """A partition of byte ranges.

    Parameters
    ----------
    ranges : tuple of ByteRange
        In the order of the rows.
    filters : Filters
        Row filters.
    on_error : {"raise", "skip"}
        Whether bytes that cannot be decoded are an error or left out.
    """

    ranges: tuple[ByteRange, ...]
    filters: Filters
    on_error: OnError = "raise"

    @property
    def slices(self) -> tuple[ByteRange, ...]:
        """The byte ranges."""
        return self.ranges

    @property
    def rows(self) -> int | None:
        """None: unknown without reading."""
        return None

    @property
    def nbytes(self) -> int:
        """Bytes in memory before filters, estimated from a sample."""
        return sum(byte_range.nbytes for byte_range in self.ranges)

    def bounds(self, column: str) -> Bounds | None:
        """Return None: the files have no statistics."""
        return None
