"""What parts of files have in common: pieces of files, read one after the other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

import polars as pl

from hyperplane.collections.frames.sources.column_mapping import (
    CollectStep,
    ColumnMapping,
    concatenate,
    scan_python,
)
from hyperplane.collections.frames.sources.filters import Filters
from hyperplane.collections.frames.sources.read_errors import get_current_worker, warn_skipped
from hyperplane.collections.frames.sources.reader import translate_read_errors
from hyperplane.collections.frames.sources.request import OnError
from hyperplane.errors import ReadError
from hyperplane.stores.places import File


class FileSlice(Protocol):
    """Neighbouring rows of one file."""

    @property
    def file(self) -> File:
        """The file."""
        ...

    @property
    def mapping(self) -> ColumnMapping:
        """What makes columns of the data set from those of the file."""
        ...

    @property
    def urls(self) -> tuple[str, ...]:
        """The file, for messages."""
        ...

    @property
    def identity(self) -> Any:
        """What tells it from other units of the file, for a token."""
        ...

    def fetch(self, names: Collection[str]) -> pl.LazyFrame:
        """Some raw columns."""
        ...


class FilePartition(ABC):
    """A part that is units of files.

    Attributes
    ----------
    filters : Filters
        Which rows.
    on_error : {"raise", "skip"}
        What happens when a file turns out to be damaged.
    """

    filters: Filters
    on_error: OnError

    @property
    @abstractmethod
    def slices(self) -> Sequence[FileSlice]:
        """In the order of the rows; at least one."""

    @property
    def urls(self) -> tuple[str, ...]:
        """The files, for messages."""
        return tuple(dict.fromkeys(file_slice.file.url for file_slice in self.slices))

    def scan(self, where: pl.Expr | None = None) -> pl.LazyFrame:
        """The rows, filters applied; only the columns that are needed are made."""
        # Polars calls back in a thread of its own, which no worker knows.
        rows = scan_python(partial(self._read_each, get_current_worker()), self._schema)
        return rows if where is None else rows.filter(where)

    def collect(self, names: Sequence[str]) -> pl.DataFrame:
        """Some columns of the rows; without the copy that a scan makes."""
        return concatenate(partial(self._read_each, get_current_worker()), names, self._schema)

    @property
    def _schema(self) -> dict[str, pl.DataType]:
        return dict(self.slices[0].mapping.schema)

    def _read_each(
        self, worker: Any, names: Collection[str], finish: CollectStep
    ) -> Iterator[pl.DataFrame]:
        for file_slice in self.slices:
            try:
                with translate_read_errors(file_slice):
                    raw = file_slice.fetch(file_slice.mapping.raw_columns(names))
                    made = finish(file_slice.mapping.apply(raw, self.filters, names))
            except ReadError as error:
                if self.on_error == "raise":
                    raise
                warn_skipped([error], worker)
                continue
            yield made

    def __repr__(self) -> str:
        slices = ", ".join(map(str, self.slices[:3]))
        return f"{type(self).__name__}({slices}{', ...' if len(self.slices) > 3 else ''})"

    def __dask_tokenize__(self) -> Any:
        slices = [
            (
                file_slice.file.path,
                file_slice.file.size,
                file_slice.file.stamp,
                file_slice.identity,
                str(file_slice.mapping),
            )
            for file_slice in self.slices
        ]
        store = self.slices[0].file.store.__dask_tokenize__()
        return (type(self).__name__, slices, store, repr(self.filters), self.on_error)
