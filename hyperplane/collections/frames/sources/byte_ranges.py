"""Parts that are spans of bytes of files: of text, or of Avro blocks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Protocol

import polars as pl

from hyperplane.collections.frames.parts import Bounds
from hyperplane.collections.frames.sources.column_mapping import ColumnMapping
from hyperplane.collections.frames.sources.file_partition import FilePartition
from hyperplane.collections.frames.sources.filters import Filters
from hyperplane.collections.frames.sources.request import OnError
from hyperplane.stores.places import File


class ByteRangeDecoder(Protocol):
    """What turns the bytes of a span into columns."""

    def decode(self, byte_range: ByteRange, names: Collection[str]) -> pl.DataFrame:
        """Some columns of a span, in their sound types."""
        ...


@dataclass(frozen=True)
class ByteRange:
    """Neighbouring bytes of one file.

    Parameters
    ----------
    file : File
        The file.
    start, stop : int
        The first byte and the one after the last; a packed file is one span.
    decoder : Decoder
        What makes columns of them.
    recipe : Recipe
        What makes those of the data set from these.
    nbytes : int
        Bytes in memory, about.
    """

    file: File
    start: int
    stop: int
    decoder: ByteRangeDecoder
    mapping: ColumnMapping
    nbytes: int

    @property
    def urls(self) -> tuple[str, ...]:
        """The file, for messages."""
        return (self.file.url,)

    @property
    def identity(self) -> Any:
        """What tells it from other spans of the file, for a token."""
        return (self.start, self.stop, repr(self.decoder))

    def fetch(self, names: Collection[str]) -> pl.LazyFrame:
        """Some raw columns."""
        return self.decoder.decode(self, names).lazy()

    def __str__(self) -> str:
        return f"{self.file.url}[{self.start}:{self.stop}]"

    def data(self) -> bytes:
        """The bytes, unpacked."""
        if self.file.packing:
            with self.file.opened() as opened:
                return bytes(opened.read())[self.start :]
        return self.file.between(self.start, self.stop)


@dataclass(frozen=True, repr=False)
class ByteRangePartition(FilePartition):
    """The spans of one partition.

    Parameters
    ----------
    spans : tuple of Span
        In the order of the rows.
    filters : Filters
        Which rows.
    on_error : {"raise", "skip"}
        What happens when bytes cannot be decoded.
    """

    ranges: tuple[ByteRange, ...]
    filters: Filters
    on_error: OnError = "raise"

    @property
    def slices(self) -> tuple[ByteRange, ...]:
        """The spans."""
        return self.ranges

    @property
    def rows(self) -> int | None:
        """Not known without reading."""
        return None

    @property
    def nbytes(self) -> int:
        """Bytes in memory before filters, by a sample."""
        return sum(byte_range.nbytes for byte_range in self.ranges)

    def bounds(self, column: str) -> Bounds | None:
        """Not known: the files have no statistics."""
        return None
