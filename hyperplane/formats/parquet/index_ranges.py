"""Named pandas indexes that Parquet stores as a range in the metadata, without a column."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from hyperplane.core.public_calls import warn_caller
from hyperplane.core.units import plural
from hyperplane.formats.filters import ColumnStatistics
from hyperplane.formats.polars_frames import column

_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True)
class IndexRange:
    """An index whose values are computed from the row numbers of the file.

    Parameters
    ----------
    name : str
        Name of the index.
    start, step : int
        Value of the first row, and difference between consecutive rows.
    """

    name: str
    start: int
    step: int

    def add_to(self, rows: pl.LazyFrame, first: int) -> pl.LazyFrame:
        """Add the index to a lazy frame of rows that starts with row ``first`` of the file."""
        begin = pl.lit(self.start + self.step * first, pl.Int64)
        number = column(self.name).cast(pl.Int64)
        counted = rows.with_row_index(self.name)
        return counted.with_columns(number * pl.lit(self.step, pl.Int64) + begin)

    def append_to(self, table: pa.Table, first: int) -> pa.Table:
        """Add the index to a table of rows that starts with row ``first`` of the file."""
        numbers = np.arange(first, first + table.num_rows, dtype="int64")
        return table.append_column(self.name, pa.array(self.start + self.step * numbers))

    def statistics(self, first: int, rows: int) -> ColumnStatistics:
        """Return the exact statistics of ``rows`` rows, starting with row ``first``."""
        ends = [self.start + self.step * row for row in (first, first + rows - 1)]
        return ColumnStatistics(min(ends), max(ends), 0, rows)


class LostRange(NamedTuple):
    """An index whose stored range does not have as many values as the file has rows.

    Parameters
    ----------
    name : str
        Name of the index.
    text : str
        The range, for messages.
    """

    name: str
    text: str


def find_index_range(metadata: Any) -> IndexRange | LostRange | None:
    """Return the named range index in the metadata of a Parquet file.

    None also if a column has the same name. The length of the range differs from the number of rows
    if the writer copied the metadata of other rows.
    """
    entry = _find_range_entry(metadata)
    if entry is None:
        return None
    if not _matches_rows(entry, metadata):
        return LostRange(str(entry["name"]), _format_range(entry))
    return IndexRange(str(entry["name"]), entry["start"], entry["step"])


def warn_lost_ranges(files: Sequence[tuple[str, int, Any]], columns: Any) -> None:
    """Warn about requested indexes that are left out because their range has the wrong length.

    Parameters
    ----------
    files : sequence of (str, int, IndexRange, LostRange or None)
        URL, number of rows and index of each file.
    columns : collection of str or None
        The requested columns; None means all.
    """
    lost: dict[str, list[tuple[str, int, str]]] = {}
    for url, rows, index in files:
        if isinstance(index, LostRange):
            lost.setdefault(index.name, []).append((url, rows, index.text))
    for name, lost_files in lost.items():
        if isinstance(columns, Collection) and name not in columns:
            continue
        url, rows, text = lost_files[0]
        warn_caller(
            f"index {name!r} is left out of {plural(len(lost_files), 'file')}: its stored range "
            f"does not have as many values as the file has rows, so its values are unknown "
            f"({url}: {text}, but {plural(rows, 'row')}); to keep it, write the files again after "
            "reset_index()"
        )


def _find_range_entry(metadata: Any) -> dict[str, Any] | None:
    """Return the metadata entry of a named range index without a column, or None."""
    text = (metadata.metadata or {}).get(b"pandas", b"")
    if b'"range"' not in text:
        return None
    try:
        entries = json.loads(text)["index_columns"]
        named = [
            entry for entry in entries if isinstance(entry, dict) and entry.get("name") is not None
        ]
    except (ValueError, TypeError, KeyError):
        return None
    ranges = [entry for entry in named if entry.get("kind") == "range"]
    if len(ranges) != 1 or str(ranges[0]["name"]) in metadata.schema.to_arrow_schema().names:
        return None
    return ranges[0]


def _matches_rows(entry: dict[str, Any], metadata: Any) -> bool:
    """Whether the range has as many values as the file has rows, all within int64."""
    ends: list[Any] = [entry.get(name) for name in ("start", "stop", "step")]
    if not all(type(end) is int and end in _INT64 for end in ends) or not entry["step"]:
        return False
    values = range(*ends)
    if metadata.num_rows == 0 and metadata.num_columns:
        return True  # all rows filtered out; the index is empty
    # pandas writes no rows for a frame without columns.
    return len(values) == metadata.num_rows


def _format_range(entry: Any) -> str:
    start, stop, step = (str(entry.get(name))[:20] for name in ("start", "stop", "step"))
    return f"range({start}, {stop}, {step})"
