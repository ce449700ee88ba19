"""Interface of the partitions that formats plan and that operations on dataframes scan."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

if TYPE_CHECKING:
    import polars as pl

#: Smallest and largest value of a column.
Bounds = tuple[Any, Any]


class ScannablePartition(Protocol):
    """Location of the rows of one partition: small, quick to pickle, tokenizable by Dask."""

    @property
    def rows(self) -> int | None:
        """Number of rows before filters; None if unknown without reading."""
        ...

    @property
    def nbytes(self) -> int | None:
        """Bytes in memory of the requested columns, possibly estimated; None if unknown."""
        ...

    def scan(self, where: pl.Expr | None = None) -> pl.LazyFrame:
        """Return the filtered rows as a lazy frame that supports projection pushdown.

        Missing values are null, never NaN.

        Parameters
        ----------
        where : polars.Expr, optional
            A further filter. It treats NaN as null, so it may be applied before NaN is replaced.
        """
        ...

    def bounds(self, column: str) -> Bounds | None:
        """Return the smallest and largest value of a column by the file's statistics.

        Missing values and filters are ignored. None unless the statistics cover every row.
        """
        ...


@runtime_checkable
class MergeablePartition(Protocol):
    """A partition that can be read together with its neighbors if few of its columns are needed."""

    @property
    def partition_size(self) -> int:
        """Bytes in memory that a partition should have at most."""
        ...

    def estimate_columns(self, columns: Collection[str]) -> int | None:
        """Return the bytes in memory of some columns, before filters; None if unknown."""
        ...

    def merge(self, others: Sequence[Self]) -> Self:
        """Return a partition of these rows and those of the partitions that follow it."""
        ...
