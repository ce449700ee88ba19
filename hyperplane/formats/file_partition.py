"""Base of partitions that are read from slices of files, one after the other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

import polars as pl

from hyperplane.core.errors import ReadError
from hyperplane.formats.column_mapping import (
    CollectStep,
    ColumnMapping,
    concatenate,
    scan_python,
)
from hyperplane.formats.filters import Filters
from hyperplane.formats.read_errors import get_current_worker, warn_skipped
from hyperplane.formats.reader import translate_read_errors
from hyperplane.formats.request import OnError
from hyperplane.objectstore.locations import File, Store


class FileSlice(Protocol):
    """Contiguous rows of one file."""

    @property
    def file(self) -> File:
        """The file."""
        ...

    @property
    def mapping(self) -> ColumnMapping:
        """Converts columns of the file to those of the data set."""
        ...

    @property
    def urls(self) -> tuple[str, ...]:
        """The URL of the file, for messages."""
        ...

    @property
    def identity(self) -> Any:
        """Identifies the slice within its file, for a token."""
        ...

    def fetch(self, names: Collection[str]) -> pl.LazyFrame:
        """Read some columns of the file."""
        ...


class FilePartition(ABC):
    """A partition that consists of slices of files.

    Attributes
    ----------
    filters : Filters
        Row filters.
    on_error : {"raise", "skip"}
        Whether a damaged file is an error or left out.
    """

    filters: Filters
    on_error: OnError

    @property
    @abstractmethod
    def slices(self) -> Sequence[FileSlice]:
        """The slices in the order of the rows; at least one."""

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs of the files, for messages."""
        return tuple(dict.fromkeys(file_slice.file.url for file_slice in self.slices))

    def scan(self, where: pl.Expr | None = None) -> pl.LazyFrame:
        """Return the filtered rows as a lazy frame that reads only the needed columns."""
        # Get the worker now: Polars calls back in a thread that is not a worker thread.
        rows = scan_python(partial(self._read_each, get_current_worker()), self._schema)
        return rows if where is None else rows.filter(where)

    def collect(self, names: Sequence[str]) -> pl.DataFrame:
        """Read some columns of the filtered rows, without the copy that a scan makes."""
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
                    frame = finish(file_slice.mapping.apply(raw, self.filters, names))
            except ReadError as error:
                if self.on_error == "raise":
                    raise
                warn_skipped([error], worker)
                continue
            yield frame

    def __repr__(self) -> str:
        slices = ", ".join(map(str, self.slices[:3]))
        return f"{type(self).__name__}({slices}{', ...' if len(self.slices) > 3 else ''})"

    def __dask_tokenize__(self) -> Any:
        numbers: dict[Store, int] = {}
        slices = [
            (
                numbers.setdefault(file_slice.file.store, len(numbers)),
                file_slice.file.path,
                file_slice.file.size,
                file_slice.file.stamp,
                file_slice.identity,
                str(file_slice.mapping),
            )
            for file_slice in self.slices
        ]
        # The options of the file system include those of fsspec's configuration.
        stores = [(store.__dask_tokenize__(), store.system.storage_options) for store in numbers]
        return (type(self).__name__, slices, stores, repr(self.filters), self.on_error)
