"""Plan partitions and shards of ORC files from their footers.

pyarrow returns neither the statistics of stripes nor their numbers of rows. So filters skip no
stripe, and to divide a file by rows, a column is read to count the rows of its stripes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import cast

import pyarrow as pa

from hyperplane.formats import arrow_columns, partition_sizes
from hyperplane.formats.column_mapping import ColumnMapping
from hyperplane.formats.orc.footers import (
    OrcFooter,
    estimate_row_size,
    find_fixed_width,
    open_orc,
    read_footers,
    read_stripe,
)
from hyperplane.formats.orc.partition import OrcPartition, StripeRange
from hyperplane.formats.reader import translate_read_errors
from hyperplane.formats.request import ReadPlan, ReadRequest
from hyperplane.objectstore.locations import File


def plan(files: Sequence[File], request: ReadRequest) -> ReadPlan:
    """Read the footers of the files and plan the partitions.

    Raises
    ------
    RequestError
        When the schemas differ, or the request does not match them.
    ReadError
        When a footer is invalid and ``on_error`` is not "skip".
    """
    footers, errors = read_footers(files)
    request.raise_or_warn(errors, len(footers))
    groups = arrow_columns.group_by_schema(
        [footer.file for footer in footers], [footer.schema for footer in footers]
    )
    columns = arrow_columns.resolve_columns(groups, request)
    row_size = estimate_row_size(footers, {*columns.chosen, *columns.filter_schema})
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
    whole = plan(files, replace(request, partition_size=partition_sizes.WHOLE_FILES))
    part = cast(OrcPartition, whole.parts[0])
    first, last = partition_sizes.shard_bounds(index, count, part.rows or 0)
    selected: list[StripeRange] = []
    before = 0
    for one in part.ranges:
        rows = one.rows or 0
        start, stop = max(first - before, 0), min(last - before, rows)
        before += rows
        if start < stop:
            with translate_read_errors(one):
                selected.append(_select_rows(one, start, stop))
    parts = [replace(part, ranges=tuple(selected))] if selected else []
    return replace(whole, parts=parts)


def _select_rows(one: StripeRange, start: int, stop: int) -> StripeRange:
    """Return rows ``start`` to before ``stop`` of a whole file."""
    if (start, stop) == (0, one.rows):
        return one
    counts = _count_rows(one, stop)
    numbers, skip, before = [], 0, 0
    for number, rows in enumerate(counts):
        if before <= start < before + rows:
            skip = start - before
        if start < before + rows and before < stop:
            numbers.append(number)
        before += rows
    share = (stop - start) / max(1, one.rows or 0)
    return replace(
        one,
        stripes=tuple(numbers),
        rows=stop - start,
        nbytes=int(one.nbytes * share),
        skip=skip,
    )


def _count_rows(one: StripeRange, stop: int) -> list[int]:
    """Return the rows of the first stripes of a file, up to the one with row ``stop - 1``."""
    if len(one.stripes) == 1:
        return [one.rows or 0]
    counts: list[int] = []
    with open_orc(one.file) as opened:
        narrow = min(opened.schema, key=_reading_cost).name
        while sum(counts) < stop and len(counts) < len(one.stripes):
            counts.append(read_stripe(opened, len(counts), [narrow]).num_rows)
    return counts


def _reading_cost(field: pa.Field) -> tuple[bool, int]:
    """Return a key that is smaller for columns that are quicker to read."""
    width = find_fixed_width(field.type)
    return (width is None, width or field.type.num_fields)
