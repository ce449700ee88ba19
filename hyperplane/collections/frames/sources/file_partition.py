"""What parts of files have in common: pieces of files, read one after the other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

import polars as pl

from hyperplane.collections.frames.sources.column_mapping import Finish, Recipe, scanned, together
from hyperplane.collections.frames.sources.filters import Filters
from hyperplane.collections.frames.sources.read_errors import tell_skipped, worker_here
from hyperplane.collections.frames.sources.reader import reading
from hyperplane.collections.frames.sources.request import OnError
from hyperplane.errors import ReadError
from hyperplane.stores.places import File


class Unit(Protocol):
    """Neighbouring rows of one file."""

    @property
    def file(self) -> File:
        """The file."""
        ...

    @property
    def recipe(self) -> Recipe:
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


class FilePart(ABC):
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
    def units(self) -> Sequence[Unit]:
        """In the order of the rows; at least one."""

    @property
    def urls(self) -> tuple[str, ...]:
        """The files, for messages."""
        return tuple(dict.fromkeys(unit.file.url for unit in self.units))

    def scan(self, where: pl.Expr | None = None) -> pl.LazyFrame:
        """The rows, filters applied; only the columns that are needed are made."""
        # Polars calls back in a thread of its own, which no worker knows.
        rows = scanned(partial(self._each, worker_here()), self._schema)
        return rows if where is None else rows.filter(where)

    def collected(self, names: Sequence[str]) -> pl.DataFrame:
        """Some columns of the rows; without the copy that a scan makes."""
        return together(partial(self._each, worker_here()), names, self._schema)

    @property
    def _schema(self) -> dict[str, pl.DataType]:
        return dict(self.units[0].recipe.schema)

    def _each(self, worker: Any, names: Collection[str], finish: Finish) -> Iterator[pl.DataFrame]:
        for unit in self.units:
            try:
                with reading(unit):
                    raw = unit.fetch(unit.recipe.raw(names))
                    made = finish(unit.recipe.applied(raw, self.filters, names))
            except ReadError as error:
                if self.on_error == "raise":
                    raise
                tell_skipped([error], worker)
                continue
            yield made

    def __repr__(self) -> str:
        units = ", ".join(map(str, self.units[:3]))
        return f"{type(self).__name__}({units}{', ...' if len(self.units) > 3 else ''})"

    def __dask_tokenize__(self) -> Any:
        units = [
            (unit.file.path, unit.file.size, unit.file.stamp, unit.identity, str(unit.recipe))
            for unit in self.units
        ]
        store = self.units[0].file.store.__dask_tokenize__()
        return (type(self).__name__, units, store, repr(self.filters), self.on_error)
