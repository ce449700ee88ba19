"""The size of Parquet data in memory, from its footer alone.

A footer says how many bytes each column takes uncompressed, but still encoded: a column of few
distinct values is stored as a dictionary and short codes, and the flights of 2013 take 7 MB so
against 51 MB in memory. The footer also says how many values there are and of which type. So a
column counts as its uncompressed size or as its values times their width, whichever is more; a
text is taken to be as long as the mean of the least and the greatest one, and an offset.
"""

from __future__ import annotations

from typing import Any

#: Bytes of a value in memory, by the physical type of its column.
WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 8}
#: Bytes that say where a text begins.
OFFSET = 8


def decoded_size(footer: Any) -> int:
    """Bytes in memory of the data that a footer describes.

    Parameters
    ----------
    footer : pyarrow.parquet.FileMetaData
        The footer of one file.
    """
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
    """Bytes in memory of one value of a column."""
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
