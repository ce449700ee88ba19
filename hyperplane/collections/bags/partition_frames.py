"""Convert the records of a partition to a pandas dataframe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import compute

from hyperplane.collections.bags.column_types import (
    MAX_EXACT,
    BagColumn,
    can_be_null,
    cast_to_column,
    make_array,
    make_series,
)
from hyperplane.collections.bags.fields import FieldGetter, RecordFilter
from hyperplane.collections.bags.files import BagPartition
from hyperplane.collections.bags.json_columns import (
    MAX_REFUSALS,
    ColumnFilter,
    iterate_chunks,
    read_columns,
)
from hyperplane.collections.bags.lines import find_line_number
from hyperplane.collections.bags.records import LineCounter, ReadSettings, parse_lines

if TYPE_CHECKING:
    import pandas as pd


def make_frame(bag_columns: Sequence[BagColumn], pieces: Sequence[list[Any]]) -> pd.DataFrame:
    """Return a pandas dataframe; ``pieces`` are the arrays of each column, one per chunk."""
    import pandas as pd  # slow import, not needed by other functions of bags

    series = {
        column.name: make_series(column, arrays)
        for column, arrays in zip(bag_columns, pieces, strict=True)
    }
    return pd.DataFrame(series, columns=[column.name for column in bag_columns])


def make_arrays(
    bag_columns: Sequence[BagColumn], records: list[Any], where: Callable[[int], str]
) -> list[Any]:
    """Return checked columns; ``where(position)`` describes the location of a record."""
    arrays = []
    for column in bag_columns:
        get = FieldGetter(column.path)
        arrays.append(make_array(column, [get(record, None) for record in records], where))
    return arrays


@dataclass(frozen=True)
class DataFrameReader:
    """Function for Dask that reads a partition of files as a pandas dataframe."""

    settings: ReadSettings
    where: RecordFilter | None
    bag_columns: tuple[BagColumn, ...]
    token: str

    def __dask_tokenize__(self) -> str:
        return self.token

    def __call__(self, part: BagPartition, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Return a partition, with all columns or some."""
        if columns is not None and not columns:  # only the number of rows is needed
            return self(part, [self.bag_columns[0].name])[[]]
        by_name = {column.name: column for column in self.bag_columns}
        bag_columns = [by_name[name] for name in (by_name if columns is None else columns)]
        settings, where = self.settings, self.where
        counter = LineCounter(settings, part)
        conditions = ColumnFilter(where)
        pieces: list[list[Any]] = [[] for _ in bag_columns]
        refusals_left = MAX_REFUSALS if conditions.is_whole else 0
        for byte_range, offset, chunk in iterate_chunks(settings, part):
            arrays = (
                _parse_columns(settings, chunk, bag_columns, conditions, counter)
                if refusals_left
                else None
            )
            if arrays is None:
                refusals_left = max(0, refusals_left - 1)
                arrays = _parse_records(
                    settings, byte_range, offset, chunk, bag_columns, where, counter
                )
            for piece, values in zip(pieces, arrays, strict=True):
                piece.append(values)
        counter.close()
        return make_frame(bag_columns, pieces)


def _parse_columns(
    settings: ReadSettings,
    chunk: bytes,
    bag_columns: Sequence[BagColumn],
    conditions: ColumnFilter,
    counter: LineCounter,
) -> list[Any] | None:
    """Return arrays of all columns; None if Python has to parse the chunk.

    That is the case if PyArrow might parse it in another way, or if a value is missing or inexact
    and the type of its column does not allow this.
    """
    types = {**{column.path: column.arrow for column in bag_columns}, **conditions.types}
    if None in types.values() or any(types[c.path] != c.arrow for c in bag_columns):
        return None
    parsed = read_columns(settings, chunk, types)
    if parsed is None:
        return None
    mask = conditions.mask(parsed)
    arrays = []
    for column in bag_columns:
        values = parsed[column.path] if mask is None else parsed[column.path].filter(mask)
        if values.null_count and not can_be_null(column):
            return None
        if column.kind == "float64" and _may_be_inexact(values):
            return None  # integers that float64 cannot represent exactly
        try:
            arrays.append(cast_to_column(column, values))
        except pa.ArrowInvalid:
            return None
    counter.good += chunk.count(b"\n")
    return arrays


def _may_be_inexact(values: Any) -> bool:
    return bool(compute.any(compute.greater_equal(compute.abs(values), float(MAX_EXACT))).as_py())


def _parse_records(
    settings: ReadSettings,
    byte_range: Any,
    offset: int,
    chunk: bytes,
    bag_columns: Sequence[BagColumn],
    where: RecordFilter | None,
    counter: LineCounter,
) -> list[Any]:
    matches: Callable[[Any], bool] = where.make_predicate() if where else lambda record: True
    records = list(filter(matches, parse_lines(settings, byte_range, offset, chunk, counter)))

    def locate(position: int) -> str:
        """Return the line number of a record, found by parsing the chunk again."""
        number = find_line_number(settings.store, byte_range, offset)
        for line in chunk.split(b"\n"):
            records_of_line = parse_lines(
                settings, byte_range, offset, line + b"\n", LineCounter(settings, ())
            )
            position -= sum(map(matches, records_of_line))
            if position < 0:
                break
            number += 1
        return f"line {number} of {byte_range.name}"

    return make_arrays(bag_columns, records, locate)
