"""Parquet parts: row groups that Polars scans, or pyarrow reads where Polars cannot."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import polars as pl
from pyarrow import parquet

from hyperplane.collections.frames.partitions import Bounds
from hyperplane.collections.frames.sources.file_parts import FilePart
from hyperplane.collections.frames.sources.filters import Filters
from hyperplane.collections.frames.sources.index_ranges import IndexRange
from hyperplane.collections.frames.sources.names import columns
from hyperplane.collections.frames.sources.recipe import Recipe
from hyperplane.collections.frames.sources.request import OnError
from hyperplane.stores.places import File


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
    by_arrow : bool
        Whether pyarrow reads it also from a local disk, because Polars does not open the file.
    index : IndexRange, optional
        A wanted column that follows from the numbers of the rows.
    """

    file: File
    groups: tuple[int, ...]
    start: int
    rows: int
    whole: bool
    likes: int | None
    recipe: Recipe
    by_arrow: bool = False
    index: IndexRange | None = None

    @property
    def urls(self) -> tuple[str, ...]:
        """The file, for messages."""
        return (self.file.url,)

    @property
    def together(self) -> Any:
        """What it has in common with those that it can be scanned with."""
        alike = self.whole and self.likes is not None and self.index is None
        return (self.likes, self.recipe) if alike else self

    @property
    def first_read(self) -> int:
        """Number of the first row of the row groups."""
        return self.start

    def scan(self) -> pl.LazyFrame:
        """The raw columns, from a local disk."""
        raw = pl.scan_parquet(self.file.path, glob=False, hive_partitioning=False)
        rows = raw if self.whole else raw.slice(self.start, self.rows)
        return rows if self.index is None else self.index.add_to(rows, self.start)

    @property
    def identity(self) -> Any:
        """What tells it from other row groups of the file, for a token."""
        return self.groups

    def __str__(self) -> str:
        return f"{self.file.url}{list(self.groups)}"

    def fetch(self, names: Collection[str]) -> pl.LazyFrame:
        """Some raw columns, from any store: no other bytes of the data are asked for."""
        if self.file.store.local and not self.by_arrow:
            return self.scan().select(columns(names))
        with self.file.store.system.open(self.file.path, "rb", cache_type="none") as opened:
            reader = parquet.ParquetFile(opened, pre_buffer=True)
            stored = [name for name in names if self.index is None or name != self.index.name]
            table = reader.read_row_groups(self.groups, columns=stored, use_threads=False)
        if self.index is not None:
            table = self.index.append_to(table, self.first_read)
        made = pl.from_arrow(table)
        frame = made if isinstance(made, pl.DataFrame) else made.to_frame()
        frame.columns = table.column_names  # Polars renames those without a name
        return frame.lazy()


@dataclass(frozen=True, repr=False)
class ParquetPart(FilePart):
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
    def units(self) -> tuple[Piece, ...]:
        """The pieces."""
        return self.pieces

    @property
    def rows(self) -> int:
        """Number of rows before any filter."""
        return sum(piece.rows for piece in self.pieces)

    @property
    def _by_python(self) -> bool:
        there = self.pieces[0].file.store.local
        return self.on_error == "skip" or not there or any(one.by_arrow for one in self.pieces)

    def scan(self, where: pl.Expr | None = None) -> pl.LazyFrame:
        """The rows, filters applied; Polars skips columns that are not needed."""
        if self._by_python:
            return super().scan(where)
        runs = groupby(self.pieces, key=lambda piece: piece.together)
        frames = [_scanned_together(list(run)) for _, run in runs]
        made = [recipe.applied(raw, self.filters, where=where) for raw, recipe in frames]
        return made[0] if len(made) == 1 else pl.concat(made)

    def collected(self, names: Sequence[str]) -> pl.DataFrame:
        """Some columns of the rows."""
        if self._by_python:
            return super().collected(names)
        return self.scan().select(columns(names)).collect()

    def bounds(self, column: str) -> Bounds | None:
        """Smallest and largest value of a column of times or integers, before filters.

        Known where the part was planned; a part that has travelled to a worker answers None.
        """
        return self.known.get(column)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "known": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def _scanned_together(pieces: list[Piece]) -> tuple[pl.LazyFrame, Recipe]:
    """Whole files of one schema as one scan, and how to make their columns."""
    if len(pieces) == 1:
        return pieces[0].scan(), pieces[0].recipe
    paths = [piece.file.path for piece in pieces]
    raw = pl.scan_parquet(paths, glob=False, hive_partitioning=False)
    return raw, pieces[0].recipe
