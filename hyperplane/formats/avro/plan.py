"""Plan partitions of Avro files from their headers."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import polars as pl
import pyarrow as pa

from hyperplane.core.errors import ReadError
from hyperplane.formats import arrow_columns, partition_sizes
from hyperplane.formats.avro.decoder import (
    SYNC_SIZE,
    AvroDecoder,
    AvroHeader,
    read_header,
)
from hyperplane.formats.byte_ranges import ByteRange, ByteRangePartition
from hyperplane.formats.column_mapping import ColumnMapping
from hyperplane.formats.reader import FileUrls, translate_read_errors
from hyperplane.formats.reader_threads import READER_THREADS
from hyperplane.formats.request import ReadPlan, ReadRequest
from hyperplane.objectstore.locations import File

#: Bytes of the largest file that are decoded to estimate the size in memory.
SAMPLE = 500_000

FileHeader = tuple[File, AvroHeader]


def plan_files(files: Sequence[File], request: ReadRequest) -> ReadPlan:
    """Read the headers of the files and plan the partitions.

    Raises
    ------
    RequestError
        When the schemas differ, or the request does not match them.
    ReadError
        When a header is invalid and ``on_error`` is not "skip".
    """
    with ThreadPoolExecutor(min(READER_THREADS, len(files))) as pool:
        results = list(pool.map(_try_read_header, files))
    headers = [one for one in results if not isinstance(one, ReadError)]
    request.raise_or_warn([one for one in results if isinstance(one, ReadError)], len(headers))
    by_header: dict[tuple[str, str], pa.Schema] = {}
    for _, header in headers:
        if (header.schema, header.arrow) not in by_header:
            by_header[header.schema, header.arrow] = _arrow_schema(header)
    file_schemas = [by_header[header.schema, header.arrow] for _, header in headers]
    groups = arrow_columns.group_by_schema([file for file, _ in headers], file_schemas)
    columns = arrow_columns.resolve_columns(groups, request)
    density = _estimate_density(headers, columns.chosen)
    total = int(sum(file.size for file, _ in headers) * density)
    aim = partition_sizes.choose_target_size(total, request.partition_size)
    byte_ranges: list[ByteRange] = []
    for file, header in headers:
        byte_ranges += _split_file(file, header, columns.mappings[file], density, aim)
    neighbors = partition_sizes.group_neighbors(
        byte_ranges,
        [byte_range.nbytes for byte_range in byte_ranges],
        request.partition_size,
        request.files(byte_ranges),
    )
    parts = [
        ByteRangePartition(tuple(ranges), columns.filters, request.on_error) for ranges in neighbors
    ]
    return ReadPlan(parts, columns.chosen, columns.optional)


def _try_read_header(file: File) -> FileHeader | ReadError:
    try:
        with translate_read_errors(FileUrls((file.url,))):
            return file, read_header(file)
    except ReadError as error:
        return error


def _arrow_schema(header: AvroHeader) -> pa.Schema:
    return pa.schema([pa.field(one.name, one.arrow, one.nullable) for one in header.fields])


def _estimate_density(headers: Sequence[FileHeader], chosen: dict[str, pl.DataType]) -> float:
    """Return the ratio of bytes in memory to bytes of a file, for the chosen columns."""
    file, header = max(headers, key=lambda one: one[0].size)
    stop = min(file.size, header.length + SAMPLE)
    mapping = ColumnMapping(tuple(chosen.items()))
    decoder = AvroDecoder(header)
    byte_range = ByteRange(file, header.length - SYNC_SIZE, stop, decoder, mapping, 0)
    names = [field.name for field in header.fields if field.name in chosen]
    try:
        with translate_read_errors(byte_range):
            size = decoder.decode(byte_range, names).estimated_size()
    except ReadError:
        return 1.0  # the task that reads this range will raise the error
    return max(0.01, float(size) / max(1, stop - header.length))


def _split_file(
    file: File, header: AvroHeader, mapping: ColumnMapping, density: float, aim: float
) -> list[ByteRange]:
    start = header.length - SYNC_SIZE
    count = max(1, round(file.size * density / aim + 0.4))
    ends = [start + round(i * (file.size - start) / count) for i in range(count + 1)]
    decoder = AvroDecoder(header)
    return [
        ByteRange(file, begin, end, decoder, mapping, max(1, int((end - begin) * density)))
        for begin, end in pairwise(ends)
    ]
