"""Estimation of the size of Parquet data in memory from the footer of the file.

A footer contains the uncompressed size of each column, but in its encoding: a column of few
distinct values is a dictionary with short codes. The nycflights data of 2013 has 7 MB encoded and
51 MB in memory. The size of a column is estimated as its uncompressed size or as the number of
values times their width, whichever is larger. The width of text is the mean length of the smallest
and the largest value, plus an offset.
"""

from __future__ import annotations

from typing import Any

#: Physical type of a column -> bytes of a value in memory.
WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 8}
#: Bytes of the offset of a text value.
OFFSET = 8


def decoded_size(footer: Any) -> int:
    """Estimated bytes in memory of a file, from its ``pyarrow.parquet.FileMetaData``."""
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    return sum(
        max(
            chunk.total_uncompressed_size,
            chunk.num_values * value_width(chunk, footer.schema, index),
        )
        for group in groups
        for index, chunk in ((index, group.column(index)) for index in range(group.num_columns))
    )


def value_width(chunk: Any, schema: Any, index: int) -> int:
    """Estimated bytes in memory of one value of a column."""
    kind = chunk.physical_type
    if kind == "FIXED_LEN_BYTE_ARRAY":
        return int(schema.column(index).length)
    if kind != "BYTE_ARRAY":
        return WIDTHS[kind]
    statistics = chunk.statistics
    if statistics is None or not statistics.has_min_max:
        return OFFSET
    lengths = [
        len(value) for value in (statistics.min, statistics.max) if hasattr(value, "__len__")
    ]
    return OFFSET + (sum(lengths) // len(lengths) if lengths else 0)
