"""Read Parquet footers in parallel: schemas, statistics and sizes of row groups."""

from __future__ import annotations

import decimal
import math
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from pyarrow import parquet

from hyperplane.core.errors import ReadError
from hyperplane.formats.filters import ColumnStatistics
from hyperplane.formats.parquet.footer_size import estimate_value_width
from hyperplane.formats.parquet.index_ranges import IndexRange, find_index_range
from hyperplane.formats.reader import READER_THREADS, FileUrls, translate_read_errors
from hyperplane.objectstore.locations import File

#: Maximum plausible rows per byte of a file (equal rows: 500 written by pyarrow, 36,000 by Polars
#: in a row group of 20 million), and a number of rows that is accepted without this check.
MAX_ROWS_PER_BYTE, _MAX_UNCHECKED_ROWS = 100_000, 1 << 30
#: Arrow types of logical types that Parquet stores as fixed-size bytes.
_LOGICAL_TYPES = {"UUID": pa.uuid(), "INTERVAL": pa.month_day_nano_interval()}


@dataclass(frozen=True)
class ParquetFooter:
    """The footer of one Parquet file."""

    file: File
    metadata: Any

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema, with UUIDs and intervals that pyarrow reads as bytes."""
        schema = self.metadata.schema.to_arrow_schema()
        if not any(map(pa.types.is_fixed_size_binary, schema.types)):
            return schema
        fields, leaf = [], 0
        for entry in schema:
            kind = entry.type
            if pa.types.is_fixed_size_binary(kind):
                column = self.metadata.schema.column(leaf)
                # Intervals exist only among the older converted types.
                column_types = column.logical_type.type, column.converted_type
                kind = next(
                    (
                        _LOGICAL_TYPES[column_type]
                        for column_type in column_types
                        if column_type in _LOGICAL_TYPES
                    ),
                    kind,
                )
            fields.append(entry.with_type(kind))
            leaf += count_leaves(entry.type)
        return pa.schema(fields, schema.metadata)

    @cached_property
    def index(self) -> IndexRange | None:
        """The named index that exists only in the pandas metadata, or None."""
        return find_index_range(self.metadata)

    @property
    def interval_columns(self) -> frozenset[str]:
        """The columns that contain month intervals, also inside lists and structs."""
        schema = self.metadata.schema.to_arrow_schema()
        if not any(map(_has_fixed_bytes, schema.types)):
            return frozenset()
        get_column = self.metadata.schema.column
        return frozenset(
            name
            for name, numbers in map_leaves(schema).items()
            if any(get_column(number).converted_type == "INTERVAL" for number in numbers)
        )


def _has_fixed_bytes(kind: pa.DataType) -> bool:
    inner = (kind.field(index).type for index in range(kind.num_fields))
    return pa.types.is_fixed_size_binary(kind) or any(map(_has_fixed_bytes, inner))


def read_footers(files: Sequence[File]) -> tuple[list[ParquetFooter], list[ReadError]]:
    """Return the footers of the files, and an error for each file that has no valid one."""
    with ThreadPoolExecutor(min(READER_THREADS, max(1, len(files)))) as pool:
        results = list(pool.map(_try_read, files))
    footers = [result for result in results if isinstance(result, ParquetFooter)]
    return footers, [result for result in results if isinstance(result, ReadError)]


def _try_read(file: File) -> ParquetFooter | ReadError:
    try:
        with translate_read_errors(FileUrls((file.url,))):
            if file.store.local:
                return _check_row_count(ParquetFooter(file, parquet.read_metadata(file.path)))
            with file.store.system.open(file.path, "rb") as opened:
                return _check_row_count(ParquetFooter(file, parquet.read_metadata(opened)))
    except ReadError as error:
        return error


def _check_row_count(footer: ParquetFooter) -> ParquetFooter:
    """Return the footer; raise ReadError if its row count would exhaust memory in Polars."""
    rows, size = footer.metadata.num_rows, footer.file.size
    if rows > max(_MAX_UNCHECKED_ROWS, MAX_ROWS_PER_BYTE * size):
        message = (
            f"its footer declares {rows} rows, more than {size} bytes can contain; it is damaged"
        )
        raise ReadError(footer.file.url, message)
    return footer


def map_leaves(schema: pa.Schema) -> dict[str, list[int]]:
    """Return the indexes of the leaf columns of each column."""
    leaves, start = {}, 0
    for entry in schema:
        count = count_leaves(entry.type)
        leaves[entry.name] = list(range(start, start + count))
        start += count
    return leaves


def count_leaves(kind: pa.DataType) -> int:
    """Return the number of leaf columns of a type."""
    if isinstance(kind, pa.BaseExtensionType):  # such as pandas intervals, which have two leaves
        return count_leaves(kind.storage_type)
    inner = [kind.field(index).type for index in range(kind.num_fields)]
    return sum(map(count_leaves, inner)) if inner else 1


def get_statistics(
    group: Any, leaf: int, kind: pl.DataType, stored_type: pa.DataType
) -> ColumnStatistics:
    """Return the statistics of a flat column of a row group, as values of the data set.

    Parameters
    ----------
    group : pyarrow.parquet.RowGroupMetaData
        The row group.
    leaf : int
        The index of the leaf column.
    kind : polars.DataType
        The type of the column in the data set.
    stored_type : pyarrow.DataType
        Its type in the file, which gives the unit of durations in the statistics.
    """
    chunk = group.column(leaf)
    statistics = chunk.statistics
    if statistics is None:
        return ColumnStatistics(None, None, None, group.num_rows)
    nulls = statistics.null_count if statistics.has_null_count else None
    # pyarrow returns times of day in microseconds, so that nanoseconds are cut off.
    if not statistics.has_min_max or stored_type == pa.time64("ns"):
        return ColumnStatistics(None, None, nulls, group.num_rows)
    low, high = (
        _to_comparable(value, kind, stored_type) for value in (statistics.min, statistics.max)
    )
    if isinstance(low, float) and (math.isnan(low) or math.isnan(high)):
        low = high = None
    elif isinstance(statistics.min, decimal.Decimal) and isinstance(low, float):
        # Conversion of decimals to floats rounds, so widen the bounds by one float.
        low, high = math.nextafter(low, -math.inf), math.nextafter(high, math.inf)
    return ColumnStatistics(low, high, nulls, group.num_rows)


def _to_comparable(value: Any, kind: pl.DataType, stored_type: pa.DataType) -> Any:
    if isinstance(kind, pl.Datetime):
        stamp = pd.Timestamp(value)
        return stamp if kind.time_zone is None else stamp.tz_convert(kind.time_zone)
    if isinstance(kind, pl.Duration):
        if isinstance(value, int) and pa.types.is_duration(stored_type):
            return pd.Timedelta(np.timedelta64(value, stored_type.unit))
        return pd.Timedelta(value)
    if pa.types.is_float16(stored_type):
        return float(np.frombuffer(value, "<f2")[0]) if isinstance(value, bytes) else float(value)
    return float(value) if kind.is_float() else value


def find_ordered_categories(schema: pa.Schema) -> set[str]:
    """Return the columns that are ordered dictionaries of text."""
    return {
        entry.name
        for entry in schema
        if pa.types.is_dictionary(entry.type)
        and entry.type.ordered
        and (
            pa.types.is_string(entry.type.value_type)
            or pa.types.is_large_string(entry.type.value_type)
        )
    }


def read_categories(
    footers: Sequence[ParquetFooter], names: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """Return the ordered categories of columns that have the same ones in all row groups.

    Raises
    ------
    ReadError
        If a file cannot be read.
    """
    selected = sorted(names)
    if not selected:
        return {}
    with ThreadPoolExecutor(min(READER_THREADS, len(footers))) as pool:
        all_categories = [
            categories
            for group_categories in pool.map(
                lambda footer: _read_categories(footer, selected), footers
            )
            for categories in group_categories
        ]
    same = {name: {categories[name] for categories in all_categories} for name in selected}
    return {name: values.pop() for name, values in same.items() if len(values) == 1}


def _read_categories(footer: ParquetFooter, names: list[str]) -> list[dict[str, tuple[str, ...]]]:
    """Return the categories of each row group."""
    system, file = footer.file.store.system, footer.file
    categories_by_group = []
    with translate_read_errors(FileUrls((file.url,))), system.open(file.path, "rb") as opened:
        reader = parquet.ParquetFile(opened, metadata=footer.metadata)
        for number in range(footer.metadata.num_row_groups):
            if footer.metadata.row_group(number).num_rows:
                # Reading one row suffices: the dictionary page precedes the rows.
                rows = next(reader.iter_batches(1, row_groups=[number], columns=names))
                categories_by_group.append(
                    {n: tuple(rows.column(n).dictionary.to_pylist()) for n in names}
                )
    return categories_by_group


def may_have_nulls(footer: ParquetFooter, leaf: int) -> bool:
    """Whether a flat column may contain nulls."""
    metadata = footer.metadata
    if metadata.schema.column(leaf).max_definition_level == 0:
        return False
    groups = (metadata.row_group(index) for index in range(metadata.num_row_groups))
    return any(group.num_rows and _count_nulls(group.column(leaf)) != 0 for group in groups)


def _count_nulls(chunk: Any) -> int | None:
    statistics = chunk.statistics
    known = statistics is not None and statistics.has_null_count
    return statistics.null_count if known else None


def estimate_memory(group: Any, leaf: int, parquet_schema: Any) -> int:
    """Return the estimated bytes in memory of a leaf column of a row group."""
    chunk = group.column(leaf)
    nbytes = int(chunk.num_values) * estimate_value_width(chunk, parquet_schema, leaf)
    is_text = chunk.physical_type == "BYTE_ARRAY"
    return max(int(chunk.total_uncompressed_size), nbytes) if is_text else nbytes
