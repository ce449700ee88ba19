"""Read Parquet footers in parallel: schemas, statistics and sizes of row groups."""

from __future__ import annotations

import decimal
import math
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from pyarrow import parquet
from pyarrow.fs import LocalFileSystem

from hyperplane.core.errors import ReadError
from hyperplane.formats.filters import ColumnStatistics
from hyperplane.formats.parquet.footer_size import estimate_width
from hyperplane.formats.parquet.index_ranges import IndexRange, LostRange, find_index_range
from hyperplane.formats.reader import READER_THREADS, FileUrls, translate_read_errors
from hyperplane.objectstore.locations import File

#: Maximum plausible rows per byte of a file (equal rows: 500 written by pyarrow, 36,000 by Polars
#: in a row group of 20 million), and a number of rows that is accepted without this check.
MAX_ROWS_PER_BYTE, _MAX_UNCHECKED_ROWS = 100_000, 1 << 30
_LOCAL = LocalFileSystem()
#: Arrow types of logical types that Parquet stores as fixed-size bytes.
_LOGICAL_TYPES = {"UUID": pa.uuid(), "INTERVAL": pa.month_day_nano_interval()}


#: Number of footers whose reading is timed together, and seconds of one in the page cache.
_TIMED_FILES, _CACHED_SECONDS = 16, 0.002
#: Newest schemas of other files with which that of a file is compared.
_COMPARED_LAYOUTS = 4


class ChunkStatistics(NamedTuple):
    """What the footer of a file says about one leaf column of a row group.

    Parameters
    ----------
    memory : int
        Estimated bytes in memory.
    low, high : object
        Minimum and maximum, as pyarrow returns them; None if unknown.
    nulls : int, optional
        Number of nulls; None if unknown.
    """

    memory: int
    low: Any
    high: Any
    nulls: int | None


class StoredRowGroup(NamedTuple):
    """The rows of a row group, and the statistics of its leaf columns by their indexes."""

    rows: int
    chunks: Mapping[int, ChunkStatistics]


@dataclass(frozen=True)
class FileLayout:
    """The columns of a file.

    Parameters
    ----------
    schema : pyarrow.Schema
        With UUIDs and intervals that pyarrow reads as bytes.
    leaves : mapping of str to sequence of int
        Indexes of the leaf columns of each column.
    interval_columns : frozenset of str
        The columns that contain month intervals, also inside lists and structs.
    is_certain : bool
        Whether it follows from the schema that pyarrow reads, because no column has bytes of a
        fixed length, which may be UUIDs or intervals in one file and not in the next.
    """

    schema: pa.Schema
    leaves: Mapping[str, Sequence[int]]
    interval_columns: frozenset[str]
    is_certain: bool

    def equals(self, other: FileLayout) -> bool:
        """Whether two files have the same columns, without regard to metadata of the schema."""
        return self is other or (
            self.interval_columns == other.interval_columns and self.schema.equals(other.schema)
        )


@dataclass(frozen=True)
class ParquetFooter:
    """The footer of one Parquet file.

    pyarrow's own object takes ten times the memory, 20 KB for twelve columns, so it is not kept.

    Parameters
    ----------
    file : File
        The file.
    rows : int
        Number of rows.
    layout : FileLayout
        The columns; files with the same ones may share this object.
    index : IndexRange, LostRange or None
        The named index that exists only in the pandas metadata.
    row_groups : tuple of StoredRowGroup
        In order.
    """

    file: File
    rows: int
    layout: FileLayout
    index: IndexRange | LostRange | None
    row_groups: tuple[StoredRowGroup, ...]


def _make_layout(metadata: Any, stored: pa.Schema) -> FileLayout:
    """Return the columns of a file whose Arrow schema in pyarrow is ``stored``."""
    leaves = map_leaves(stored)
    if not any(map(_has_fixed_bytes, stored.types)):
        return FileLayout(stored, leaves, frozenset(), is_certain=True)
    get_column = metadata.schema.column
    intervals = frozenset(
        name
        for name, numbers in leaves.items()
        if any(get_column(number).converted_type == "INTERVAL" for number in numbers)
    )
    return FileLayout(_add_logical_types(metadata, stored), leaves, intervals, is_certain=False)


def _add_logical_types(metadata: Any, stored: pa.Schema) -> pa.Schema:
    """Return the schema with UUIDs and intervals, which pyarrow reads as bytes."""
    fields, leaf = [], 0
    for entry in stored:
        kind = entry.type
        if pa.types.is_fixed_size_binary(kind):
            column = metadata.schema.column(leaf)
            # Intervals exist only among the older converted types.
            column_types = column.logical_type.type, column.converted_type
            kind = next(
                (_LOGICAL_TYPES[each] for each in column_types if each in _LOGICAL_TYPES), kind
            )
        fields.append(entry.with_type(kind))
        leaf += count_leaves(entry.type)
    return pa.schema(fields, stored.metadata)


def _has_fixed_bytes(kind: pa.DataType) -> bool:
    inner = (kind.field(index).type for index in range(kind.num_fields))
    return pa.types.is_fixed_size_binary(kind) or any(map(_has_fixed_bytes, inner))


def read_footers(
    files: Sequence[File], names: Collection[str] | None
) -> tuple[list[ParquetFooter], list[ReadError]]:
    """Return the footers of the files, and an error for each file that has no valid one.

    Parameters
    ----------
    files : sequence of File
        The files.
    names : collection of str, optional
        The columns whose statistics are needed; all by default.
    """
    read = partial(_try_read, names=names, layouts=[])
    results: list[ParquetFooter | ReadError] = []
    # One thread reads files in the page cache faster than many that wait for Python's lock. Threads
    # help where each request waits, such as a store, a disk or a mounted file system. The first
    # files also load libraries.
    slow = 0
    while files and files[0].store.local and slow < 2:
        timed, files = files[:_TIMED_FILES], files[_TIMED_FILES:]
        began = time.perf_counter()
        results += map(read, timed)
        seconds = (time.perf_counter() - began) / len(timed)
        slow = slow + 1 if seconds > _CACHED_SECONDS else 0
    if files:
        with ThreadPoolExecutor(min(READER_THREADS, len(files))) as pool:
            results += pool.map(read, files)
    footers = [result for result in results if isinstance(result, ParquetFooter)]
    return footers, [result for result in results if isinstance(result, ReadError)]


def _try_read(
    file: File, names: Collection[str] | None, layouts: list[FileLayout]
) -> ParquetFooter | ReadError:
    """Return the footer of a file; ``layouts`` are those of other files, of any thread."""
    try:
        with translate_read_errors(FileUrls((file.url,))):
            metadata = _read_metadata(file)
            stored = metadata.schema.to_arrow_schema()
            known = (each for each in layouts[-_COMPARED_LAYOUTS:] if each.schema.equals(stored))
            layout = next(known, None)
            if layout is None:
                layout = _make_layout(metadata, stored)
                if layout.is_certain:
                    layouts.append(layout)
            return _make_footer(file, metadata, layout, names)
    except ReadError as error:
        return error


def _read_metadata(file: File) -> Any:
    """Return the metadata; raise ReadError if its row count would exhaust memory in Polars."""
    if file.store.local:
        # With the file system, pyarrow does not have to find out what the path means.
        metadata = parquet.read_metadata(file.path, filesystem=_LOCAL)
    else:
        with file.store.system.open(file.path, "rb") as opened:
            metadata = parquet.read_metadata(opened)
    rows = metadata.num_rows
    if rows > max(_MAX_UNCHECKED_ROWS, MAX_ROWS_PER_BYTE * file.size):
        message = (
            f"its footer declares {rows} rows, more than {file.size} bytes can contain; "
            "it is damaged"
        )
        raise ReadError(file.url, message)
    return metadata


def _make_footer(
    file: File, metadata: Any, layout: FileLayout, names: Collection[str] | None
) -> ParquetFooter:
    needed = layout.leaves if names is None else [each for each in names if each in layout.leaves]
    leaves = [leaf for name in needed for leaf in layout.leaves[name]]
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    return ParquetFooter(
        file,
        metadata.num_rows,
        layout,
        find_index_range(metadata),
        tuple(_read_row_group(group, leaves, metadata.schema) for group in groups),
    )


def _read_row_group(group: Any, leaves: Iterable[int], parquet_schema: Any) -> StoredRowGroup:
    return StoredRowGroup(
        group.num_rows,
        {leaf: _read_chunk(group.column(leaf), parquet_schema, leaf) for leaf in leaves},
    )


def _read_chunk(chunk: Any, parquet_schema: Any, leaf: int) -> ChunkStatistics:
    statistics = chunk.statistics
    low = high = nulls = None
    if statistics is not None:
        if statistics.has_min_max:
            # Python has no times after the year 9999.
            with suppress(OverflowError, ValueError):
                low, high = statistics.min, statistics.max
        if statistics.has_null_count:
            nulls = statistics.null_count
    physical = chunk.physical_type
    memory = chunk.num_values * estimate_width(physical, low, high, parquet_schema, leaf)
    if physical == "BYTE_ARRAY":
        memory = max(chunk.total_uncompressed_size, memory)
    return ChunkStatistics(memory, low, high, nulls)


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
    group: StoredRowGroup, leaf: int, kind: pl.DataType, stored_type: pa.DataType
) -> ColumnStatistics:
    """Return the statistics of a flat column of a row group, as values of the data set.

    Parameters
    ----------
    group : StoredRowGroup
        The row group.
    leaf : int
        The index of the leaf column.
    kind : polars.DataType
        The type of the column in the data set.
    stored_type : pyarrow.DataType
        Its type in the file, which gives the unit of durations in the statistics.
    """
    chunk = group.chunks[leaf]
    # pyarrow returns times of day in microseconds, so that nanoseconds are cut off.
    if chunk.low is None or chunk.high is None or stored_type == pa.time64("ns"):
        return ColumnStatistics(None, None, chunk.nulls, group.rows)
    low = _to_comparable(chunk.low, kind, stored_type)
    high = _to_comparable(chunk.high, kind, stored_type)
    if isinstance(low, float) and (math.isnan(low) or math.isnan(high)):
        low = high = None
    elif isinstance(chunk.low, decimal.Decimal) and isinstance(low, float):
        # Conversion of decimals to floats rounds, so widen the bounds by one float.
        low, high = math.nextafter(low, -math.inf), math.nextafter(high, math.inf)
    return ColumnStatistics(low, high, chunk.nulls, group.rows)


def _to_comparable(value: Any, kind: pl.DataType, stored_type: pa.DataType) -> Any:
    if isinstance(value, int) and kind.is_integer():
        return value  # most of the columns whose bounds are kept
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
        reader = parquet.ParquetFile(opened)
        for number, group in enumerate(footer.row_groups):
            if group.rows:
                # Reading one row suffices: the dictionary page precedes the rows.
                rows = next(reader.iter_batches(1, row_groups=[number], columns=names))
                categories_by_group.append(
                    {n: tuple(rows.column(n).dictionary.to_pylist()) for n in names}
                )
    return categories_by_group


def may_have_nulls(footer: ParquetFooter, leaf: int) -> bool:
    """Whether a flat column that may contain nulls by its schema does so by its statistics."""
    return any(group.rows and group.chunks[leaf].nulls != 0 for group in footer.row_groups)
