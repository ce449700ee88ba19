"""Write tables as ORC files and read them back.

Values of Arrow types that ORC lacks are stored in another type. The Arrow schema is stored in an
attribute of the first column, so that reading restores the types; other programs ignore it.
"""

from __future__ import annotations

import base64
from typing import Any

import pyarrow as pa
from pyarrow import orc

from hyperplane.core.errors import DataError
from hyperplane.formats.base import EncodedFile
from hyperplane.formats.pandas_frames.to_arrow import decode_categories, one_line, to_arrow

#: Attribute of the first column that holds the Arrow schema.
ARROW_SCHEMA = b"hyperplane.arrow"
#: Types that ORC has.
_ORC_TYPES = {
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.large_binary(),
    pa.date32(),
}
#: Types that replace the types that ORC lacks; a value that does not fit is an error.
_REPLACEMENT_TYPES = {
    pa.null(): pa.string(),  # a column without values in one part usually has text in others
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.string_view(): pa.large_string(),
    pa.binary_view(): pa.large_binary(),
    pa.date64(): pa.date32(),
    pa.time32("s"): pa.int32(),
    pa.time32("ms"): pa.int32(),
    pa.time64("us"): pa.int64(),
    pa.time64("ns"): pa.int64(),
}


class _UnsupportedOrcType(ValueError):
    """ORC does not support a type."""


def encode_orc(table: Any) -> EncodedFile:
    """Return a table as an ORC file; equal tables give equal bytes.

    Categories are written as values.

    Raises
    ------
    DataError
        If ORC does not support the type or a value of a column.

    Examples
    --------
    >>> encoded = encode_orc(pa.table({"n": pa.array([1, None], pa.uint8())}))
    >>> decode_orc(encoded.data).schema
    n: uint8
    """
    arrow = decode_categories(to_arrow(table, "ORC"), lambda kind: True)
    if arrow.num_rows and not arrow.num_columns:
        raise DataError("obj", "ORC does not support rows without columns; write df.reset_index()")
    columns = []
    for name, column in zip(arrow.column_names, arrow.columns, strict=True):
        try:
            # In one chunk, as the bytes depend on the chunks.
            stored = column.cast(_find_stored_type(column.type)).combine_chunks()
            _restore(stored, column.type)
        except (_UnsupportedOrcType, pa.ArrowException) as error:
            message = f"ORC does not support it ({one_line(error)}); convert it first"
            raise DataError(name, message) from error
        columns.append(stored)
    fields = [
        pa.field(name, column.type)
        for name, column in zip(arrow.column_names, columns, strict=True)
    ]
    if fields:
        recorded = base64.b64encode(arrow.schema.serialize().to_pybytes())
        fields[0] = fields[0].with_metadata({ARROW_SCHEMA: recorded})
    out = pa.BufferOutputStream()
    orc.write_table(pa.table(columns, schema=pa.schema(fields)), out, compression="snappy")
    return EncodedFile(memoryview(out.getvalue()), arrow.num_rows, arrow)


def _find_stored_type(kind: pa.DataType) -> pa.DataType:
    """Return the type with which ORC stores values of a type; raise if there is none."""
    if kind in _ORC_TYPES:
        return kind
    if kind in _REPLACEMENT_TYPES:
        return _REPLACEMENT_TYPES[kind]
    if pa.types.is_timestamp(kind):
        return pa.timestamp("ns", None if kind.tz is None else "UTC")
    if pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_decimal128(kind) and kind.scale >= 0:
        return kind
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(_find_stored_type(kind.value_type))
    if pa.types.is_struct(kind) and kind.num_fields:
        return pa.struct([(field.name, _find_stored_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_find_stored_type(kind.key_type), _find_stored_type(kind.item_type))
    raise _UnsupportedOrcType(f"the type {getattr(kind, 'extension_name', kind)}")


def decode_orc(data: Any) -> pa.Table:
    """Return the table in an ORC file, with the types that it was written with.

    A column with values that do not fit its recorded type keeps the stored type: another program
    has changed the values, and pyarrow has copied the attribute with the schema.

    Raises
    ------
    pyarrow.ArrowException, ValueError
        If the file is damaged.
    """
    try:
        file = orc.ORCFile(pa.BufferReader(data))
        table = file.read()
    except OSError as error:
        raise ValueError(f"not a complete ORC file: {one_line(error)}") from error
    recorded = read_recorded_schema(file.schema)
    return table if recorded is None else _restore_fitting_types(table, recorded)


def _restore_fitting_types(table: pa.Table, recorded: pa.Schema) -> pa.Table:
    columns, fields = [], []
    for column, field in zip(table.columns, recorded, strict=True):
        try:
            restored = _restore(column, field.type)
        except pa.ArrowException:
            restored = column
        columns.append(restored)
        fields.append(field.with_type(restored.type))
    return pa.table(columns, schema=pa.schema(fields, recorded.metadata))


def read_recorded_schema(schema: pa.Schema) -> pa.Schema | None:
    """Return the Arrow schema in the attribute of the first column; None if there is none.

    None also if the columns are not as :func:`encode_orc` stores that schema: pyarrow copies the
    attribute when a program reads the file and writes other columns.
    """
    data = (schema.field(0).metadata or {}).get(ARROW_SCHEMA) if len(schema) else None
    if data is None:
        return None
    recorded = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(data)))
    if recorded.names != schema.names:
        return None
    stored = [_find_type_in_file(_find_stored_type(kind)) for kind in recorded.types]
    return recorded if stored == schema.types else None


def _find_type_in_file(kind: pa.DataType) -> pa.DataType:
    """Return the type that pyarrow reads from a file for a column of a stored type."""
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_list(kind):
        return pa.list_(_find_type_in_file(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _find_type_in_file(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_find_type_in_file(kind.key_type), _find_type_in_file(kind.item_type))
    return kind


def restore_types(table: pa.Table, recorded: pa.Schema) -> pa.Table:
    """Return a table with the types that it had before :func:`encode_orc` stored it.

    Raises
    ------
    DataError
        If a value does not fit its recorded type. Unlike :func:`decode_orc` a partition cannot
        keep the stored type then, as all partitions of a read have the types of its plan.
    """
    columns = []
    for column, field in zip(table.columns, recorded, strict=True):
        try:
            columns.append(_restore(column, field.type))
        except pa.ArrowException as error:
            message = (
                f"holds a value that is not {field.type}, its type in hyperplane.save "
                f"({one_line(error)}), so another program has changed the file; read it with "
                "hyperplane.load, or leave the column out with columns=[...]"
            )
            raise DataError(field.name, message) from error
    return pa.table(columns, schema=recorded)


def _restore(column: Any, kind: pa.DataType) -> Any:
    """Return a stored column with its original type."""
    if _has_null_type(kind):  # Arrow has no cast to the type null
        return pa.array(column.to_pylist(), kind)
    return column.cast(kind)


def _has_null_type(kind: pa.DataType) -> bool:
    """Return whether a type is null or has values of the type null."""
    inner = (kind.field(number).type for number in range(kind.num_fields))
    return bool(pa.types.is_null(kind) or any(map(_has_null_type, inner)))
