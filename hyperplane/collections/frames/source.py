"""Where a helper's rows come from: parts that Polars scans itself, or partitions of pandas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from os import PathLike
from typing import Any, TypeVar

import dask.dataframe as dd
import pandas as pd
import polars as pl
import pyarrow as pa
from dask.tokenize import tokenize

from hyperplane.collections.frames import predicate
from hyperplane.collections.frames.convert import from_pandas
from hyperplane.collections.frames.parts import Part
from hyperplane.collections.frames.read import read
from hyperplane.collections.frames.sources.reader import reading
from hyperplane.errors import DataError, Fault, HyperplaneError, RequestError

T = TypeVar("T")
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
    if isinstance(df, dd.DataFrame):
        # Partitions of a GPU become those of pandas, by Dask's own means.
        return df if isinstance(df._meta, pd.DataFrame) else df.to_backend("pandas")
    advice = "for a pandas frame write dask.dataframe.from_pandas(df, npartitions=...)"
    if isinstance(df, dd.Series):
        advice = "write df.to_frame()"
    raise RequestError([Fault("df", type(df).__name__, "a Dask dataframe, a URL or URLs", advice)])


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
        return Source(tuple(root.iterables[0]), tuple(wanted), where, token, scanned=True)
    return Source(tuple(df[wanted].to_delayed()), tuple(wanted), None, token, scanned=False)


def opened(piece: Any, columns: Sequence[str], where: pl.Expr | None) -> pl.LazyFrame:
    """The rows of a piece, in a task."""
    if isinstance(piece, pd.DataFrame):
        return from_pandas(piece[list(columns)]).lazy()
    rows: pl.LazyFrame = piece.scan(where)
    return rows.select(columns)


def on_piece(work: Callable[..., T]) -> Callable[..., T]:
    """Make a function of a piece say which file, or which column, it could not work on."""

    @wraps(work)
    def task(piece: Any, *arguments: Any) -> T:
        if not isinstance(piece, pd.DataFrame):
            return _naming_file(work, piece, arguments)
        try:
            return work(piece, *arguments)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            column = _mixed_column(piece)
            message = "holds values of different kinds; make them one, as with astype('str')"
            raise DataError(column, message) from error

    return task


def _naming_file(work: Callable[..., T], piece: Any, arguments: tuple[Any, ...]) -> T:
    ours: HyperplaneError | None = None
    with reading(piece):
        try:
            return work(piece, *arguments)
        except HyperplaneError as error:  # which says what is wrong better
            ours = error
    raise ours


def _mixed_column(frame: pd.DataFrame) -> str:
    """The column of objects that has no common type."""
    for name, column in frame.items():
        try:
            pa.Array.from_pandas(column)
        except pa.ArrowException:
            return str(name)
    return ", ".join(map(str, frame.columns))
