"""Write tables as Avro files and read them back.

The header holds the Arrow schema besides the Avro schema, as Parquet files do, so time zones,
small integers, and the index are restored. Other programs ignore it.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import io
import json
import re
from typing import Any

import pyarrow as pa
from pyarrow import compute

from hyperplane.core.errors import DataError
from hyperplane.core.optional import need
from hyperplane.formats.avro.counts import RecordCountCheck
from hyperplane.formats.avro.schema import (
    ARROW_SCHEMA,
    UnsupportedAvroSchema,
    parse_fields,
)
from hyperplane.formats.avro.values import make_arrow_array
from hyperplane.formats.base import EncodedFile
from hyperplane.formats.pandas_frames.to_arrow import decode_categories, to_arrow

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_AVRO_TYPES = {
    pa.null(): "string",  # a column without values in one part usually has text in others
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
    pa.time32("ms"): {"type": "int", "logicalType": "time-millis"},
    pa.time64("us"): {"type": "long", "logicalType": "time-micros"},
}
_PER_DAY = {"day": 1, "ms": 86_400_000, "us": 86_400_000_000}
_EPOCH = dt.date(1970, 1, 1)
_FIRST_DAY, _LAST_DAY = ((day - _EPOCH).days for day in (dt.date.min, dt.date.max))
_TIMESTAMP_TYPES = {"ms": "timestamp-millis", "us": "timestamp-micros", "ns": "timestamp-nanos"}
#: Types that replace the types that Avro lacks; a value that does not fit is an error.
_REPLACEMENT_TYPES = {
    pa.int8(): pa.int32(),
    pa.int16(): pa.int32(),
    pa.uint8(): pa.int32(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.int64(),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date64(): pa.date32(),
    pa.time32("s"): pa.time32("ms"),
    pa.time64("ns"): pa.time64("us"),
}


class _UnsupportedAvroType(ValueError):
    """Avro does not support a type or value."""

    advice = "convert it first"


class _UnsupportedAvroName(_UnsupportedAvroType):
    """Avro does not support the name of a column or field."""

    advice = "rename it"


def encode_avro(table: Any) -> EncodedFile:
    """Return a pandas, Polars or Arrow table as an Avro file; categories are written as values."""
    arrow = decode_categories(to_arrow(table, "Avro"), lambda kind: True)
    return EncodedFile(write_avro(arrow), arrow.num_rows, arrow)


def write_avro(table: pa.Table) -> bytes:
    """Return a table as an Avro file with deflate compression; equal tables give equal bytes.

    Raises
    ------
    DataError
        If Avro does not support the name, type, or a value of a column.
    MissingPackage
        If fastavro is not installed.

    Examples
    --------
    >>> data = write_avro(pa.table({"n": [1, None]}))
    >>> read_avro(data).to_pylist()
    [{'n': 1}, {'n': None}]
    """
    fastavro = need("fastavro", "avro")
    schema_fields, columns = [], []
    record_names: set[str] = set()
    for name, column in zip(table.column_names, table.columns, strict=True):
        try:
            supported = _find_supported_type(column.type)
            schema_fields.append(
                {
                    "name": _check_name(name),
                    "type": _make_nullable_schema(supported, [name], record_names),
                }
            )
            values = column.cast(supported).cast(_find_storage_type(supported))
            _check_years(values, supported)
            columns.append(values.to_pylist())
        except (_UnsupportedAvroType, pa.ArrowException) as error:
            reason = " ".join(str(error).split())[:200]
            advice = getattr(error, "advice", _UnsupportedAvroType.advice)
            raise DataError(name, f"Avro does not support it ({reason}); {advice}") from error
    schema = {"type": "record", "name": "row", "fields": schema_fields}
    # Not table.schema: its nullable flags may differ between parts.
    arrow_fields = [pa.field(field.name, field.type) for field in table.schema]
    arrow = pa.schema(arrow_fields, table.schema.metadata)
    details = {ARROW_SCHEMA: base64.b64encode(arrow.serialize().to_pybytes()).decode()}
    names = table.column_names
    records = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    # fastavro would choose a random marker, so equal tables would give different bytes.
    marker = hashlib.sha256(json.dumps([schema, details]).encode()).digest()[:16]
    file = io.BytesIO()
    parsed = fastavro.parse_schema(schema)
    fastavro.writer(file, parsed, records, "deflate", metadata=details, sync_marker=marker)
    return file.getvalue()


def _find_supported_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that replaces a type that Avro lacks; other types unchanged."""
    if pa.types.is_timestamp(kind) and kind.unit == "s":
        return pa.timestamp("ms", kind.tz)
    if pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(_find_supported_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _find_supported_type(field.type)) for field in kind])
    return _REPLACEMENT_TYPES.get(kind, kind)


def _find_storage_type(kind: pa.DataType) -> pa.DataType:
    """Return the integer type of temporal types; other types unchanged."""
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return pa.int64()
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return pa.int32()
    if pa.types.is_list(kind):
        return pa.list_(_find_storage_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _find_storage_type(field.type)) for field in kind])
    return kind


def _check_years(values: Any, kind: pa.DataType) -> None:
    """Check that times have years 1 to 9999, because readers make Python datetimes of them."""
    per_day = _PER_DAY.get("day" if pa.types.is_date32(kind) else getattr(kind, "unit", ""))
    if per_day is None or not (pa.types.is_date32(kind) or pa.types.is_timestamp(kind)):
        return
    ends = compute.min_max(values).as_py()
    if ends["min"] is not None and not (
        _FIRST_DAY * per_day <= ends["min"] and ends["max"] < (_LAST_DAY + 1) * per_day
    ):
        raise _UnsupportedAvroType("it has times outside the years 1 to 9999")


def _make_nullable_schema(kind: pa.DataType, path: list[str], record_names: set[str]) -> Any:
    """Return the Avro schema of a type; nullable, so that all parts have the same schema.

    ``path`` is the names of the column and of the fields that lead to the type. The names of its
    records are added to ``record_names``.
    """
    return ["null", _make_avro_schema(kind, path, record_names)]


def _make_avro_schema(kind: pa.DataType, path: list[str], record_names: set[str]) -> Any:
    if kind in _AVRO_TYPES:
        return _AVRO_TYPES[kind]
    if pa.types.is_timestamp(kind):
        return {
            "type": "long",
            "logicalType": ("" if kind.tz else "local-") + _TIMESTAMP_TYPES[kind.unit],
        }
    if pa.types.is_decimal128(kind) and kind.scale >= 0:
        digits = {"precision": kind.precision, "scale": kind.scale}
        return {"type": "bytes", "logicalType": "decimal", **digits}
    if pa.types.is_list(kind):
        items = _make_nullable_schema(kind.value_type, [*path, "item"], record_names)
        return {"type": "array", "items": items}
    if pa.types.is_struct(kind):
        fields = [
            {
                "name": _check_name(field.name),
                "type": _make_nullable_schema(field.type, [*path, field.name], record_names),
            }
            for field in kind
        ]
        # Avro requires a distinct name for each record type; "_" may also occur in a field's name.
        record_name = "row_" + "_".join(path)
        while record_name in record_names:
            record_name += "_"
        record_names.add(record_name)
        return {"type": "record", "name": record_name, "fields": fields}
    raise _UnsupportedAvroType(f"the type {kind}")


def _check_name(name: str) -> str:
    """Return a name that Avro supports, or raise."""
    if not _NAME.fullmatch(name):
        raise _UnsupportedAvroName(
            f"the name {name!r}; names consist of ASCII letters, digits and _, and do not begin "
            "with a digit"
        )
    return name


def read_avro(data: bytes) -> pa.Table:
    """Return the table in an Avro file.

    The types are those of the saved table; for a file of another program, those of
    :func:`hyperplane.dataframe.read`.

    Raises
    ------
    ValueError
        If the file is damaged or its values are not records.
    DataError
        If a value does not fit the type of its column without loss.
    MissingPackage
        If fastavro is not installed.
    """
    fastavro = need("fastavro", "avro")
    try:
        reader = fastavro.block_reader(io.BytesIO(data))
        schema = json.loads(reader.metadata["avro.schema"])
        fields, counts = parse_fields(schema), RecordCountCheck(schema)
        records: list[Any] = []
        for block in reader:
            counts.check(block.num_records, block.bytes_.getbuffer().nbytes)
            records.extend(block)
    except UnsupportedAvroSchema as error:
        raise ValueError(f"{error}; such Avro files cannot be loaded as a table") from error
    except (EOFError, IndexError, KeyError, OverflowError, TypeError, RecursionError) as error:
        raise ValueError(f"not a complete Avro file: {error!r}") from error
    if ARROW_SCHEMA in reader.metadata:
        arrow = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(reader.metadata[ARROW_SCHEMA])))
        columns = [
            pa.array(
                [record[field.name] for record in records], _find_supported_type(field.type)
            ).cast(field.type)
            for field in arrow
        ]
        return pa.table(columns, schema=arrow)
    return pa.table(
        [make_arrow_array(field, [record[field.name] for record in records]) for field in fields],
        names=[field.name for field in fields],
    )
