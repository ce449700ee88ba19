"""How much data there is at a step, as far as that is known without reading any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
from dask.dataframe.dask_expr import _expr, _indexing, _reductions
from dask.dataframe.dask_expr.io import FromMap, FromPandas, ReadParquet

from hyperplane.collections.frames.explain.footers import Footers, footers_of
from hyperplane.collections.frames.sources.reader import PartitionReader
from hyperplane.units import format_bytes

#: Rows of a column of Python objects that are weighed.
WEIGHED = 10_000

_FEWER_ROWS = (
    _expr.Filter,
    _expr.DropnaFrame,
    _expr.DropnaSeries,
    _expr.DropDuplicatesBlockwise,
    _expr.Partitions,
    _expr.Sample,
    _indexing.LocBase,
    _indexing.LocUnknown,
    _indexing.Loc,
    _reductions.DropDuplicates,
)


@dataclass(frozen=True)
class Size:
    """Rows and bytes at a step.

    Parameters
    ----------
    rows : int
        How many rows there are.
    columns : mapping of column to int
        Bytes in memory of each column.
    at_most : bool
        Whether a step before it leaves out rows.
    """

    rows: int
    columns: Mapping[Any, int]
    at_most: bool = False

    @property
    def total(self) -> int:
        """Bytes of all columns."""
        return sum(self.columns.values())

    def __str__(self) -> str:
        return ("at most " if self.at_most else "") + format_bytes(self.total)


class Sizes:
    """The sizes at the steps of a tree; those that were asked for are kept."""

    def __init__(self) -> None:
        self._known: dict[str, Size | None] = {}
        self._footers: dict[str, Footers | None] = {}

    def of(self, expr: Any) -> Size | None:
        """The size at a step, or None where it is not known."""
        if expr._name not in self._known:
            self._known[expr._name] = self._find(expr)
        return self._known[expr._name]

    def footers(self, read: Any) -> Footers | None:
        """What the footers of a data set say, whichever of its columns a step reads."""
        if read.checksum not in self._footers:
            self._footers[read.checksum] = footers_of(read)
        return self._footers[read.checksum]

    def _find(self, expr: Any) -> Size | None:
        if isinstance(expr, ReadParquet):
            return _of_parquet(expr, self.footers(expr))
        if isinstance(expr, FromPandas):
            return _of_pandas(expr)
        if isinstance(expr, FromMap) and isinstance(expr.func, PartitionReader):
            return _of_parts(expr)
        below = expr.dependencies()
        keeps = getattr(expr, "_is_length_preserving", False) or isinstance(expr, _expr.Projection)
        fewer = isinstance(expr, _FEWER_ROWS)
        if not below or not (keeps or fewer):
            return None
        source = self.of(below[0])
        return None if source is None else _passed_on(expr, below[0], source, fewer)


def _passed_on(expr: Any, below: Any, size: Size, fewer: bool) -> Size | None:
    """The size after a step: columns of the same type weigh the same, new ones by their type."""
    before, columns = _types(below), {}
    for name, dtype in _types(expr).items():
        if name in size.columns and before.get(name) == dtype:
            columns[name] = size.columns[name]
        elif _fixed_width(dtype):
            columns[name] = size.rows * dtype.itemsize
        else:
            return None
    return Size(size.rows, columns, size.at_most or fewer)


def _types(expr: Any) -> dict[Any, Any]:
    meta = expr._meta
    if meta.ndim == 1:
        return {meta.name: meta.dtype}
    return dict(zip(meta.columns, meta.dtypes, strict=True))


def _fixed_width(dtype: Any) -> bool:
    kinds = pd.api.types
    return bool(kinds.is_numeric_dtype(dtype) or kinds.is_datetime64_any_dtype(dtype))


def _of_parquet(read: Any, footers: Footers | None) -> Size | None:
    if footers is None or not set(read.columns) <= set(footers.columns):
        return None
    columns = {name: footers.columns[name] for name in read.columns}
    return Size(footers.rows, columns, bool(read.filters) or read._filtered)


def _of_parts(expr: Any) -> Size | None:
    """What `hyperplane.dataframe.read` has planned; texts share what the numbers leave over."""
    parts = expr.iterables[0]
    rows = [part.rows for part in parts]
    if None in rows:
        return None
    like, total = expr.func.like, sum(part.nbytes or 0 for part in parts)
    fixed = {name: kind.itemsize for name, kind in like.dtypes.items() if _fixed_width(kind)}
    left = max(0, total - sum(rows) * sum(fixed.values()))
    share = left // max(1, len(like.columns) - len(fixed))
    columns = {name: sum(rows) * fixed[name] if name in fixed else share for name in expr.columns}
    return Size(sum(rows), columns, expr._filtered or any(part.filters for part in parts))


def _of_pandas(expr: Any) -> Size:
    frame = in_memory(expr)
    parts = {frame.name: frame} if frame.ndim == 1 else {name: frame[name] for name in expr.columns}
    return Size(len(frame), {name: _weight(part) for name, part in parts.items()}, expr._filtered)


def in_memory(expr: Any) -> Any:
    """The pandas object behind a ``from_pandas``."""
    return expr.operand("frame")._data


def _weight(column: Any) -> int:
    if isinstance(column, pd.DataFrame):  # several columns of one name
        return sum(_weight(column.iloc[:, place]) for place in range(column.shape[1]))
    if column.dtype != object or len(column) <= WEIGHED:
        return int(column.memory_usage(index=False, deep=True))
    part = column.iloc[:: len(column) // WEIGHED]
    return int(part.memory_usage(index=False, deep=True) * len(column) // len(part))
