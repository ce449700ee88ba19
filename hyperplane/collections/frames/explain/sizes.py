"""Estimates of the rows and bytes of a step, without reading data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from hyperplane.core.dask_internals.frames import (
    DropDuplicates,
    DropDuplicatesBlockwise,
    DropnaFrame,
    DropnaSeries,
    Filter,
    FromMap,
    FromPandas,
    Loc,
    LocBase,
    LocUnknown,
    Partitions,
    Projection,
    ReadParquet,
    Sample,
)
from hyperplane.core.units import format_bytes
from hyperplane.formats.parquet.footer_size import OFFSET, estimate_value_width
from hyperplane.formats.reader import PartitionReader

#: Rows of a column of Python objects whose memory is measured.
MEASURED_ROWS = 10_000

#: Steps that drop rows and change no column.
_FEWER_ROWS = (
    Filter,
    DropnaFrame,
    DropnaSeries,
    DropDuplicatesBlockwise,
    Partitions,
    Sample,
    LocBase,
    LocUnknown,
    Loc,
    DropDuplicates,
)


@dataclass(frozen=True)
class StepSize:
    """Rows and bytes of a step."""

    rows: int
    #: Bytes in memory of each column.
    columns: Mapping[Any, int]
    #: Whether these are upper bounds, because rows are filtered.
    at_most: bool = False

    @property
    def total(self) -> int:
        """Bytes of all columns."""
        return sum(self.columns.values())

    def __str__(self) -> str:
        return ("at most " if self.at_most else "") + format_bytes(self.total)


class SizeEstimator:
    """Estimator of the sizes of steps, with a cache."""

    def __init__(self) -> None:
        self._known: dict[str, StepSize | None] = {}
        self._footers: dict[str, DatasetFooters | None] = {}

    def estimate(self, expr: Any) -> StepSize | None:
        """Return the size of a step, or None if unknown."""
        if expr._name not in self._known:
            self._known[expr._name] = self._estimate(expr)
        return self._known[expr._name]

    def footers(self, read: Any) -> DatasetFooters | None:
        """Return the footers of a Parquet step, cached per dataset; None if unreadable."""
        if read.checksum not in self._footers:
            self._footers[read.checksum] = read_footers(read)
        return self._footers[read.checksum]

    def _estimate(self, expr: Any) -> StepSize | None:
        if isinstance(expr, ReadParquet):
            return _estimate_parquet(expr, self.footers(expr))
        if isinstance(expr, FromPandas):
            return _measure_pandas(expr)
        if isinstance(expr, FromMap) and isinstance(expr.func, PartitionReader):
            return _estimate_partitions(expr)
        below = expr.dependencies()
        keeps_rows = getattr(expr, "_is_length_preserving", False) or isinstance(expr, Projection)
        drops_rows = isinstance(expr, _FEWER_ROWS)
        if not below or not (keeps_rows or drops_rows):
            return None
        source = self.estimate(below[0])
        return None if source is None else _propagate_size(expr, below[0], source, drops_rows)


def _propagate_size(expr: Any, below: Any, size: StepSize, drops_rows: bool) -> StepSize | None:
    """Return the size after a step; columns of unchanged type have the same bytes."""
    before, columns = _get_dtypes(below), {}
    for name, dtype in _get_dtypes(expr).items():
        if name in size.columns and before.get(name) == dtype:
            columns[name] = size.columns[name]
        elif _is_fixed_width(dtype):
            columns[name] = size.rows * dtype.itemsize
        else:
            return None
    return StepSize(size.rows, columns, size.at_most or drops_rows)


def _get_dtypes(expr: Any) -> dict[Any, Any]:
    meta = expr._meta
    if meta.ndim == 1:
        return {meta.name: meta.dtype}
    return dict(zip(meta.columns, meta.dtypes, strict=True))


def _is_fixed_width(dtype: Any) -> bool:
    kinds = pd.api.types
    return bool(kinds.is_numeric_dtype(dtype) or kinds.is_datetime64_any_dtype(dtype))


def _estimate_parquet(read: Any, footers: DatasetFooters | None) -> StepSize | None:
    if footers is None or not set(read.columns) <= set(footers.columns):
        return None
    columns = {name: footers.columns[name] for name in read.columns}
    return StepSize(footers.rows, columns, bool(read.filters) or read._filtered)


def _estimate_partitions(expr: Any) -> StepSize | None:
    """Return the size that :func:`hyperplane.dataframe.read` has planned, or None if unknown.

    The bytes that columns of fixed width do not need are divided equally among the others.
    """
    parts = expr.iterables[0]
    rows = [part.rows for part in parts]
    if None in rows:
        return None
    like, total = expr.func.like, sum(part.nbytes or 0 for part in parts)
    fixed = {name: kind.itemsize for name, kind in like.dtypes.items() if _is_fixed_width(kind)}
    variable_bytes = max(0, total - sum(rows) * sum(fixed.values()))
    share = variable_bytes // max(1, len(like.columns) - len(fixed))
    columns = {name: sum(rows) * fixed[name] if name in fixed else share for name in expr.columns}
    return StepSize(sum(rows), columns, expr._filtered or any(part.filters for part in parts))


def _measure_pandas(expr: Any) -> StepSize:
    frame = get_pandas_frame(expr)
    parts = {frame.name: frame} if frame.ndim == 1 else {name: frame[name] for name in expr.columns}
    return StepSize(
        len(frame), {name: _measure_column(part) for name, part in parts.items()}, expr._filtered
    )


def get_pandas_frame(expr: Any) -> Any:
    """Return the pandas object of a ``from_pandas`` step."""
    return expr.operand("frame")._data


def _measure_column(column: Any) -> int:
    if isinstance(column, pd.DataFrame):  # several columns with the same name
        return sum(_measure_column(column.iloc[:, number]) for number in range(column.shape[1]))
    if column.dtype != object or len(column) <= MEASURED_ROWS:
        return int(column.memory_usage(index=False, deep=True))
    part = column.iloc[:: len(column) // MEASURED_ROWS]
    return int(part.memory_usage(index=False, deep=True) * len(column) // len(part))


#: Maximum footers that are read, evenly spaced over the files.
SAMPLED_FOOTERS = 32
#: Bytes of values above which a column chunk has no complete dictionary: writers then store
#: plain values.
MAX_DICTIONARY = 1_500_000
#: Bytes of the length of a string in a Parquet file.
LENGTH_BYTES = 4


@dataclass(frozen=True)
class DatasetFooters:
    """Summary of the footers of a Parquet dataset; extrapolated if there are many files."""

    rows: int
    #: Bytes in memory of each column in all files.
    columns: dict[str, int]
    #: Columns with more distinct values than a dictionary of Parquet holds.
    high_cardinality: frozenset[str]


def read_footers(read: Any) -> DatasetFooters | None:
    """Read the footers of the files of a ``ReadParquet`` step; None if they cannot be read."""
    try:
        return _summarize_footers(list_fragments(read))
    except (AttributeError, KeyError, OSError, ValueError):
        return None


def list_fragments(read: Any) -> list[Any]:
    """Return the parts of the files of a ``ReadParquet`` step."""
    info = read._dataset_info
    if "ds" in info:
        return list(info["ds"].get_fragments())
    return [wrapper.fragment for wrapper in info["fragments"]]


def _summarize_footers(fragments: list[Any]) -> DatasetFooters:
    """Read a sample of the footers and extrapolate to all files."""
    count = len(fragments)
    numbers = sorted(
        {round(step * (count - 1) / (SAMPLED_FOOTERS - 1)) for step in range(SAMPLED_FOOTERS)}
    )
    rows, columns, high_cardinality = 0, dict[str, int](), set[str]()
    for number in numbers:
        footer = fragments[number].metadata
        rows += footer.num_rows
        for group in map(footer.row_group, range(footer.num_row_groups)):
            for index in range(group.num_columns):
                chunk = group.column(index)
                name = chunk.path_in_schema.partition(".")[0]
                value_bytes = estimate_value_width(chunk, footer.schema, index)
                size = max(chunk.total_uncompressed_size, chunk.num_values * value_bytes)
                columns[name] = columns.get(name, 0) + size
                if _exceeds_dictionary(chunk, value_bytes):
                    high_cardinality.add(name)
    scale = count / len(numbers)
    return DatasetFooters(
        round(rows * scale),
        {name: round(size * scale) for name, size in columns.items()},
        frozenset(high_cardinality),
    )


def _exceeds_dictionary(chunk: Any, value_bytes: int) -> bool:
    """Return whether a column chunk began with a dictionary and continued with plain values."""
    encodings = set(chunk.encodings)
    if chunk.physical_type == "BYTE_ARRAY":
        value_bytes -= OFFSET - LENGTH_BYTES
    size = chunk.total_uncompressed_size
    return (
        bool(encodings & {"RLE_DICTIONARY", "PLAIN_DICTIONARY"})
        and size > MAX_DICTIONARY
        and size >= chunk.num_values * value_bytes
    )
