"""Where a helper's rows come from: parts that Polars scans itself, or partitions of pandas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import dask.dataframe as dd
import pandas as pd
import polars as pl
from dask.tokenize import tokenize

from hyperplane.collections.frames import predicate
from hyperplane.collections.frames.convert import from_pandas
from hyperplane.collections.frames.parts import Part
from hyperplane.collections.frames.read import read
from hyperplane.collections.frames.sources.reader import PartReader
from hyperplane.errors import Fault, check

Frame = dd.DataFrame | str | PathLike[str] | Sequence[str]


def collection(df: Frame) -> dd.DataFrame:
    """The dataframe that a helper was given; URLs are read.

    Raises
    ------
    RequestError
        When it is neither.
    """
    if isinstance(df, (str, PathLike)) or (isinstance(df, (list, tuple)) and df):
        return read(df)
    if not isinstance(df, dd.DataFrame):
        advice = "for a pandas frame write dask.dataframe.from_pandas(df, npartitions=...)"
        check([Fault("df", type(df).__name__, "a Dask dataframe, a URL or URLs", advice)])
    return df


@dataclass(frozen=True)
class Source:
    """The rows that a helper works on.

    Parameters
    ----------
    pieces : tuple
        One for each partition: a part, or the delayed pandas frame of a partition.
    columns : tuple of str
        The columns that are read.
    where : polars.Expr or None
        Rows to keep, where the collection's own filters could be taken over.
    token : str
        Names the content.
    scanned : bool
        Whether the pieces are parts, which Polars scans.
    """

    pieces: tuple[Any, ...]
    columns: tuple[str, ...]
    where: pl.Expr | None
    token: str
    scanned: bool

    @property
    def parts(self) -> list[Part] | None:
        """The parts, when Polars scans them."""
        return list(self.pieces) if self.scanned else None


def source(df: dd.DataFrame, columns: Sequence[str]) -> Source:
    """What to read for some columns of a collection, with as little of pandas as can be.

    A collection that is rows and columns chosen from :func:`read` is read by Polars, filters
    included. Any other is taken as its own pandas partitions, and Dask optimizes up to there.
    """
    wanted = list(dict.fromkeys(columns))
    found = predicate.taken_apart(df.expr)
    token = tokenize(df.expr._name, wanted)
    if found is not None:
        root, where = found
        if isinstance(root.func, PartReader):
            return Source(tuple(root.iterables[0]), tuple(wanted), where, token, scanned=True)
    return Source(tuple(df[wanted].to_delayed()), tuple(wanted), None, token, scanned=False)


def opened(piece: Any, columns: Sequence[str], where: pl.Expr | None) -> pl.LazyFrame:
    """The rows of a piece, in a task."""
    if isinstance(piece, pd.DataFrame):
        return from_pandas(piece[list(columns)]).lazy()
    rows: pl.LazyFrame = piece.scan()
    if where is not None:
        rows = rows.filter(where)
    return rows.select(columns)
