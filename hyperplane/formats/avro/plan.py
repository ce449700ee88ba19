"""Plan partitions of Avro files from their headers."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import polars as pl
import pyarrow as pa

from hyperplane.core.errors import ReadError, check
from hyperplane.formats import hive_partitions, partition_sizes, schemas, types
from hyperplane.formats.avro.decoder import (
    SYNC_SIZE,
    AvroDecoder,
    AvroHeader,
    read_header,
)
from hyperplane.formats.byte_ranges import ByteRange, ByteRangePartition
from hyperplane.formats.column_mapping import ColumnMapping, may_lose
from hyperplane.formats.filters import filter_columns
from hyperplane.formats.parquet.footers import READER_THREADS
from hyperplane.formats.reader import translate_read_errors
from hyperplane.formats.request import ReadPlan, ReadRequest
from hyperplane.formats.samples import TextSample
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
    schemas_by_text: dict[str, schemas.FileSchema] = {}
    faults = []
    for file, header in headers:
        if header.schema in schemas_by_text:
            schemas_by_text[header.schema].urls.append(file.url)
            continue
        schemas_by_text[header.schema], wrong = schemas.make_file_schema(
            _arrow_schema(header), request.decimals, file.url
        )
        faults += wrong
    check(faults)
    columns, faults = schemas.merge_schemas(list(schemas_by_text.values()), request.schema_mode)
    check(faults)
    keys, key_types, keyless = hive_partitions.parse_hive_keys(
        [file.path for file, _ in headers], columns
    )
    columns = {**columns, **key_types}
    filters, chosen = request.resolve(columns, list(columns))
    filter_schema = {name: columns[name] for name in filter_columns(filters)}
    check(schemas.find_unreadable_columns(schemas_by_text.values(), {**chosen, **filter_schema}))
    density = _estimate_density(headers, chosen)
    total = int(sum(file.size for file, _ in headers) * density)
    aim = partition_sizes.choose_target_size(total, request.partition_size)
    byte_ranges: list[ByteRange] = []
    mappings: dict[tuple[str, hive_partitions.PartitionKeys], ColumnMapping] = {}
    for file, header in headers:
        constants = keys.get(file.path, ())
        if (header.schema, constants) not in mappings:
            mappings[header.schema, constants] = _make_mapping(
                header, dict(constants), chosen, filter_schema
            )
        byte_ranges += _split_file(file, header, mappings[header.schema, constants], density, aim)
    groups = partition_sizes.group_neighbors(
        byte_ranges,
        [byte_range.nbytes for byte_range in byte_ranges],
        request.partition_size,
        request.files(byte_ranges),
    )
    parts = [ByteRangePartition(tuple(group), filters, request.on_error) for group in groups]
    optional = _find_optional(headers, chosen, key_types) | keyless.intersection(chosen)
    return ReadPlan(parts, chosen, optional)


def _try_read_header(file: File) -> FileHeader | ReadError:
    try:
        with translate_read_errors(TextSample(file)):
            return file, read_header(file)
    except ReadError as error:
        return error


def _arrow_schema(header: AvroHeader) -> pa.Schema:
    return pa.schema([(field.name, field.arrow) for field in header.fields])


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


def _make_mapping(
    header: AvroHeader,
    constants: dict[str, object],
    chosen: dict[str, pl.DataType],
    filter_schema: dict[str, pl.DataType],
) -> ColumnMapping:
    used = {**chosen, **filter_schema}
    file_types = {field.name: types.from_arrow(field.arrow) for field in header.fields}
    cast = frozenset(name for name, kind in used.items() if file_types.get(name, kind) != kind)
    absent = {name: constants.get(name) for name in used if name not in file_types}
    lossy = frozenset(name for name in cast if may_lose(file_types[name], used[name]))
    return ColumnMapping(
        tuple(chosen.items()),
        tuple(filter_schema.items()),
        cast,
        tuple(absent.items()),
        lossy=lossy,
    )


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


def _find_optional(
    headers: Sequence[FileHeader], chosen: dict[str, pl.DataType], key_types: dict[str, pl.DataType]
) -> set[str]:
    nullable_by_field = [
        {field.name: field.nullable for field in header.fields} for _, header in headers
    ]
    return {
        name
        for name in chosen
        if name not in key_types and any(fields.get(name, True) for fields in nullable_by_field)
    }
