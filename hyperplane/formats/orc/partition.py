"""ORC partitions: stripes that pyarrow reads."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from hyperplane.core.errors import ReadError
from hyperplane.formats.column_mapping import ColumnMapping
from hyperplane.formats.file_partition import FilePartition
from hyperplane.formats.filters import Filters
from hyperplane.formats.orc.footers import open_orc, read_schema, read_stripe
from hyperplane.formats.pandas_frames.arrow_tables import as_polars
from hyperplane.formats.partitions import Bounds
from hyperplane.formats.request import OnError
from hyperplane.objectstore.locations import File


@dataclass(frozen=True)
class StripeRange:
    """Consecutive stripes of one file, or a range of rows in them.

    Parameters
    ----------
    file : File
        The file.
    stripes : tuple of int
        Their numbers.
    rows : int, optional
        Number of rows; None if unknown: all rows of the stripes.
    mapping : ColumnMapping
        Converts columns of the file to those of the data set.
    nbytes : int
        Estimated bytes in memory.
    skip : int
        Rows of the first stripe before the range.
    file_rows : int, optional
        Rows of the whole file when it was planned.
    """

    file: File
    stripes: tuple[int, ...]
    rows: int | None
    mapping: ColumnMapping
    nbytes: int
    skip: int = 0
    file_rows: int | None = None

    @property
    def urls(self) -> tuple[str, ...]:
        """The URL of the file, for messages."""
        return (self.file.url,)

    @property
    def identity(self) -> Any:
        """Identifies the rows within the file, for a token."""
        return (self.stripes, self.rows, self.skip)

    def __str__(self) -> str:
        return f"{self.file.url}{list(self.stripes)}"

    def fetch(self, names: Collection[str]) -> pl.LazyFrame:
        """Read some columns of the file.

        Raises
        ------
        ReadError
            When the stripes have fewer rows than the footer declares, or the file has been
            replaced by one with other rows or without a column.
        """
        with open_orc(self.file) as opened:
            schema = read_schema(opened)
            self._check_unchanged(opened.nrows, schema, names)
            empty = pa.schema([schema.field(name) for name in names]).empty_table()
            tables = [read_stripe(opened, number, names) for number in self.stripes]
        table = pa.concat_tables([empty, *tables])
        if self.rows is not None:
            if table.num_rows < self.skip + self.rows:
                wrong = (
                    f"its footer declares {self.skip + self.rows} rows in stripes "
                    f"{list(self.stripes)}, and they hold {table.num_rows}"
                )
                raise ReadError(self.file.url, wrong)
            table = table.slice(self.skip, self.rows)
        frame = as_polars(table)
        frame.columns = table.column_names  # Polars renames columns with empty names
        return frame.lazy()

    def _check_unchanged(self, rows: int, schema: pa.Schema, names: Collection[str]) -> None:
        if self.file_rows is not None and rows != self.file_rows:
            wrong = f"it had {self.file_rows} rows when the read was planned, and now has {rows}"
            raise ReadError(self.file.url, wrong)
        for name in names:
            if name not in schema.names:
                wrong = f"it had a column {name!r} when the read was planned, and now has none"
                raise ReadError(self.file.url, wrong)


@dataclass(frozen=True, repr=False)
class OrcPartition(FilePartition):
    """A partition of ORC stripes.

    Parameters
    ----------
    ranges : tuple of StripeRange
        In the order of the rows.
    filters : Filters
        Row filters.
    on_error : {"raise", "skip"}
        Whether a damaged file is an error or left out.
    """

    ranges: tuple[StripeRange, ...]
    filters: Filters
    on_error: OnError = "raise"

    @property
    def slices(self) -> tuple[StripeRange, ...]:
        """The ranges of stripes."""
        return self.ranges

    @property
    def rows(self) -> int | None:
        """Number of rows before filters; None if unknown."""
        counts = [one.rows for one in self.ranges]
        known = [rows for rows in counts if rows is not None]
        return sum(known) if len(known) == len(counts) else None

    @property
    def nbytes(self) -> int:
        """Bytes in memory before filters, estimated from a sample."""
        return sum(one.nbytes for one in self.ranges)

    def bounds(self, column: str) -> Bounds | None:
        """Return None: pyarrow does not return the statistics of stripes."""
        return None
