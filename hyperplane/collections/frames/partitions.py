"""A part: the rows of one partition, as the readers plan it and the kernels scan it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import polars as pl

#: Smallest and largest value of a column; None for what is not known.
Bounds = tuple[Any, Any]


class ScannablePartition(Protocol):
    """Where the rows of one partition lie; small, hashable by Dask and quick to pickle."""

    @property
    def rows(self) -> int | None:
        """Number of rows before any filter, where it is known without reading."""
        ...

    @property
    def nbytes(self) -> int | None:
        """Bytes in memory, all columns, where they are known or estimated."""
        ...

    def scan(self, where: pl.Expr | None = None) -> pl.LazyFrame:
        """The rows, filters applied, as a lazy frame into which Polars can push columns.

        Missing values are null: there is no NaN.

        Parameters
        ----------
        where : polars.Expr, optional
            A further filter, which takes NaN for null and so can be applied as early as may be.
        """
        ...

    def bounds(self, column: str) -> Bounds | None:
        """Smallest and largest value of a column by the file's own statistics, before filters.

        None when they are not known for every row. Missing values do not count.
        """
        ...
