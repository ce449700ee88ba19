"""Where a helper's rows come from: parts that Polars scans itself, or partitions of pandas."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from typing import Any

import dask.dataframe as dd
import pandas as pd
import polars as pl
import pyarrow as pa
from dask.tokenize import tokenize
from polars import selectors

from hyperplane.collections.frames import filter_pushdown
from hyperplane.collections.frames.column_names import unescape
from hyperplane.collections.frames.convert import from_pandas
from hyperplane.collections.frames.partitions import ScannablePartition
from hyperplane.collections.frames.read import read
from hyperplane.collections.frames.sources.plan import USUAL
from hyperplane.errors import DataError, Fault, RequestError
from hyperplane.parquet_index import check_index

Frame = dd.DataFrame | str | PathLike[str] | Sequence[str]


def as_collection(df: Frame) -> dd.DataFrame:
    """The dataframe that a helper was given; URLs are read.

    Raises
    ------
    RequestError
        When it is neither.
    """
    if isinstance(df, (str, PathLike)) or (isinstance(df, (list, tuple)) and df):
        return read(df, partition_size=USUAL)  # which joins small files
    if isinstance(df, dd.DataFrame):
        check_index(df, "df")
        # Partitions of a GPU become those of pandas, by Dask's own means.
        return df if isinstance(df._meta, pd.DataFrame) else df.to_backend("pandas")
    advice = "for a pandas frame write dask.dataframe.from_pandas(df, npartitions=...)"
    if isinstance(df, dd.Series):
        advice = "write df.to_frame()"
    raise RequestError([Fault("df", type(df).__name__, "a Dask dataframe, a URL or URLs", advice)])


@dataclass(frozen=True)
class CollectionSource:
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

    partitions: tuple[Any, ...]
    columns: tuple[str, ...]
    where: pl.Expr | None
    token: str
    scanned: bool

    @property
    def scannable_partitions(self) -> list[ScannablePartition] | None:
        """The parts, when Polars scans them."""
        return list(self.partitions) if self.scanned else None


def select_source(df: dd.DataFrame, columns: Sequence[str]) -> CollectionSource:
    """What to read for some columns of a collection, with as little of pandas as can be.

    A collection that is rows and columns chosen from :func:`read` is read by Polars, filters
    included. Any other is taken as its own pandas partitions, and Dask optimizes up to there.
    """
    wanted = list(dict.fromkeys(columns))
    found = filter_pushdown.extract_filters(df.expr)
    token = tokenize(df.expr._name, wanted)
    if found is not None:
        root, where = found
        return CollectionSource(tuple(root.iterables[0]), tuple(wanted), where, token, scanned=True)
    return CollectionSource(
        tuple(df[wanted].to_delayed()), tuple(wanted), None, token, scanned=False
    )


def open_partition(
    piece: Any,
    declared: pd.DataFrame,
    where: pl.Expr | None,
    *,
    exact: Sequence[str] = (),
    ordered: Sequence[str] = (),
) -> pl.LazyFrame:
    """The rows of a piece, in a task.

    Parameters
    ----------
    declared : pandas.DataFrame
        Empty, with the columns that are needed, their names escaped, of the types that the
        collection says. Other types are taken as they are: what is made of the rows follows the
        values.
    exact : sequence of str
        Columns that must be of the type that the collection says, because the work is planned by
        it; values that the type does not hold are an error.
    ordered : sequence of str
        Columns whose order matters, which must not turn out to be categories.

    Raises
    ------
    DataError
        When a column is missing, or has values that cannot be worked on.
    """
    names = [unescape(name) for name in declared.columns]
    if isinstance(piece, pd.DataFrame):
        rows = _select_columns(piece, names)
        rows.columns = declared.columns
        for name in ordered:
            if isinstance(rows[name].dtype, pd.CategoricalDtype):
                raise DataError(
                    name,
                    f"is of type category, where the collection says {declared[name].dtype}, and "
                    "has an order of its own; make it text, or take its codes",
                )
        for name in exact:
            rows[name] = cast_exactly(rows[name], declared[name].dtype)
        return from_pandas(rows, declared).lazy()
    scanned: pl.LazyFrame = piece.scan(where)
    if names == list(declared.columns):
        return scanned.select(names)
    chosen = scanned.select(selectors.by_name(*names))
    return chosen.rename(dict(zip(names, declared.columns, strict=True)))


def _select_columns(piece: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Some columns of a partition, each of which it has once."""
    for name in names:
        found = int((piece.columns == name).sum())
        if found != 1:
            shown = ", ".join(map(str, piece.columns[:20]))
            many = "is missing" if not found else f"is there {found} times"
            raise DataError(name, f"{many}: the columns are {shown}")
    return piece[list(names)]


def cast_exactly(values: pd.Series[Any], declared: Any) -> pd.Series[Any]:
    """Values in the type that a collection says.

    Raises
    ------
    DataError
        When they are none of this type, or the type does not hold them.
    """
    if values.dtype == declared or values.isna().all():
        return values.astype(declared)
    zones = [values.dt.tz if _is_time(values.dtype) else "", pd.Series(dtype=declared).dt.tz]
    kept = None
    if "" not in zones and (zones[0] is None) == (zones[1] is None):
        with suppress(ValueError, ArithmeticError, pa.ArrowException):
            kept = values.astype(declared)
    if kept is None or not (kept.astype(values.dtype).dropna() == values.dropna()).all():
        there = values.dropna()
        lost = there if kept is None else there[kept[there.index] != there]
        raise DataError(
            str(values.name),
            f"holds {lost.iloc[0]!r:.60} of type {values.dtype}, where the collection says "
            f"{declared}; make them one, as with astype({str(declared)!r})",
        )
    return kept


def _is_time(dtype: Any) -> bool:
    return bool(pd.api.types.is_datetime64_any_dtype(dtype))
