"""Tables as Avro files, and back.

The types of Arrow that a table had stand in the header beside Avro's own schema, as they do in
Parquet: so the zone of a time, small numbers and the index come back. Other tools pass over them.
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

from hyperplane.collections.frames.sources.avro_counts import RecordCountCheck
from hyperplane.collections.frames.sources.avro_schema import (
    ARROW_SCHEMA,
    UnsupportedAvroSchema,
    parse_fields,
)
from hyperplane.collections.frames.sources.avro_values import make_arrow_array
from hyperplane.errors import DataError
from hyperplane.optional import need

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN = {
    pa.null(): "string",  # which is what most columns hold that are empty in one part
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
_TIMES = {"ms": "timestamp-millis", "us": "timestamp-micros", "ns": "timestamp-nanos"}
#: What Avro has no type for, as the type with room for it.
_WIDER = {
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


class _NoForm(ValueError):
    """A type that Avro has no form for."""


def write_avro(table: pa.Table) -> bytes:
    """A table as an Avro file; the same table is the same bytes.

    Parameters
    ----------
    table : pyarrow.Table
        Its names are letters, digits and ``_``, as Avro's are. Categories are written as text.

    Returns
    -------
    bytes
        Packed with deflate, which every reader of Avro can undo.

    Raises
    ------
    DataError
        When a column has a name, a type or a value that Avro has no form for.
    MissingPackage
        When fastavro is not installed.

    Examples
    --------
    >>> made = write_avro(pa.table({"n": [1, None]}))
    >>> read_avro(made).to_pylist()
    [{'n': 1}, {'n': None}]
    """
    fastavro = need("fastavro", "avro")
    rows, columns, kept = [], [], []
    for name, column in zip(table.column_names, table.columns, strict=True):
        try:
            held = _without_categories(column.type)
            normal = _normal(held)
            rows.append({"name": _named(name), "type": _nullable(normal, [name])})
            values = column.cast(held).cast(normal).cast(_stored(normal))
            _check_years(values, normal)
            columns.append(values.to_pylist())
        except (_NoForm, pa.ArrowException) as error:
            said = " ".join(str(error).split())[:200]
            raise DataError(name, f"Avro has no form for it ({said}); convert it first") from error
        kept.append(pa.field(name, held))
    schema = {"type": "record", "name": "row", "fields": rows}
    arrow = pa.schema(kept, table.schema.metadata)
    details = {ARROW_SCHEMA: base64.b64encode(arrow.serialize().to_pybytes()).decode()}
    names = table.column_names
    records = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    # fastavro would draw it anew each time, and the same table would be another file.
    mark = hashlib.sha256(json.dumps([schema, details]).encode()).digest()[:16]
    file = io.BytesIO()
    parsed = fastavro.parse_schema(schema)
    fastavro.writer(file, parsed, records, "deflate", metadata=details, sync_marker=mark)
    return file.getvalue()


def _without_categories(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _normal(kind: pa.DataType) -> pa.DataType:
    """The type among those of Avro that takes the values of another."""
    if pa.types.is_timestamp(kind) and kind.unit == "s":
        return pa.timestamp("ms", kind.tz)
    if pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(_normal(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(one.name, _normal(one.type)) for one in kind])
    return _WIDER.get(kind, kind)


def _stored(kind: pa.DataType) -> pa.DataType:
    """Times as the numbers that they are stored as."""
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return pa.int64()
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return pa.int32()
    if pa.types.is_list(kind):
        return pa.list_(_stored(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(one.name, _stored(one.type)) for one in kind])
    return kind


def _check_years(values: Any, kind: pa.DataType) -> None:
    """Readers of Avro make Python's times of these, which have four digits for the year."""
    per_day = _PER_DAY.get("day" if pa.types.is_date32(kind) else getattr(kind, "unit", ""))
    if per_day is None or not (pa.types.is_date32(kind) or pa.types.is_timestamp(kind)):
        return
    ends = compute.min_max(values).as_py()
    if ends["min"] is not None and not (
        _FIRST_DAY * per_day <= ends["min"] and ends["max"] < (_LAST_DAY + 1) * per_day
    ):
        raise _NoForm("it has times outside of the years 1 to 9999")


def _nullable(kind: pa.DataType, path: list[str]) -> Any:
    """The type in a schema of Avro; all may be null, so that all parts have one schema."""
    return ["null", _type(kind, path)]


def _type(kind: pa.DataType, path: list[str]) -> Any:
    if kind in _PLAIN:
        return _PLAIN[kind]
    if pa.types.is_timestamp(kind):
        return {"type": "long", "logicalType": ("" if kind.tz else "local-") + _TIMES[kind.unit]}
    if pa.types.is_decimal128(kind) and kind.scale >= 0:
        digits = {"precision": kind.precision, "scale": kind.scale}
        return {"type": "bytes", "logicalType": "decimal", **digits}
    if pa.types.is_list(kind):
        return {"type": "array", "items": _nullable(kind.value_type, [*path, "item"])}
    if pa.types.is_struct(kind):
        inside = [
            {"name": _named(one.name), "type": _nullable(one.type, [*path, one.name])}
            for one in kind
        ]
        # A name of its own for each record, as Avro wants it.
        return {"type": "record", "name": "row_" + "_".join(path), "fields": inside}
    raise _NoForm(f"the type {kind}")


def _named(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise _NoForm("names in Avro are letters of a to z, digits and _, and begin with no digit")
    return name


def read_avro(data: bytes) -> pa.Table:
    """The table in an Avro file.

    Parameters
    ----------
    data : bytes
        All of the file.

    Returns
    -------
    pyarrow.Table
        With the types that it was written with; of a file of another program with those that
        :func:`hyperplane.dataframe.read` gives.

    Raises
    ------
    ValueError
        When it is damaged, or holds no records.
    DataError
        When a value does not fit the type of its column without loss.
    MissingPackage
        When fastavro is not installed.
    """
    fastavro = need("fastavro", "avro")
    try:
        reader = fastavro.block_reader(io.BytesIO(data))
        schema = json.loads(reader.metadata["avro.schema"])
        known, counts = parse_fields(schema), RecordCountCheck(schema)
        records: list[Any] = []
        for block in reader:
            counts.check(block.num_records, block.bytes_.getbuffer().nbytes)
            records.extend(block)
    except UnsupportedAvroSchema as error:
        raise ValueError(f"{error}; such Avro is no table") from error
    except (EOFError, IndexError, KeyError, OverflowError, TypeError, RecursionError) as error:
        raise ValueError(f"no whole Avro file: {error!r}") from error
    if ARROW_SCHEMA in reader.metadata:
        arrow = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(reader.metadata[ARROW_SCHEMA])))
        columns = [
            pa.array([record[one.name] for record in records], _normal(one.type)).cast(one.type)
            for one in arrow
        ]
        return pa.table(columns, schema=arrow)
    return pa.table(
        [make_arrow_array(one, [record[one.name] for record in records]) for one in known],
        names=[one.name for one in known],
    )
