"""Parts that are spans of bytes of files: of text, or of Avro blocks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import fsspec
import polars as pl

from hyperplane.collections.frames.parts import Bounds
from hyperplane.collections.frames.sources.errors import ReadError, tell_skipped, worker_here
from hyperplane.collections.frames.sources.filters import Filters
from hyperplane.collections.frames.sources.listing import File
from hyperplane.collections.frames.sources.reader import reading
from hyperplane.collections.frames.sources.recipe import Finish, Recipe, scanned, together
from hyperplane.collections.frames.sources.request import OnError


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

    def data(self) -> bytes:
        """The bytes, unpacked."""
        if packing(self.file):
            with self.file.store.system.open(self.file.path, "rb", compression="infer") as opened:
                return bytes(opened.read())[self.start :]
        return self.file.between(self.start, self.stop)


def packing(file: File) -> str | None:
    """How a text file is packed, by its name."""
    found: str | None = fsspec.utils.infer_compression(file.path)
    return found


@dataclass(frozen=True, repr=False)
class SpanPart:
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
    def rows(self) -> int | None:
        """Not known without reading."""
        return None

    @property
    def nbytes(self) -> int:
        """Bytes in memory before filters, by a sample."""
        return sum(span.nbytes for span in self.spans)

    @property
    def urls(self) -> tuple[str, ...]:
        """The files, for messages."""
        return tuple(dict.fromkeys(span.file.url for span in self.spans))

    @property
    def _schema(self) -> dict[str, pl.DataType]:
        return dict(self.spans[0].recipe.schema)

    def scan(self) -> pl.LazyFrame:
        """The rows, filters applied; only the columns that are needed are made."""
        # Polars calls back in a thread of its own, which no worker knows.
        return scanned(partial(self._each, worker_here()), self._schema)

    def collected(self, names: Sequence[str]) -> pl.DataFrame:
        """Some columns of the rows; without the copy that a scan makes."""
        return together(partial(self._each, worker_here()), names, self._schema)

    def _each(self, worker: Any, names: Collection[str], finish: Finish) -> Iterator[pl.DataFrame]:
        for span in self.spans:
            try:
                with reading(span):
                    frame = span.decoder.decoded(span, span.recipe.raw(names))
                    made = finish(span.recipe.applied(frame.lazy(), self.filters, names))
            except ReadError as error:
                if self.on_error == "raise":
                    raise
                tell_skipped([error], worker)
                continue
            yield made

    def bounds(self, column: str) -> Bounds | None:
        """Not known: the files have no statistics."""
        return None

    def __repr__(self) -> str:
        spans = ", ".join(f"{span.file.url}[{span.start}:{span.stop}]" for span in self.spans[:3])
        return f"SpanPart({spans}{', ...' if len(self.spans) > 3 else ''})"

    def __dask_tokenize__(self) -> Any:
        spans = [
            (
                s.file.path,
                s.file.size,
                s.file.stamp,
                s.start,
                s.stop,
                repr(s.decoder),
                str(s.recipe),
            )
            for s in self.spans
        ]
        store = self.spans[0].file.store.__dask_tokenize__()
        return (type(self).__name__, spans, store, repr(self.filters), self.on_error)
