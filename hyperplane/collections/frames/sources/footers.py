"""Footers of Parquet files: what is in the row groups, asked of many files at once."""

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

from hyperplane.collections.frames.sources.filters import ColumnStatistics
from hyperplane.collections.frames.sources.index_ranges import IndexRange, find_index_range
from hyperplane.collections.frames.sources.reader import translate_read_errors
from hyperplane.errors import ReadError
from hyperplane.sizing.footers import OFFSET, WIDTHS
from hyperplane.stores.places import File

#: Threads that read footers.
READER_THREADS = 16
#: More rows than a byte of a file has where all rows are equal: 500 of pyarrow, 36,000 of Polars
#: in a row group of 20 million. Fewer rows than the second number are no question of memory.
MAX_ROWS_PER_BYTE, _MAX_UNCHECKED_ROWS = 100_000, 1 << 30
#: Arrow's types of what Parquet stores as bytes of a fixed number.
_LOGICAL_TYPES = {"UUID": pa.uuid(), "INTERVAL": pa.month_day_nano_interval()}


@dataclass(frozen=True)
class ParquetFooter:
    """One file and what its footer says."""

    file: File
    metadata: Any

    @property
    def schema(self) -> pa.Schema:
        """The columns with their Arrow types.

        Of what other writers call UUIDs and intervals pyarrow makes bytes.
        """
        schema = self.metadata.schema.to_arrow_schema()
        if not any(map(pa.types.is_fixed_size_binary, schema.types)):
            return schema
        fields, leaf = [], 0
        for entry in schema:
            kind = entry.type
            if pa.types.is_fixed_size_binary(kind):
                column = self.metadata.schema.column(leaf)
                # Intervals have a name in the older of the two lists of types only.
                types_named = column.logical_type.type, column.converted_type
                kind = next(
                    (_LOGICAL_TYPES[one] for one in types_named if one in _LOGICAL_TYPES), kind
                )
            fields.append(entry.with_type(kind))
            leaf += count_leaves(entry.type)
        return pa.schema(fields, schema.metadata)

    @cached_property
    def index(self) -> IndexRange | None:
        """The named index that is in the metadata and in no column."""
        return find_index_range(self.metadata)

    @property
    def with_intervals(self) -> frozenset[str]:
        """The columns that hold intervals of months, also within lists and records."""
        schema = self.metadata.schema.to_arrow_schema()
        if not any(map(_has_fixed_bytes, schema.types)):
            return frozenset()
        types_named = self.metadata.schema.column
        return frozenset(
            name
            for name, numbers in map_leaves(schema).items()
            if any(types_named(number).converted_type == "INTERVAL" for number in numbers)
        )


def _has_fixed_bytes(kind: pa.DataType) -> bool:
    inner = (kind.field(index).type for index in range(kind.num_fields))
    return pa.types.is_fixed_size_binary(kind) or any(map(_has_fixed_bytes, inner))


@dataclass(frozen=True)
class _FileUrls:
    urls: tuple[str, ...]


def read_footers(files: Sequence[File]) -> tuple[list[ParquetFooter], list[ReadError]]:
    """Footers of all files that have one, and what is wrong with the others."""
    with ThreadPoolExecutor(min(READER_THREADS, max(1, len(files)))) as pool:
        found = list(pool.map(_try_read, files))
    footers = [one for one in found if isinstance(one, ParquetFooter)]
    return footers, [one for one in found if isinstance(one, ReadError)]


def _try_read(file: File) -> ParquetFooter | ReadError:
    try:
        with translate_read_errors(_FileUrls((file.url,))):
            if file.store.local:
                return _check_row_count(ParquetFooter(file, parquet.read_metadata(file.path)))
            with file.store.system.open(file.path, "rb") as opened:
                return _check_row_count(ParquetFooter(file, parquet.read_metadata(opened)))
    except ReadError as error:
        return error


def _check_row_count(footer: ParquetFooter) -> ParquetFooter:
    """The footer, unless it says so many rows that Polars, reserving memory, ends the process."""
    rows, size = footer.metadata.num_rows, footer.file.size
    if rows > max(_MAX_UNCHECKED_ROWS, MAX_ROWS_PER_BYTE * size):
        wrong = f"its footer says {rows} rows, which a file of {size} bytes cannot hold"
        raise ReadError(footer.file.url, wrong)
    return footer


def map_leaves(schema: pa.Schema) -> dict[str, list[int]]:
    """The numbers of the leaf columns that each column is stored in."""
    found, start = {}, 0
    for entry in schema:
        count = count_leaves(entry.type)
        found[entry.name] = list(range(start, start + count))
        start += count
    return found


def count_leaves(kind: pa.DataType) -> int:
    """How many leaf columns a column of a type is stored in."""
    if isinstance(kind, pa.BaseExtensionType):  # such as intervals of pandas, of two ends
        return count_leaves(kind.storage_type)
    inner = [kind.field(index).type for index in range(kind.num_fields)]
    return sum(map(count_leaves, inner)) if inner else 1


def get_statistics(
    group: Any, leaf: int, kind: pl.DataType, stored_type: pa.DataType
) -> ColumnStatistics:
    """What a row group says of one column that is not nested.

    Parameters
    ----------
    group : pyarrow.parquet.RowGroupMetaData
        The row group.
    leaf : int
        The number of the column.
    kind : polars.DataType
        The type of the column in the data set.
    held : pyarrow.DataType
        Its type in the file, in whose unit the statistics of durations are.
    """
    chunk = group.column(leaf)
    statistics = chunk.statistics
    if statistics is None:
        return ColumnStatistics(None, None, None, group.num_rows)
    nulls = statistics.null_count if statistics.has_null_count else None
    if not statistics.has_min_max:
        return ColumnStatistics(None, None, nulls, group.num_rows)
    low, high = (
        _comparable(value, kind, stored_type) for value in (statistics.min, statistics.max)
    )
    if isinstance(low, float) and (math.isnan(low) or math.isnan(high)):
        low = high = None
    elif isinstance(statistics.min, decimal.Decimal) and isinstance(low, float):
        # As floats the values may be the next ones up or down.
        low, high = math.nextafter(low, -math.inf), math.nextafter(high, math.inf)
    return ColumnStatistics(low, high, nulls, group.num_rows)


def _comparable(value: Any, kind: pl.DataType, stored_type: pa.DataType) -> Any:
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
    """The columns that are words in an order of their own."""
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
    found: Sequence[ParquetFooter], names: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """The words of some columns in their order, where these are the same in all row groups.

    Raises
    ------
    ReadError
        When a file cannot be read.
    """
    wanted = sorted(names)
    if not wanted:
        return {}
    with ThreadPoolExecutor(min(READER_THREADS, len(found))) as pool:
        each = [
            one
            for many in pool.map(lambda footer: _read_categories(footer, wanted), found)
            for one in many
        ]
    same = {name: {one[name] for one in each} for name in wanted}
    return {name: values.pop() for name, values in same.items() if len(values) == 1}


def _read_categories(footer: ParquetFooter, names: list[str]) -> list[dict[str, tuple[str, ...]]]:
    """The words of each row group."""
    system, file = footer.file.store.system, footer.file
    made = []
    with translate_read_errors(_FileUrls((file.url,))), system.open(file.path, "rb") as opened:
        reader = parquet.ParquetFile(opened, metadata=footer.metadata)
        for number in range(footer.metadata.num_row_groups):
            if footer.metadata.row_group(number).num_rows:
                # One row is enough: the page of words comes before the rows.
                rows = next(reader.iter_batches(1, row_groups=[number], columns=names))
                made.append({n: tuple(rows.column(n).dictionary.to_pylist()) for n in names})
    return made


def may_have_nulls(footer: ParquetFooter, leaf: int) -> bool:
    """Whether a column that is not nested may lack values."""
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
    """Bytes in memory of one leaf column of a row group, about."""
    chunk = group.column(leaf)
    kind, values = chunk.physical_type, int(chunk.num_values)
    if kind == "FIXED_LEN_BYTE_ARRAY":
        return values * int(parquet_schema.column(leaf).length)
    if kind == "BYTE_ARRAY":
        length = OFFSET + _estimate_text_length(chunk.statistics)
        return max(int(chunk.total_uncompressed_size), values * length)
    return values * WIDTHS[kind]


def _estimate_text_length(statistics: Any) -> int:
    """A text is taken to be as long as the mean of the least and the greatest one."""
    if statistics is None or not statistics.has_min_max:
        return 0
    ends = [end for end in (statistics.min, statistics.max) if hasattr(end, "__len__")]
    return sum(map(len, ends)) // len(ends) if ends else 0
