"""Parts that are spans of bytes of files: of text, or of Avro blocks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Protocol

import polars as pl

from hyperplane.collections.frames.partitions import Bounds
from hyperplane.collections.frames.sources.file_parts import FilePart
from hyperplane.collections.frames.sources.filters import Filters
from hyperplane.collections.frames.sources.recipe import Recipe
from hyperplane.collections.frames.sources.request import OnError
from hyperplane.stores.places import File


class Decoder(Protocol):
    """What turns the bytes of a span into columns."""

    def decoded(self, span: Span, names: Collection[str]) -> pl.DataFrame:
        """Some columns of a span, in their sound types."""
        ...


@dataclass(frozen=True)
class Span:
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
    decoder: Decoder
    recipe: Recipe
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
        return self.decoder.decoded(self, names).lazy()

    def __str__(self) -> str:
        return f"{self.file.url}[{self.start}:{self.stop}]"

    def data(self) -> bytes:
        """The bytes, unpacked."""
        if self.file.packing:
            with self.file.opened() as opened:
                return bytes(opened.read())[self.start :]
        return self.file.between(self.start, self.stop)


@dataclass(frozen=True, repr=False)
class SpanPart(FilePart):
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

    spans: tuple[Span, ...]
    filters: Filters
    on_error: OnError = "raise"

    @property
    def units(self) -> tuple[Span, ...]:
        """The spans."""
        return self.spans

    @property
    def rows(self) -> int | None:
        """Not known without reading."""
        return None

    @property
    def nbytes(self) -> int:
        """Bytes in memory before filters, by a sample."""
        return sum(span.nbytes for span in self.spans)

    def bounds(self, column: str) -> Bounds | None:
        """Not known: the files have no statistics."""
        return None
