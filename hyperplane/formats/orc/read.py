"""Read ORC files: partitions and shards of stripes.

pyarrow returns neither the statistics of stripes nor their numbers of rows. Therefore filters skip
no stripe, and a column is read to count the rows of the stripes if a file is divided by rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, cast

import polars as pl
import pyarrow as pa

from hyperplane.core.errors import ReadError
from hyperplane.formats import arrow_columns, partition_sizes
from hyperplane.formats.column_mapping import ColumnMapping
from hyperplane.formats.file_partition import FilePartition
from hyperplane.formats.filters import Filters
from hyperplane.formats.orc.footers import (
    OrcFooter,
    estimate_row_size,
    find_fixed_width,
    open_orc,
    read_footers,
    read_schema,
    read_stripe,
)
from hyperplane.formats.partitions import Bounds
from hyperplane.formats.polars_frames import as_polars
from hyperplane.formats.reader import translate_read_errors
from hyperplane.formats.request import OnError, ReadPlan, ReadRequest
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
        Number of rows; None for all rows of the stripes, if their number is unknown.
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
            If the stripes have fewer rows than the footer declares, or the file has been
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
                message = (
                    f"its footer declares {self.skip + self.rows} rows in stripes "
                    f"{list(self.stripes)}, and they hold {table.num_rows}; it is damaged"
                )
                raise ReadError(self.file.url, message)
            table = table.slice(self.skip, self.rows)
        frame = as_polars(table)
        frame.columns = table.column_names  # Polars renames columns with empty names
        return frame.lazy()

    def _check_unchanged(self, rows: int, schema: pa.Schema, names: Collection[str]) -> None:
        if self.file_rows is not None and rows != self.file_rows:
            message = (
                f"it had {self.file_rows} rows when the read was planned, and now has {rows}; "
                "read it again"
            )
            raise ReadError(self.file.url, message)
        for name in names:
            if name not in schema.names:
                message = (
                    f"it had a column {name!r} when the read was planned, and now has none; "
                    "read it again"
                )
                raise ReadError(self.file.url, message)


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
        counts = [stripe_range.rows for stripe_range in self.ranges]
        known = [rows for rows in counts if rows is not None]
        return sum(known) if len(known) == len(counts) else None

    @property
    def nbytes(self) -> int:
        """Bytes in memory before filters, estimated from a sample."""
        return sum(stripe_range.nbytes for stripe_range in self.ranges)

    def bounds(self, column: str) -> Bounds | None:
        """Return None: pyarrow does not return the statistics of stripes."""
        return None


def plan_partitions(files: Sequence[File], request: ReadRequest) -> ReadPlan:
    """Read the footers of the files and plan the partitions.

    Raises
    ------
    RequestError
        If the schemas differ, or the request does not match them.
    ReadError
        If a footer is invalid and ``on_error`` is not "skip".
    """
    footers, errors = read_footers(files)
    request.raise_or_warn(errors, len(footers))
    groups = arrow_columns.group_by_schema(
        [footer.file for footer in footers], [footer.schema for footer in footers]
    )
    columns = arrow_columns.resolve_columns(groups, request)
    # The estimate reads stripes, which a shard, whose size does not matter, would read in vain.
    one_partition = request.partition_size == partition_sizes.WHOLE_FILES
    names = {*columns.chosen, *columns.filter_schema}
    row_size = 0.0 if one_partition else estimate_row_size(footers, names)
    stripes: list[StripeRange] = []
    for footer in footers:
        stripes += _list_stripes(footer, columns.mappings[footer.file], row_size)
    neighbors = partition_sizes.group_neighbors(
        stripes,
        [max(1, stripe.nbytes) for stripe in stripes],
        request.partition_size,
        request.files(stripes),
    )
    by_file = {footer.file: footer for footer in footers}
    parts = [
        OrcPartition(tuple(_merge_stripes(group, by_file)), columns.filters, request.on_error)
        for group in neighbors
    ]
    return ReadPlan(parts, columns.chosen, columns.optional)


def _list_stripes(footer: OrcFooter, mapping: ColumnMapping, row_size: float) -> list[StripeRange]:
    """Return each stripe of a file; one range without stripes if it has none."""
    if not footer.stripes:
        return [StripeRange(footer.file, (), 0, mapping, 0, file_rows=footer.rows)]
    nbytes = int(footer.rows * row_size / footer.stripes)
    return [
        StripeRange(footer.file, (number,), None, mapping, nbytes, file_rows=footer.rows)
        for number in range(footer.stripes)
    ]


def _merge_stripes(
    group: Sequence[StripeRange], by_file: dict[File, OrcFooter]
) -> Iterator[StripeRange]:
    """Yield one range for the stripes of each file."""
    for file, run in groupby(group, key=lambda stripe: stripe.file):
        stripes = list(run)
        numbers = tuple(number for stripe in stripes for number in stripe.stripes)
        whole = len(numbers) == by_file[file].stripes
        rows = by_file[file].rows if whole else None
        nbytes = sum(stripe.nbytes for stripe in stripes)
        yield replace(stripes[0], stripes=numbers, rows=rows, nbytes=nbytes)


def plan_shard(files: Sequence[File], request: ReadRequest, index: int, count: int) -> ReadPlan:
    """Plan the rows of a shard, as ``numpy.array_split`` divides those of all files."""
    whole = plan_partitions(files, replace(request, partition_size=partition_sizes.WHOLE_FILES))
    part = cast(OrcPartition, whole.parts[0])
    first, last = partition_sizes.find_shard_bounds(index, count, part.rows or 0)
    selected: list[StripeRange] = []
    before = 0
    for stripe_range in part.ranges:
        rows = stripe_range.rows or 0
        start, stop = max(first - before, 0), min(last - before, rows)
        before += rows
        if start < stop:
            with translate_read_errors(stripe_range):
                selected.append(_select_rows(stripe_range, start, stop))
    parts = [replace(part, ranges=tuple(selected))] if selected else []
    return replace(whole, parts=parts)


def _select_rows(stripe_range: StripeRange, start: int, stop: int) -> StripeRange:
    """Return rows ``start`` to before ``stop`` of a whole file."""
    if (start, stop) == (0, stripe_range.rows):
        return stripe_range
    counts = _count_rows(stripe_range, stop)
    numbers, skip, before = [], 0, 0
    for number, rows in enumerate(counts):
        if before <= start < before + rows:
            skip = start - before
        if start < before + rows and before < stop:
            numbers.append(number)
        before += rows
    share = (stop - start) / max(1, stripe_range.rows or 0)
    return replace(
        stripe_range,
        stripes=tuple(numbers),
        rows=stop - start,
        nbytes=int(stripe_range.nbytes * share),
        skip=skip,
    )


def _count_rows(stripe_range: StripeRange, stop: int) -> list[int]:
    """Return the rows of each of the first stripes of a file, up to that of row ``stop - 1``."""
    if len(stripe_range.stripes) == 1:
        return [stripe_range.rows or 0]
    counts: list[int] = []
    with open_orc(stripe_range.file) as opened:
        narrow = min(opened.schema, key=_get_reading_cost).name
        while sum(counts) < stop and len(counts) < len(stripe_range.stripes):
            counts.append(read_stripe(opened, len(counts), [narrow]).num_rows)
    return counts


def _get_reading_cost(field: pa.Field) -> tuple[bool, int]:
    """Return a key that is smaller for columns that are quicker to read."""
    width = find_fixed_width(field.type)
    return (width is None, width or field.type.num_fields)
