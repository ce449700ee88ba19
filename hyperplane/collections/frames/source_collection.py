"""Sources of the helpers: partitions that Polars scans from files, or pandas partitions."""

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
from hyperplane.collections.frames.joined_partition import select_partition_columns
from hyperplane.collections.frames.read import read
from hyperplane.core.column_cast import cast_column
from hyperplane.core.dask_internals.frames import IO, Blockwise, FromMap, FromPandas, ReadParquet
from hyperplane.core.errors import DataError, Fault, RequestError
from hyperplane.formats.pandas_frames.column_names import unescape
from hyperplane.formats.pandas_frames.from_pandas import from_pandas
from hyperplane.formats.parquet.pandas_index import check_index
from hyperplane.formats.partition_sizes import DEFAULT_PARTITION_SIZE, merge_neighbors
from hyperplane.formats.partitions import ScannablePartition

Frame = dd.DataFrame | str | PathLike[str] | Sequence[str]


def as_collection(df: Frame) -> dd.DataFrame:
    """Return a Dask dataframe; URLs are read."""
    if isinstance(df, (str, PathLike)) or (isinstance(df, (list, tuple)) and df):
        # With an explicit partition size, small files are joined.
        return read(df, partition_size=DEFAULT_PARTITION_SIZE)
    if isinstance(df, dd.DataFrame):
        check_index(df, "df")
        # Dask converts partitions in GPU memory (cuDF) to pandas.
        return df if isinstance(df._meta, pd.DataFrame) else df.to_backend("pandas")
    advice = "for a pandas frame write dask.dataframe.from_pandas(df, npartitions=...)"
    if isinstance(df, dd.Series):
        advice = "write df.to_frame()"
    raise RequestError([Fault("df", type(df).__name__, "a Dask dataframe, a URL or URLs", advice)])


@dataclass(frozen=True)
class CollectionSource:
    """Partitions, columns and filters that a helper reads."""

    #: Each a ScannablePartition, or the Delayed of a pandas frame.
    partitions: tuple[Any, ...]
    columns: tuple[str, ...]
    #: Filters of the collection that Polars applies; None if there are none or Dask applies them.
    where: pl.Expr | None
    #: Dask token of the rows and columns.
    token: str
    #: Whether Polars scans the partitions.
    scanned: bool
    #: Whether partitions that are computed again, when a worker was lost, have their rows in the
    #: same order. Rows of a shuffle are in the order in which they arrive.
    is_ordered: bool

    @property
    def scannable_partitions(self) -> list[ScannablePartition] | None:
        """The partitions if Polars scans them, else None."""
        return list(self.partitions) if self.scanned else None


def select_source(
    df: dd.DataFrame, columns: Sequence[str], *, merge: bool = True
) -> CollectionSource:
    """Return the source of some columns of a collection.

    If the collection consists of filters and column selections of :func:`read`, Polars scans the
    files and applies the filters; with ``merge``, neighboring partitions whose needed columns are
    small are read together. Otherwise the partitions are pandas frames computed by Dask.
    """
    unique_columns = list(dict.fromkeys(columns))
    scan = filter_pushdown.extract_filters(df.expr)
    token = tokenize(df.expr._name, unique_columns)
    if scan is not None:
        root, where = scan
        needed = {*unique_columns, *([] if where is None else where.meta.root_names())}
        partitions = tuple(root.iterables[0])
        if merge:
            partitions = merge_neighbors(partitions, needed)
        partitions = tuple(select_partition_columns(part, needed) for part in partitions)
        if len(partitions) < len(root.iterables[0]):
            # The number of threads of the cluster, which may change, decides what is merged.
            token = tokenize(token, partitions)
        columns = tuple(unique_columns)
        return CollectionSource(partitions, columns, where, token, scanned=True, is_ordered=True)
    return CollectionSource(
        tuple(df[unique_columns].to_delayed()),
        tuple(unique_columns),
        None,
        token,
        scanned=False,
        is_ordered=all(map(_keeps_order, df.expr.walk())),
    )


def _keeps_order(step: Any) -> bool:
    """Return whether a step of Dask has rows in an order that does not depend on other tasks."""
    if isinstance(step, IO):
        return isinstance(step, (FromMap, FromPandas, ReadParquet))
    return isinstance(step, Blockwise)


def open_partition(
    partition: Any,
    declared: pd.DataFrame,
    where: pl.Expr | None,
    *,
    exact: Sequence[str] = (),
    ordered: Sequence[str] = (),
) -> pl.LazyFrame:
    """Return the rows of a partition as a lazy frame; called in a task.

    ``declared`` is empty, with the needed columns (escaped names) and their declared types. Values
    of other types are not cast, and the result has their type, except for the columns ``exact``,
    which are cast because the plan depends on their type. Categories are an error in the columns
    ``ordered``, because their order may differ from that of the declared type. A DataError is also
    raised if a column is missing or its values cannot be converted.
    """
    names = [unescape(name) for name in declared.columns]
    if isinstance(partition, pd.DataFrame):
        rows = select_columns(partition, names)
        rows.columns = declared.columns
        for name in ordered:
            if isinstance(rows[name].dtype, pd.CategoricalDtype):
                raise DataError(
                    name,
                    f"is of type category, but the declared type is {declared[name].dtype}, which "
                    "may have another order; convert it to text, or take its codes",
                )
        for name in exact:
            rows[name] = cast_exactly(rows[name], declared[name].dtype)
        return from_pandas(rows, declared).lazy()
    scanned: pl.LazyFrame = partition.scan(where)
    if names == list(declared.columns):
        return scanned.select(names)
    selected = scanned.select(selectors.by_name(*names))
    return selected.rename(dict(zip(names, declared.columns, strict=True)))


def select_columns(partition: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Select columns of a partition; raise DataError if one is missing or not unique."""
    for name in names:
        count = int((partition.columns == name).sum())
        if count != 1:
            shown = ", ".join(map(str, partition.columns[:20]))
            problem = "is missing" if not count else f"occurs {count} times"
            raise DataError(name, f"{problem}; the columns of the partition are {shown}")
    return partition[list(names)]


def cast_exactly(values: pd.Series[Any], declared: Any) -> pd.Series[Any]:
    """Cast times to the declared type.

    A DataError is raised if values are not times, if only they or only the declared type have a
    time zone, or if the cast changes a value.
    """
    if values.dtype == declared or values.isna().all():
        return cast_column(values, declared)
    zones = [values.dt.tz if _is_time(values.dtype) else "", pd.Series(dtype=declared).dt.tz]
    converted = None
    if "" not in zones and (zones[0] is None) == (zones[1] is None):
        with suppress(ValueError, ArithmeticError, pa.ArrowException):
            converted = cast_column(values, declared)
    if (
        converted is None
        or not (cast_column(converted, values.dtype).dropna() == values.dropna()).all()
    ):
        present = values.dropna()
        changed = present if converted is None else present[converted[present.index] != present]
        raise DataError(
            str(values.name),
            f"holds {changed.iloc[0]!r:.60} of type {values.dtype}, but the declared type is "
            f"{declared}; convert all partitions to it, for example with "
            f"astype({str(declared)!r})",
        )
    return converted


def _is_time(dtype: Any) -> bool:
    return bool(pd.api.types.is_datetime64_any_dtype(dtype))
