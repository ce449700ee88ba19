"""Parquet parts: row groups that Polars scans, or pyarrow reads where Polars cannot."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any

import polars as pl
from pyarrow import parquet

from hyperplane.collections.frames.parts import Bounds
from hyperplane.collections.frames.sources.errors import ReadError, tell_skipped, worker_here
from hyperplane.collections.frames.sources.filters import Filters
from hyperplane.collections.frames.sources.listing import File
from hyperplane.collections.frames.sources.reader import reading
from hyperplane.collections.frames.sources.recipe import Finish, Recipe, scanned, together
from hyperplane.collections.frames.sources.request import OnError


@dataclass(frozen=True)
class Piece:
    """Neighbouring row groups of one file.

    Parameters
    ----------
    file : File
        The file.
    groups : tuple of int
        Their numbers.
    start, rows : int
        Their rows within the file.
    whole : bool
        Whether these are all rows of the file.
    likes : int, optional
        Number of the schema of the file; files of the same one can be scanned together.
    recipe : Recipe
        How to make the columns.
    """

    file: File
    groups: tuple[int, ...]
    start: int
    rows: int
    whole: bool
    likes: int | None
    recipe: Recipe

    @property
    def urls(self) -> tuple[str, ...]:
        """The file, for messages."""
        return (self.file.url,)

    @property
    def together(self) -> Any:
        """What it has in common with those that it can be scanned with."""
        return (self.likes, self.recipe) if self.whole and self.likes is not None else self

    def scan(self) -> pl.LazyFrame:
        """The raw columns, from a local disk."""
        raw = pl.scan_parquet(self.file.path, glob=False, hive_partitioning=False)
        return raw if self.whole else raw.slice(self.start, self.rows)

    def fetch(self, names: Collection[str]) -> pl.LazyFrame:
        """Some raw columns, from any store: no other bytes of the data are asked for."""
        with self.file.store.system.open(self.file.path, "rb", cache_type="none") as opened:
            reader = parquet.ParquetFile(opened, pre_buffer=True)
            table = reader.read_row_groups(self.groups, columns=list(names), use_threads=False)
        frame = pl.from_arrow(table)
        return (frame if isinstance(frame, pl.DataFrame) else frame.to_frame()).lazy()


@dataclass(frozen=True, repr=False)
class ParquetPart:
    """The row groups of one partition.

    Parameters
    ----------
    pieces : tuple of Piece
        In the order of the rows.
    filters : Filters
        Which rows.
    nbytes : int
        Bytes in memory of the columns that were asked for, before filters.
    on_error : {"raise", "skip"}
        What happens when a file turns out to be damaged.
    """

    pieces: tuple[Piece, ...]
    filters: Filters
    nbytes: int
    on_error: OnError = "raise"
    known: Mapping[str, Bounds] = field(default_factory=dict, compare=False, repr=False)

    @property
    def rows(self) -> int:
        """Number of rows before any filter."""
        return sum(piece.rows for piece in self.pieces)

    @property
    def urls(self) -> tuple[str, ...]:
        """The files, for messages."""
        return tuple(dict.fromkeys(piece.file.url for piece in self.pieces))

    @property
    def _schema(self) -> dict[str, pl.DataType]:
        return dict(self.pieces[0].recipe.schema)

    @property
    def _by_python(self) -> bool:
        return self.on_error == "skip" or not self.pieces[0].file.store.local

    def scan(self) -> pl.LazyFrame:
        """The rows, filters applied; Polars skips columns that are not needed."""
        if self._by_python:
            # Polars calls back in a thread of its own, which no worker knows.
            return scanned(partial(self._each, worker_here()), self._schema)
        runs = groupby(self.pieces, key=lambda piece: piece.together)
        frames = [_scanned_together(list(run)) for _, run in runs]
        made = [recipe.applied(raw, self.filters) for raw, recipe in frames]
        return made[0] if len(made) == 1 else pl.concat(made)

    def collected(self, names: Sequence[str]) -> pl.DataFrame:
        """Some columns of the rows."""
        if self._by_python:
            return together(partial(self._each, worker_here()), names, self._schema)
        return self.scan().select(names).collect()

    def _each(self, worker: Any, names: Collection[str], finish: Finish) -> Iterator[pl.DataFrame]:
        for piece in self.pieces:
            raw = piece.recipe.raw(names)
            try:
                with reading(piece):
                    local = piece.file.store.local
                    found = piece.scan().select(raw) if local else piece.fetch(raw)
                    made = finish(piece.recipe.applied(found, self.filters, names))
            except ReadError as error:
                if self.on_error == "raise":
                    raise
                tell_skipped([error], worker)
                continue
            yield made

    def bounds(self, column: str) -> Bounds | None:
        """Smallest and largest value of a column of times or integers, before filters.

        Known where the part was planned; a part that has travelled to a worker answers None.
        """
        return self.known.get(column)

    def __repr__(self) -> str:
        pieces = ", ".join(f"{piece.file.url}{list(piece.groups)}" for piece in self.pieces[:3])
        return f"ParquetPart({pieces}{', ...' if len(self.pieces) > 3 else ''})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "known": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __dask_tokenize__(self) -> Any:
        pieces = [
            (p.file.path, p.file.size, p.file.stamp, p.groups, str(p.recipe)) for p in self.pieces
        ]
        store = self.pieces[0].file.store.__dask_tokenize__()
        return (type(self).__name__, pieces, store, repr(self.filters), self.on_error)


def _scanned_together(pieces: list[Piece]) -> tuple[pl.LazyFrame, Recipe]:
    """Whole files of one schema as one scan, and how to make their columns."""
    if len(pieces) == 1:
        return pieces[0].scan(), pieces[0].recipe
    paths = [piece.file.path for piece in pieces]
    raw = pl.scan_parquet(paths, glob=False, hive_partitioning=False)
    return raw, pieces[0].recipe
