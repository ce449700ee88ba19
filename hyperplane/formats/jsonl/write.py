"""Write tables and records as JSON lines and read them back with their types.

The types are recorded in the manifest of the folder, and inferred for a single file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from hyperplane.core.errors import DataError
from hyperplane.core.units import MAX_EXACT_FLOAT
from hyperplane.formats.base import EncodedFile
from hyperplane.formats.json_values import to_json
from hyperplane.formats.pandas_frames.to_arrow import to_text_table
from hyperplane.formats.records import encode_lines
from hyperplane.formats.text_columns import (
    build_integer_column,
    format_column,
    is_text,
    list_file_columns,
    parse_columns,
    read_in_blocks,
    value_type,
)

if TYPE_CHECKING:
    import pandas as pd


def encode_json_lines(table: Any) -> EncodedFile:
    """Return a table as a JSON lines file."""
    arrow = to_text_table(table, "JSON")
    return EncodedFile(to_json_lines(arrow), arrow.num_rows, arrow)


def decode_json_lines(data: bytes, schema: pa.Schema | None) -> Any:
    """Return the table in a file: with recorded types, or as pandas with inferred ones."""
    if schema is not None:
        return from_json_lines(data, schema)
    if data.strip():
        return parse_json_lines(data)
    import pandas as pd

    return pd.DataFrame()  # neither rows nor column names


def encode_json_records(items: Sequence[Any]) -> EncodedFile:
    """Return records as a JSON lines file."""
    return EncodedFile(encode_lines(items, lambda item, _: to_json(item, "item")), len(items))


def decode_json_records(data: bytes) -> list[Any]:
    """Return the records in a JSON lines file."""
    # Not splitlines, which also splits at line separators within JSON strings.
    return [json.loads(line) for line in data.decode().split("\n")[:-1]]


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
    from hyperplane.formats.polars_frames import as_polars

    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        kind = _find_json_type(column.type)
        if not _is_json_type(kind):
            columns.append(format_column(column, name, "JSON"))
            continue
        values = column.cast(kind) if kind != column.type else column
        _check_finite(values, name)
        columns.append(values)
    # Polars would replace an empty column name.
    frame = as_polars(pa.table(columns, names=[f"c{number}" for number in range(len(columns))]))
    frame.columns = list_file_columns(table.schema)
    return frame.write_ndjson().encode()


def _find_json_type(kind: pa.DataType) -> pa.DataType:
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
        or is_text(kind)
    )


def _check_finite(values: pa.ChunkedArray, name: str) -> None:
    """Raise DataError if a column contains infinity."""
    for array in values.chunks:
        for leaf in _list_leaf_arrays(array):
            if pa.types.is_floating(leaf.type) and pc.any(pc.is_inf(leaf)).as_py():
                message = "JSON does not support infinity; use missing values, or save as Parquet"
                raise DataError(name, message)


def _list_leaf_arrays(array: pa.Array) -> Sequence[pa.Array]:
    """Return the arrays at the lowest level of a nested array."""
    if pa.types.is_struct(array.type):
        return [leaf for inner in array.flatten() for leaf in _list_leaf_arrays(inner)]
    nested = pa.types.is_nested(array.type)
    return _list_leaf_arrays(array.flatten()) if nested else [array]


def from_json_lines(data: bytes, schema: pa.Schema) -> pa.Table:
    """Read JSON lines that :func:`to_json_lines` wrote.

    Raises
    ------
    pyarrow.ArrowException, ValueError
        If the data does not match the schema.
    """
    kinds = [_find_json_type(field.type) for field in schema]
    stored = [
        pa.string()
        if not _is_json_type(kind) or pa.types.is_null(kind)
        else _find_readable_type(kind)
        for kind in kinds
    ]
    fields = list(zip(list_file_columns(schema), stored, strict=True))
    if not data.strip():
        return schema.empty_table()
    parsed = read_in_blocks(
        lambda block: arrow_json.read_json(
            pa.BufferReader(data),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=block),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=pa.schema(fields), unexpected_field_behavior="error"
            ),
        ),
        data,
    )
    columns = [parsed.column(name) for name, _ in fields]
    return parse_columns(columns, schema)


def _find_readable_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that pyarrow can read from JSON for values of a type."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(_find_readable_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _find_readable_type(field.type)) for field in kind])
    return pa.string() if is_text(kind) else kind


def parse_json_lines(data: bytes) -> pd.DataFrame:
    r"""Parse JSON lines as a dataframe, without loss of digits.

    Columns of lists, of objects or of several types hold Python objects. Integers and fractions
    together are float64, if it represents all of them exactly.

    Raises
    ------
    ValueError
        If a line is not a JSON object.

    Examples
    --------
    >>> parse_json_lines(b'{"1": 9007199254740993}\n{"1": null}\n')["1"].to_list()
    [9007199254740993, <NA>]
    """
    import pandas as pd

    records = []
    for number, line in enumerate(data.decode().split("\n"), 1):
        if line.strip():
            record = json.loads(line)
            if not isinstance(record, dict):
                raise ValueError(f"line {number} is not a JSON object: {line[:60]!r}")
            records.append(record)
    names = list(dict.fromkeys(name for record in records for name in record))
    columns = {
        number: _infer_column([record.get(name) for record in records])
        for number, name in enumerate(names)
    }
    frame = pd.DataFrame(columns, index=pd.RangeIndex(len(records)))
    frame.columns = pd.Index(names, dtype="str")
    return frame


def _infer_column(values: Sequence[Any]) -> Any:
    """Return the values of a column in the dtype that holds them without loss."""
    import numpy as np
    import pandas as pd

    kinds = {type(value) for value in values if value is not None}
    missing = any(value is None for value in values)
    if kinds == {int}:
        return build_integer_column(values)
    if kinds == {bool}:
        dtype: Any = "boolean" if missing else "bool"
        return pd.array(list(values), dtype=dtype)
    if kinds == {float} or (kinds == {int, float} and all(map(_is_exact, values))):
        return np.array([np.nan if value is None else value for value in values], dtype="float64")
    objects = np.empty(len(values), dtype=object)
    objects[:] = list(values)
    column = pd.Series(objects, dtype=object)
    return column.astype("str") if kinds == {str} else column


def _is_exact(value: Any) -> bool:
    """Return whether float64 represents a value exactly."""
    return value is None or isinstance(value, float) or abs(value) <= MAX_EXACT_FLOAT
