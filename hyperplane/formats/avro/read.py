"""Read Avro files: plan partitions of blocks, and decode them with Polars or fastavro."""

from __future__ import annotations

import io
import json
from base64 import b64decode
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import polars as pl
import pyarrow as pa

from hyperplane.core.errors import ReadError
from hyperplane.core.optional import need
from hyperplane.formats import arrow_columns, column_types, partition_sizes
from hyperplane.formats.avro.counts import RecordCountCheck, WrongRecordCount
from hyperplane.formats.avro.schema import (
    ARROW_SCHEMA,
    AvroField,
    UnsupportedAvroSchema,
    parse_fields,
)
from hyperplane.formats.avro.values import make_arrow_array
from hyperplane.formats.byte_ranges import ByteRange, ByteRangePartition
from hyperplane.formats.column_mapping import ColumnMapping
from hyperplane.formats.reader import READER_THREADS, FileUrls, translate_read_errors
from hyperplane.formats.request import ReadPlan, ReadRequest
from hyperplane.objectstore.locations import File

#: Bytes of the sync marker that ends each block; its value is random for each file.
SYNC_SIZE = 16
#: Bytes per read while searching for the end of a block.
STEP = 65_536
#: Bytes read for a header at first; most headers are shorter.
HEADER_SIZE = 65_536
#: Bytes of the largest file that are decoded to estimate the size in memory.
SAMPLE = 500_000
#: Compression codecs that Polars supports.
_POLARS_CODECS = ("null", "deflate", "snappy")
_HEADER_SCHEMA = {
    "type": "record",
    "name": "header",
    "fields": [
        {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": 4}},
        {"name": "meta", "type": {"type": "map", "values": "bytes"}},
        {"name": "sync", "type": {"type": "fixed", "name": "sync", "size": SYNC_SIZE}},
    ],
}


@dataclass(frozen=True)
class AvroHeader:
    """The header of an Avro file.

    Parameters
    ----------
    schema : str
        The schema of the records, as JSON.
    codec : str
        The compression codec of the blocks.
    sync : bytes
        The marker that ends each block.
    length : int
        Bytes of the header.
    arrow : str
        The Arrow schema that :func:`hyperplane.save` adds, because Avro has no durations and
        no columns of nulls; empty in files of other programs.
    """

    schema: str
    codec: str
    sync: bytes
    length: int
    arrow: str = ""

    @property
    def fields(self) -> list[AvroField]:
        """The fields of the records, with the types of the Arrow schema where Avro lacks them."""
        fields = parse_fields(json.loads(self.schema))
        if not self.arrow:
            return fields
        arrow_types = {
            field.name: field.type
            for field in pa.ipc.read_schema(pa.py_buffer(b64decode(self.arrow)))
        }
        return [
            replace(field, arrow=arrow_types[field.name])
            if _has_no_avro_type(arrow_types.get(field.name, field.arrow))
            else field
            for field in fields
        ]


def read_header(file: File) -> AvroHeader:
    """Read the header of a file.

    Raises
    ------
    ReadError
        If the file has no valid header.
    """
    read_record = need("fastavro", extra="avro").schemaless_reader
    length = HEADER_SIZE
    while True:
        head = file.read_range(0, min(file.size, length))
        if head[:4] != b"Obj\x01":
            raise ReadError(
                file.url,
                f"not an Avro file: it starts with {head[:4]!r}; pass format= if it has another "
                "format, or copy it again",
            )
        buffer = io.BytesIO(head)
        try:
            decoded = read_record(buffer, _HEADER_SCHEMA, None)
            break
        except (EOFError, ValueError, IndexError, UnicodeError) as error:
            if length >= file.size:
                raise ReadError(
                    file.url, "the file ends within its header; copy it again"
                ) from error
            length *= 8
    meta = decoded["meta"]
    codec = meta.get("avro.codec", b"null").decode()
    try:
        schema = meta["avro.schema"].decode()
        parse_fields(json.loads(schema))
    except UnsupportedAvroSchema as error:
        raise ReadError(file.url, f"{error}; such Avro data cannot be read as a table") from error
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ReadError(file.url, f"its header has no valid schema ({error!r})") from error
    arrow = meta.get(ARROW_SCHEMA, b"").decode()
    return AvroHeader(schema, codec, decoded["sync"], buffer.tell(), arrow)


@dataclass(frozen=True)
class AvroDecoder:
    """Decodes blocks of an Avro file into columns."""

    header: AvroHeader

    @property
    def record_end(self) -> bytes:
        """The sync marker."""
        return self.header.sync

    def decode(self, byte_range: ByteRange, names: Collection[str]) -> pl.DataFrame:
        """Decode some columns of the blocks that start in a byte range.

        Raises
        ------
        ReadError
            If a block is damaged.
        """
        blocks = self._read_blocks(byte_range)
        fields = self.header.fields
        chosen = [field for field in fields if field.name in names]
        if not blocks:
            return pl.DataFrame(
                schema={field.name: column_types.from_arrow(field.arrow) for field in chosen}
            )
        self._check_counts(blocks, byte_range)
        fast = self.header.codec in _POLARS_CODECS and all(
            field.polars_type is not None for field in fields
        )
        return (
            self._decode_with_polars(blocks, chosen)
            if fast
            else self._decode_with_fastavro(blocks, chosen)
        )

    def _read_blocks(self, byte_range: ByteRange) -> bytes:
        """Read the blocks whose preceding sync marker starts in the range."""
        file, sync = byte_range.file, self.header.sync
        stop = min(file.size, byte_range.stop + SYNC_SIZE - 1)
        data = byte_range.read_bytes(byte_range.start, stop)
        begin = data.find(sync)
        if begin and byte_range.start == self.header.length - SYNC_SIZE:
            raise ReadError(
                file.url, "its header has changed since the read was planned; read it again"
            )
        if begin < 0 or byte_range.start + begin >= byte_range.stop:
            return b""
        begin += SYNC_SIZE
        end = data.find(sync, max(begin, byte_range.stop - byte_range.start))
        while end < 0 and byte_range.start + len(data) < file.size:
            searched = max(begin, len(data) - SYNC_SIZE + 1)
            position = byte_range.start + len(data)
            data += byte_range.read_bytes(position, min(file.size, position + STEP))
            end = data.find(sync, searched)
        # A file without a marker at its end is truncated; decoding will detect that.
        return data[begin : end + SYNC_SIZE] if end >= 0 else data[begin:]

    def _check_counts(self, blocks: bytes, byte_range: ByteRange) -> None:
        """Raise ReadError if a block declares more records than its bytes can contain."""
        try:
            counts = RecordCountCheck(json.loads(self.header.schema))
            counts.check_packed(blocks, self.header.codec, SYNC_SIZE)
        except WrongRecordCount as error:
            raise ReadError(byte_range.file.url, str(error)) from error

    def _decode_with_polars(self, blocks: bytes, chosen: list[AvroField]) -> pl.DataFrame:
        avro_file = _write_header(self._make_polars_schema(), self.header) + blocks
        frame = pl.read_avro(io.BytesIO(avro_file), columns=[field.name for field in chosen])
        return frame.with_columns(
            _finish_column(frame.get_column(field.name), field)
            for field in chosen
            if field.symbols or _is_nanoseconds(field) or _has_no_avro_type(field.arrow)
        )

    def _make_polars_schema(self) -> dict[str, Any]:
        schema_fields = [
            {"name": field.name, "type": field.polars_type} for field in self.header.fields
        ]
        return {"type": "record", "name": "row", "fields": schema_fields}

    def _decode_with_fastavro(self, blocks: bytes, chosen: list[AvroField]) -> pl.DataFrame:
        fastavro = need("fastavro", extra="avro")
        schema = json.loads(self.header.schema)
        avro_file = _write_header(schema, self.header) + blocks
        records = fastavro.reader(io.BytesIO(avro_file))
        columns: dict[str, list[Any]] = {field.name: [] for field in chosen}
        for record in records:
            for name, values in columns.items():
                values.append(record[name])
        return pl.DataFrame([_make_series(field, columns[field.name]) for field in chosen])


def _write_header(schema: Any, like: AvroHeader) -> bytes:
    buffer = io.BytesIO()
    meta = {"avro.schema": json.dumps(schema).encode(), "avro.codec": like.codec.encode()}
    header = {"magic": b"Obj\x01", "meta": meta, "sync": like.sync}
    need("fastavro", extra="avro").schemaless_writer(buffer, _HEADER_SCHEMA, header)
    return buffer.getvalue()


def _is_nanoseconds(field: AvroField) -> bool:
    return bool(pa.types.is_timestamp(field.arrow) and field.arrow.unit == "ns")


def _has_no_avro_type(kind: pa.DataType) -> bool:
    """Whether Avro has no such type, so that :func:`hyperplane.save` writes another one."""
    return bool(pa.types.is_duration(kind) or pa.types.is_null(kind))


def _finish_column(column: pl.Series, field: AvroField) -> pl.Series:
    """Convert a column decoded by Polars to its Arrow type: enumerations, nanoseconds, nulls."""
    if field.symbols:
        categories = pl.Series(field.symbols, dtype=pl.String)
        return categories.gather(column).alias(field.name)
    if pa.types.is_duration(field.arrow):
        return pl.Series(field.name, _cast_for_polars(column.to_arrow().cast(field.arrow)))
    if pa.types.is_null(field.arrow):
        return pl.Series(field.name, [None] * len(column), pl.Null)
    return column.cast(column_types.from_arrow(field.arrow))


def _make_series(field: AvroField, values: list[Any]) -> pl.Series:
    if _is_nanoseconds(field):
        return pl.Series(field.name, values, pl.Int64).cast(column_types.from_arrow(field.arrow))
    return pl.Series(field.name, _cast_for_polars(make_arrow_array(field, values)))


def _cast_for_polars(values: pa.Array) -> pa.Array:
    """Cast durations of seconds to milliseconds, because Polars has no seconds."""
    return values.cast(pa.duration("ms")) if values.type == pa.duration("s") else values


FileHeader = tuple[File, AvroHeader]


def plan_partitions(files: Sequence[File], request: ReadRequest) -> ReadPlan:
    """Read the headers of the files and plan the partitions.

    Raises
    ------
    RequestError
        If the schemas differ, or the request does not match them.
    ReadError
        If a header is invalid and ``on_error`` is not "skip".
    """
    with ThreadPoolExecutor(min(READER_THREADS, len(files))) as pool:
        results = list(pool.map(_try_read_header, files))
    headers = [result for result in results if not isinstance(result, ReadError)]
    request.raise_or_warn(
        [result for result in results if isinstance(result, ReadError)], len(headers)
    )
    by_header: dict[tuple[str, str], pa.Schema] = {}
    for _, header in headers:
        if (header.schema, header.arrow) not in by_header:
            by_header[header.schema, header.arrow] = _make_arrow_schema(header)
    file_schemas = [by_header[header.schema, header.arrow] for _, header in headers]
    groups = arrow_columns.group_by_schema([file for file, _ in headers], file_schemas)
    columns = arrow_columns.resolve_columns(groups, request)
    density = _estimate_density(headers, columns.chosen)
    total = int(sum(file.size for file, _ in headers) * density)
    target_size = partition_sizes.choose_target_size(total, request.partition_size)
    byte_ranges: list[ByteRange] = []
    for file, header in headers:
        byte_ranges += _split_file(file, header, columns.mappings[file], density, target_size)
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


def _make_arrow_schema(header: AvroHeader) -> pa.Schema:
    return pa.schema([pa.field(field.name, field.arrow, field.nullable) for field in header.fields])


def _estimate_density(headers: Sequence[FileHeader], chosen: dict[str, pl.DataType]) -> float:
    """Return the ratio of bytes in memory to bytes of a file, for the chosen columns."""
    file, header = max(headers, key=lambda entry: entry[0].size)
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
    file: File, header: AvroHeader, mapping: ColumnMapping, density: float, target_size: float
) -> list[ByteRange]:
    start = header.length - SYNC_SIZE
    count = max(1, round(file.size * density / target_size + 0.4))
    bounds = [start + round(i * (file.size - start) / count) for i in range(count + 1)]
    decoder = AvroDecoder(header)
    return [
        ByteRange(file, begin, end, decoder, mapping, max(1, int((end - begin) * density)))
        for begin, end in pairwise(bounds)
    ]
