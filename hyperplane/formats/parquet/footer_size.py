"""Estimation of the size of Parquet data in memory from the footer of the file.

A footer contains the uncompressed size of each column, but in its encoding: a column of few
distinct values is a dictionary with short codes. The nycflights data of 2013 has 7 MB encoded and
51 MB in memory. The size of a column is estimated as its uncompressed size or as the number of
values times their width, whichever is larger. The width of text is the mean length of the smallest
and the largest value, plus an offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hyperplane.core.units import format_bytes, plural
from hyperplane.formats.base import SizeEstimate
from hyperplane.formats.size_estimates import sample_evenly, scale_to_all
from hyperplane.objectstore.locations import File

#: Physical type of a column -> bytes of a value in memory.
WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 8}
#: Bytes of the offset of a text value.
OFFSET = 8
#: Maximum number of footers that are read; the result is scaled to all files.
SAMPLED_FOOTERS = 256


def estimate_files(files: Sequence[File]) -> SizeEstimate:
    """Estimate the size of Parquet files from the footers of some or all of them."""
    sampled = sample_evenly(files, SAMPLED_FOOTERS)
    with ThreadPoolExecutor(max_workers=min(16, len(sampled))) as pool:
        sizes = list(pool.map(_read_decoded_size, sampled))
    total = scale_to_all(sum(sizes), sampled, files)
    how = f"footers of {plural(len(sampled), 'Parquet file')}, {format_bytes(total)} in memory"
    return SizeEstimate(total, how)


def _read_decoded_size(file: File) -> int:
    from pyarrow import parquet

    with file.store.system.open(file.path, "rb") as opened:
        return estimate_decoded_size(parquet.ParquetFile(opened).metadata)


def estimate_decoded_size(footer: Any) -> int:
    """Estimate the bytes in memory of a file from its ``pyarrow.parquet.FileMetaData``."""
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    return sum(
        max(
            chunk.total_uncompressed_size,
            chunk.num_values * estimate_value_width(chunk, footer.schema, index),
        )
        for group in groups
        for index, chunk in ((index, group.column(index)) for index in range(group.num_columns))
    )


def estimate_value_width(chunk: Any, schema: Any, index: int) -> int:
    """Estimate the bytes in memory of one value of a column chunk."""
    statistics = chunk.statistics
    low = high = None
    if statistics is not None and statistics.has_min_max:
        low, high = statistics.min, statistics.max
    return estimate_width(chunk.physical_type, low, high, schema, index)


def estimate_width(physical: str, low: Any, high: Any, schema: Any, index: int) -> int:
    """Estimate the bytes in memory of one value of a column.

    Parameters
    ----------
    physical : str
        Physical type of the column.
    low, high : object
        Its smallest and largest value; None if unknown.
    schema : pyarrow.parquet.ParquetSchema
        The schema of the file.
    index : int
        The index of the leaf column.
    """
    if physical == "FIXED_LEN_BYTE_ARRAY":
        return int(schema.column(index).length)
    if physical != "BYTE_ARRAY":
        return WIDTHS[physical]
    lengths = [len(value) for value in (low, high) if hasattr(value, "__len__")]
    return OFFSET + (sum(lengths) // len(lengths) if lengths else 0)
