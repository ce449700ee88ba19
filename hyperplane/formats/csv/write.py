"""Write tables as CSV and JSON lines, and read them back with their types.

The types are recorded in the manifest of the folder. Other programs read plain CSV and JSON: in CSV
a missing value is an empty cell, and an empty text is two quotes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, json

from hyperplane.core.errors import DataError
from hyperplane.formats.text_columns import (
    TEXT,
    format_column,
    join_texts,
    parse_column,
    value_type,
)

#: Bytes parsed at once, and the most that pyarrow allows, for longer rows.
_BLOCK_BYTES, _MAX_BLOCK_BYTES = 1 << 22, 2**31 - 1


def file_column_names(schema: pa.Schema) -> list[str]:
    """Return the column names in a file; an index without a name is called ``index``."""
    taken = set(schema.names)
    return [
        "index" if name == "__index_level_0__" and "index" not in taken else name
        for name in schema.names
    ]


def to_csv(table: pa.Table, separator: str) -> bytes:
    r"""Return a table as CSV.

    Raises
    ------
    DataError
        If CSV does not support the type or a value of a column.

    Examples
    --------
    >>> to_csv(pa.table({"n": [1, None], "s": ["", None]}), ",")
    b'n,s\n1,""\n,\n'
    """
    form = "TSV" if separator == "\t" else "CSV"
    header = _quote_cells(
        pa.chunked_array([file_column_names(table.schema)]), separator
    ).to_pylist()
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        texts = format_column(column, name, form)
        if table.num_columns == 1 and column.null_count and pc.any(pc.equal(texts, "")).as_py():
            wrong = f"{form} with one column cannot tell empty text from missing values"
            raise DataError(name, f"{wrong}; fill the missing values, or save it as Parquet")
        columns.append(_quote_cells(texts, separator))
    if not columns:
        return b""
    # Readers skip empty lines.
    missing = '""' if len(columns) == 1 else ""
    lines = join_texts(*[pc.fill_null(column, missing) for column in columns], between=separator)
    rows = lines.to_pylist()
    return "\n".join([separator.join(header), *rows, ""]).encode()


def _quote_cells(texts: pa.ChunkedArray, separator: str) -> pa.ChunkedArray:
    """Return cells with quotes if CSV needs them, or if they are empty and not missing."""
    texts = texts.cast(TEXT)
    marked = pc.match_substring_regex(texts, f'["\r\n{separator}]')
    quoted = join_texts('"', pc.replace_substring(texts, '"', '""'), '"')
    return pc.if_else(pc.or_(marked, pc.equal(texts, "")), quoted, texts)


def from_csv(data: bytes, schema: pa.Schema, separator: str) -> pa.Table:
    """Read CSV that :func:`to_csv` wrote.

    Raises
    ------
    pyarrow.ArrowException, ValueError
        If the data does not match the schema.
    """
    texts = _read_in_blocks(
        lambda block: csv.read_csv(
            pa.BufferReader(data),
            read_options=csv.ReadOptions(use_threads=False, block_size=block),
            parse_options=csv.ParseOptions(
                delimiter=separator, newlines_in_values=True, ignore_empty_lines=False
            ),
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(file_column_names(schema), TEXT),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        ),
        data,
    )
    columns = texts.columns
    if len(schema) == 1 and (schema.field(0).nullable or not _is_text(schema.field(0).type)):
        columns = [pc.if_else(pc.equal(columns[0], ""), None, columns[0])]
    return _cast_columns(columns, schema)


def _read_in_blocks(read: Callable[[int], pa.Table], data: bytes) -> pa.Table:
    """Call ``read`` with a block size, and again with the largest if a row exceeds it."""
    try:
        return read(_BLOCK_BYTES)
    except pa.ArrowInvalid as error:
        if "straddl" not in str(error):
            raise
    return read(min(_MAX_BLOCK_BYTES, len(data) + 1))


def _is_text(kind: pa.DataType) -> bool:
    """Return whether the values of a type are text."""
    kind = value_type(kind)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def to_json_lines(table: pa.Table) -> bytes:
    r"""Return a table as JSON lines.

    Raises
    ------
    DataError
        If JSON does not support the type or a value of a column.

    Examples
    --------
    >>> to_json_lines(pa.table({"n": [1, None], "s": ["", None]}))
    b'{"n":1,"s":""}\n{"n":null,"s":null}\n'
    """
    from hyperplane.formats.pandas_frames.arrow_tables import as_polars

    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        kind = _json_type(column.type)
        if not _is_json_type(kind):
            columns.append(format_column(column, name, "JSON"))
            continue
        values = column.cast(kind) if kind != column.type else column
        _check_finite(values, name)
        # Polars would write its Null type in another way.
        columns.append(values.cast(pa.string()) if pa.types.is_null(kind) else values)
    # Polars would replace an empty column name.
    frame = as_polars(pa.table(columns, names=[f"c{place}" for place in range(len(columns))]))
    frame.columns = file_column_names(table.schema)
    return frame.write_ndjson().encode()


def _json_type(kind: pa.DataType) -> pa.DataType:
    """Return the type written to JSON; half floats become floats, as Polars and pyarrow require."""
    kind = value_type(kind)
    return pa.float32() if pa.types.is_float16(kind) else kind


def _is_json_type(kind: pa.DataType) -> bool:
    """Return whether JSON holds the values of a type natively."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _is_json_type(kind.value_type)
    if pa.types.is_struct(kind):
        return all(_is_json_type(field.type) for field in kind)
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_float32(kind)
        or pa.types.is_float64(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_null(kind)
        or _is_text(kind)
    )


def _check_finite(values: pa.ChunkedArray, name: str) -> None:
    """Raise DataError if a column contains infinity."""
    for array in values.chunks:
        for leaf in _leaf_arrays(array):
            if pa.types.is_floating(leaf.type) and pc.any(pc.is_inf(leaf)).as_py():
                wrong = "JSON does not support infinity; use missing values, or save as Parquet"
                raise DataError(name, wrong)


def _leaf_arrays(array: pa.Array) -> Sequence[pa.Array]:
    """Return the arrays at the lowest level of a nested array."""
    if pa.types.is_struct(array.type):
        return [leaf for inner in array.flatten() for leaf in _leaf_arrays(inner)]
    nested = pa.types.is_nested(array.type)
    return _leaf_arrays(array.flatten()) if nested else [array]


def from_json_lines(data: bytes, schema: pa.Schema) -> pa.Table:
    """Read JSON lines that :func:`to_json_lines` wrote.

    Raises
    ------
    pyarrow.ArrowException, ValueError
        If the data does not match the schema.
    """
    kinds = [_json_type(field.type) for field in schema]
    stored = [
        pa.string() if not _is_json_type(kind) or pa.types.is_null(kind) else _readable_type(kind)
        for kind in kinds
    ]
    fields = list(zip(file_column_names(schema), stored, strict=True))
    if not data.strip():
        return schema.empty_table()
    parsed = _read_in_blocks(
        lambda block: json.read_json(
            pa.BufferReader(data),
            read_options=json.ReadOptions(use_threads=False, block_size=block),
            parse_options=json.ParseOptions(
                explicit_schema=pa.schema(fields), unexpected_field_behavior="error"
            ),
        ),
        data,
    )
    columns = [parsed.column(name) for name, _ in fields]
    return _cast_columns(columns, schema)


def _readable_type(kind: pa.DataType) -> pa.DataType:
    """Return the type as which pyarrow reads the values from JSON."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(_readable_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _readable_type(field.type)) for field in kind])
    return pa.string() if _is_text(kind) else kind


def _cast_columns(columns: Sequence[Any], schema: pa.Schema) -> pa.Table:
    """Return a table with the columns cast to the types of the schema."""
    cast = [
        parse_column(column, field.type)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        else column.cast(value_type(field.type))
        for column, field in zip(columns, schema, strict=True)
    ]
    fields = [pa.field(field.name, column.type) for field, column in zip(schema, cast, strict=True)]
    return pa.table(cast, schema=pa.schema(fields, schema.metadata))
