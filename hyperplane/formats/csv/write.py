"""Write tables as CSV and read them back with their types.

The types are recorded in the manifest of the folder, and inferred for a single file. Other programs
read plain CSV: a missing value is an empty cell, and an empty text is two quotes. Texts that pandas
reads as missing, such as ``NA``, are in quotes, by which a single file is loaded as it was saved.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from packaging.version import Version
from pyarrow import csv

from hyperplane.core.errors import DataError
from hyperplane.core.units import MAX_EXACT_FLOAT
from hyperplane.formats.base import EncodedFile
from hyperplane.formats.csv.missing_values import PANDAS_MISSING
from hyperplane.formats.csv.quoted_texts import restore_quoted_texts
from hyperplane.formats.pandas_frames.to_arrow import to_text_table
from hyperplane.formats.text_columns import (
    TEXT,
    build_integer_column,
    format_column,
    is_text,
    join_texts,
    list_file_columns,
    parse_columns,
    read_in_blocks,
)

if TYPE_CHECKING:
    import pandas as pd

_INTEGER = r"[+-]?\d+"


def encode_csv(table: Any, separator: str) -> EncodedFile:
    """Return a table as a CSV file."""
    arrow = to_text_table(table, _get_format_name(separator))
    return EncodedFile(to_csv(arrow, separator), arrow.num_rows, arrow)


def decode_csv(data: bytes, schema: pa.Schema | None, separator: str) -> Any:
    """Return the table in a CSV file: with recorded types, or as pandas with inferred ones."""
    if schema is not None:
        return from_csv(data, schema, separator)
    if data.strip():
        return parse_csv(data, separator)
    import pandas as pd

    return pd.DataFrame()  # neither rows nor column names


def _get_format_name(separator: str) -> str:
    """Return the name of the format for messages."""
    return "TSV" if separator == "\t" else "CSV"


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
    format_name = _get_format_name(separator)
    header = _quote_cells(
        pa.chunked_array([list_file_columns(table.schema)]), separator
    ).to_pylist()
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        texts = format_column(column, name, format_name)
        if table.num_columns == 1 and column.null_count and pc.any(pc.equal(texts, "")).as_py():
            message = f"{format_name} with one column cannot tell empty text from missing values"
            raise DataError(name, f"{message}; fill the missing values, or save it as Parquet")
        # Formatted floats have "nan" for NaN, which is no text.
        may_seem_missing = PANDAS_MISSING if _holds_text(column.type) else ("",)
        columns.append(_quote_cells(texts, separator, may_seem_missing))
    if not columns:
        return b""
    # Readers skip empty lines.
    missing = '""' if len(columns) == 1 else ""
    lines = join_texts(*[pc.fill_null(column, missing) for column in columns], between=separator)
    rows = lines.to_pylist()
    return "\n".join([separator.join(header), *rows, ""]).encode()


def _quote_cells(
    texts: pa.ChunkedArray, separator: str, quoted: Sequence[str] = ("",)
) -> pa.ChunkedArray:
    """Return cells with quotes if CSV needs them, or if they are one of the ``quoted`` texts."""
    texts = texts.cast(TEXT)
    # Readers skip a line of blanks.
    marked = pc.match_substring_regex(texts, f'["\r\n{separator}]|^[ \t]+$')
    in_quotes = join_texts('"', pc.replace_substring(texts, '"', '""'), '"')
    is_quoted = pc.is_in(texts, pa.array(quoted, TEXT))
    return pc.if_else(pc.or_(marked, is_quoted), in_quotes, texts)


def has_lone_empty_text(table: pa.Table) -> bool:
    """Return whether a table of one column has empty text, the notation of its missing values."""
    if table.num_columns != 1 or not _holds_text(table.schema.field(0).type):
        return False
    return bool(pc.any(pc.equal(table.column(0).cast(TEXT), "")).as_py())


def _holds_text(kind: pa.DataType) -> bool:
    return is_text(kind) or pa.types.is_string_view(kind)


def from_csv(data: bytes, schema: pa.Schema, separator: str) -> pa.Table:
    """Read CSV that :func:`to_csv` wrote.

    Raises
    ------
    pyarrow.ArrowException, ValueError
        If the data does not match the schema.
    """
    if not len(schema) and not data.strip():
        return schema.empty_table()
    texts = read_in_blocks(
        lambda block: csv.read_csv(
            pa.BufferReader(data),
            read_options=csv.ReadOptions(use_threads=False, block_size=block),
            parse_options=csv.ParseOptions(
                delimiter=separator, newlines_in_values=True, ignore_empty_lines=False
            ),
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(list_file_columns(schema), TEXT),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        ),
        data,
    )
    columns = texts.columns
    if len(schema) == 1 and (schema.field(0).nullable or not is_text(schema.field(0).type)):
        columns = [pc.if_else(pc.equal(columns[0], ""), None, columns[0])]
    return parse_columns(columns, schema)


def parse_csv(data: bytes, separator: str) -> Any:
    r"""Parse CSV with the types that pandas infers, but without loss of digits.

    Integers with missing values, which pandas converts to floats, are ``Int64`` or ``UInt64``, or
    Python objects beyond 64 bits. Floats are exact, also with versions of pandas that round their
    last digit. Texts in quotes that :func:`to_csv` writes, such as ``"NA"``, are not missing.

    Examples
    --------
    >>> parse_csv(b"n,m\n9007199254740993,1\n,2\n", ",")["n"].to_list()
    [9007199254740993, <NA>]
    """
    import pandas as pd

    float_options: dict[str, Any] = {}
    if Version(pd.__version__) < Version("3.1"):  # newer versions always round-trip
        float_options["float_precision"] = "round_trip"

    def read(**options: Any) -> Any:
        return pd.read_csv(io.BytesIO(data), sep=separator, **float_options, **options)

    frame = read(low_memory=False)
    candidates = [
        position
        for position, dtype in enumerate(frame.dtypes)
        if dtype == "float64" and _may_be_integers(frame.iloc[:, position])
    ]
    if not candidates:
        return restore_quoted_texts(frame, data, separator)
    texts = read(usecols=candidates, dtype="str")
    for position, name in zip(candidates, texts.columns, strict=True):
        present = texts[name].dropna()
        if present.str.fullmatch(_INTEGER).all():
            values = [
                None if value != value else int(value) for value in texts[name].astype(object)
            ]
            frame.isetitem(position, build_integer_column(values))
    return restore_quoted_texts(frame, data, separator)


def _may_be_integers(column: pd.Series) -> bool:
    """Return whether a float column may have been integers with lost digits or missing values."""
    present = column.dropna()
    if not len(present) or not (present % 1 == 0).all():
        return False
    return len(present) < len(column) or bool((present.abs() >= MAX_EXACT_FLOAT).any())
