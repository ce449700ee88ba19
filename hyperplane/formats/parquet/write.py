"""Write tables as Parquet files and read them back."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from hyperplane.core.errors import DataError
from hyperplane.formats.base import EncodedFile
from hyperplane.formats.pandas_frames.to_arrow import decode_categories, one_line, to_arrow

if TYPE_CHECKING:
    import polars as pl

    from hyperplane.formats.pandas_frames.typed_table import TypedTable

#: Number of blocks of a sample of a column, and rows of each.
_SAMPLE_BLOCKS, _BLOCK_ROWS = 512, 8
#: Key of the metadata with the types of Arrow.
_SCHEMA_KEY = b"ARROW:schema"
#: Bytes of a dictionary at which pyarrow writes the other values without it.
_DICTIONARY_BYTES = 1 << 20


def encode_parquet(table: Any) -> EncodedFile:
    """Return a table as a Parquet file with page checksums."""
    # Parquet restores only categories of text; others come back as values.
    arrow = decode_categories(to_arrow(table, "Parquet"), lambda kind: not _is_text(kind))
    out = pa.BufferOutputStream()
    dictionaries: Any = [
        field.name
        for field, column in zip(arrow.schema, arrow.columns, strict=True)
        if not exceeds_dictionary(column)
    ]
    if len(dictionaries) == arrow.num_columns or _has_nested_columns(arrow.schema):
        dictionaries = True  # pyarrow names the leaves of nested columns differently
    # With page checksums hyperplane.load reports corrupted pages instead of wrong values.
    try:
        parquet.write_table(arrow, out, write_page_checksum=True, use_dictionary=dictionaries)
    except (pa.ArrowException, OSError) as error:  # OSError of decimals with a negative scale
        for name in arrow.column_names:
            try:
                parquet.write_table(arrow.select([name]), pa.BufferOutputStream())
            except (pa.ArrowException, OSError) as column_error:
                message = (
                    f"Parquet does not support it ({one_line(column_error)}); convert or drop it"
                )
                raise DataError(name, message) from error
        raise
    return EncodedFile(memoryview(out.getvalue()), arrow.num_rows, arrow)


def encode_typed_table(table: TypedTable) -> EncodedFile:
    """Return a Polars table as the Parquet file that its frame of pandas would be.

    Text is written from the views of Polars, without a copy, if this version of Arrow can do so.
    """
    arrow = table.to_arrow() if writes_views() else None
    if arrow is None:
        return encode_parquet(table.to_pandas())
    views, schema = arrow
    dictionaries: Any = [
        field.name
        for field in schema
        if not _exceeds_dictionary_of_polars(table.frame.get_column(field.name))
    ]
    if len(dictionaries) == views.num_columns:
        dictionaries = True
    # Without this schema, text would be read back as views.
    stored = base64.b64encode(schema.serialize().to_pybytes())
    out = pa.BufferOutputStream()
    with parquet.ParquetWriter(
        out,
        views.schema,
        use_dictionary=dictionaries,
        write_page_checksum=True,
        store_schema=False,
    ) as writer:
        writer.write_table(views)
        writer.add_key_value_metadata({**schema.metadata, _SCHEMA_KEY: stored})
    return EncodedFile(memoryview(out.getvalue()), views.num_rows, views, schema)


@cache
def writes_views() -> bool:
    """Return whether this version of Arrow writes views of text to Parquet, with metadata."""
    if not hasattr(parquet.ParquetWriter, "add_key_value_metadata"):
        return False
    try:
        views = pa.table({"text": pa.array(["a"], pa.string_view())})
        parquet.write_table(views, pa.BufferOutputStream(), store_schema=False)
    except (AttributeError, NotImplementedError, pa.ArrowException):
        return False
    return True


def exceeds_dictionary(column: pa.ChunkedArray) -> bool:
    """Return whether the distinct values of a column take twice the bytes of a dictionary, or more.

    A dictionary of such a column only costs time: columns of distinct times and floats took six to
    seven times longer. The number of distinct values is estimated from the pairs of equal values in
    a sample of blocks of rows, as if all values were equally frequent; otherwise it is lower.
    Blocks, because equal values may be adjacent; at random, because values may be periodic.

    Examples
    --------
    >>> exceeds_dictionary(pa.chunked_array([range(1_000_000)]))
    True
    >>> exceeds_dictionary(pa.chunked_array([[n % 100_000 for n in range(1_000_000)]]))
    False
    """
    chosen = _choose_rows(len(column))
    if chosen is None or pa.types.is_dictionary(column.type):
        return False
    return _is_beyond_dictionary(column.take(chosen))


def _exceeds_dictionary_of_polars(column: pl.Series) -> bool:
    """Return what :func:`exceeds_dictionary` returns for the same values in Arrow."""
    chosen = _choose_rows(len(column))
    if chosen is None:
        return False
    sample = column.gather(chosen)
    sample = sample.fill_nan(None) if sample.dtype.is_float() else sample
    return _is_beyond_dictionary(sample.to_arrow())


def _choose_rows(rows: int) -> np.ndarray[Any, Any] | None:
    """Return the rows of the sample; None if the column has too few."""
    if rows < 2 * _SAMPLE_BLOCKS * _BLOCK_ROWS:
        return None
    # A fixed seed, so that equal tables are equal files; no row twice.
    blocks = np.random.default_rng(0).choice(rows // _BLOCK_ROWS, _SAMPLE_BLOCKS, replace=False)
    return np.asarray((np.sort(blocks)[:, None] * _BLOCK_ROWS + range(_BLOCK_ROWS)).ravel())


def _is_beyond_dictionary(sample: Any) -> bool:
    present = len(sample) - sample.null_count
    if present <= len(sample) // 2:
        return False
    try:
        equal = present - pc.count_distinct(sample, mode="only_valid").as_py()
    except pa.ArrowNotImplementedError:
        return False
    distinct = present * (present - 1) / 2 / equal if equal else math.inf
    return distinct * sample.nbytes / len(sample) > 2 * _DICTIONARY_BYTES


def _has_nested_columns(schema: pa.Schema) -> bool:
    return any(pa.types.is_nested(kind) for kind in schema.types)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def decode_parquet(data: bytes) -> pa.Table:
    """Return the table in a Parquet file.

    Raises
    ------
    ValueError, pyarrow.ArrowException
        If the file is damaged.
    """
    try:
        table = parquet.read_table(io.BytesIO(data), page_checksum_verification=True)
    except pa.ArrowMemoryError as error:
        from hyperplane.formats.parquet.footers import MAX_ROWS_PER_BYTE

        rows = parquet.read_metadata(io.BytesIO(data)).num_rows
        if rows < MAX_ROWS_PER_BYTE * len(data):
            raise
        # A damaged footer may declare any number of rows.
        raise ValueError(f"its footer declares {rows} rows, too many for memory") from error
    rows = parquet.read_metadata(io.BytesIO(data)).num_rows
    if table.num_rows != rows:  # Arrow does not report missing rows
        raise ValueError(f"its footer declares {rows} rows, and it holds {table.num_rows}")
    return table


def read_columns(file: Any, columns: Sequence[str] | None) -> pa.Table:
    """Return columns of an opened Parquet file, with verified page checksums."""
    return parquet.read_table(
        file,
        columns=columns,
        use_threads=False,
        use_pandas_metadata=True,  # includes the index columns
        page_checksum_verification=True,
    )


def read_footer_schema(file: Any) -> pa.Schema:
    """Return the schema of a Parquet file; integers and booleans with nulls are ``nullable``."""
    from hyperplane.formats.parquet.footers import count_leaves

    metadata = parquet.read_metadata(file)
    schema, start = metadata.schema.to_arrow_schema(), 0
    for position, field in enumerate(schema):
        if pa.types.is_integer(field.type) or pa.types.is_boolean(field.type):
            missing = any(
                _may_have_nulls(metadata.row_group(n), start)
                for n in range(metadata.num_row_groups)
            )
            schema = schema.set(position, field.with_nullable(missing))
        start += count_leaves(field.type)
    return schema


def _may_have_nulls(group: Any, leaf: int) -> bool:
    """Return whether a column of a row group may have nulls, by its statistics."""
    statistics = group.column(leaf).statistics
    known = statistics is not None and statistics.has_null_count
    return bool(group.num_rows) and not (known and statistics.null_count == 0)
