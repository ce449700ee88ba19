"""Distinct rows of texts and integers, found by the numbers of texts in Parquet's dictionaries.

A row group stores each text of a column once, and a number for each row. The numbers of all columns
of a row make one integer, which is compared in a third of the CPU time of the texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from pyarrow import parquet

from hyperplane.formats.file_changes import check_local_size
from hyperplane.formats.parquet.partition import ParquetPartition, RowGroupRange
from hyperplane.formats.reader import DAMAGE

Array = np.ndarray[Any, Any]
_INTEGERS = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32)
#: Combinations of values have smaller numbers, in 64 bits.
_MAX_NUMBERS = 2**63
#: Maximum number of texts in a dictionary of the first row group, per row: each of them is hashed.
_MAX_TEXTS_PER_ROW = 0.3


def read_distinct_rows(partition: Any, names: Sequence[str]) -> pl.DataFrame | None:
    """Return the distinct rows of columns of local Parquet files, in no order.

    None if no column is text, if others than text and integers are needed or some must be
    converted, if rows must be filtered, if few texts are repeated, or if a file is damaged: then
    Polars reads the rows, and raises its error.
    """
    if not isinstance(partition, ParquetPartition) or not names:
        return None
    kinds = _find_kinds(partition, names)
    if kinds is None or pl.String not in kinds.values():
        return None
    try:
        tables = _read_tables(partition.pieces, names)
        return None if tables is None else _find_distinct_rows(pa.concat_tables(tables), kinds)
    except DAMAGE:
        return None


def _find_kinds(partition: ParquetPartition, names: Sequence[str]) -> dict[str, Any] | None:
    """Return the types of columns; None if Arrow does not read all of their rows as they are."""
    if partition.filters or partition.on_error == "skip":
        return None
    for piece in partition.pieces:
        mapping = piece.mapping
        changed = mapping.cast.union(dict(mapping.constants), dict(mapping.categories))
        if (
            type(piece) is not RowGroupRange  # rows within row groups
            or not piece.file.store.local
            or piece.use_pyarrow
            or piece.index is not None
            or not changed.isdisjoint(names)
        ):
            return None
    schema = dict(partition.pieces[0].mapping.schema)
    kinds: dict[str, Any] = {name: schema.get(name) for name in names}
    is_supported = all(kind == pl.String or kind in _INTEGERS for kind in kinds.values())
    return kinds if is_supported else None


def _read_tables(pieces: Sequence[RowGroupRange], names: Sequence[str]) -> list[pa.Table] | None:
    """Return the columns of row groups, text as dictionaries; None if these are not suitable."""
    tables: list[pa.Table] = []
    for piece in pieces:
        check_local_size(piece.file)
        # Arrow ignores the names of integers, which have no dictionaries.
        with parquet.ParquetFile(piece.file.path, read_dictionary=list(names)) as reader:
            for groups in [piece.groups] if tables else [piece.groups[:1], piece.groups[1:]]:
                if not groups:
                    continue
                table = reader.read_row_groups(groups, columns=list(names), use_threads=False)
                if set(table.column_names) != set(names):
                    return None
                table = table.select(list(names)).replace_schema_metadata()
                is_first = not tables
                if (is_first and not _repeats_texts(table)) or (
                    not is_first and not table.schema.equals(tables[0].schema)
                ):
                    return None
                tables.append(table)
    return tables if sum(map(len, tables)) else None


def _repeats_texts(table: pa.Table) -> bool:
    """Return whether each column of a row group has integers, or a dictionary of few texts."""
    return all(
        pa.types.is_integer(column.type)
        or (
            pa.types.is_dictionary(column.type)
            and _count_texts(column) <= _MAX_TEXTS_PER_ROW * len(table)
        )
        for column in table.columns
    )


def _count_texts(column: pa.ChunkedArray) -> int:
    return sum(len(chunk.dictionary) for chunk in column.chunks)


@dataclass(frozen=True)
class _NumberedValues:
    """Values of a column, each with a number below ``count``; that of null is the last one."""

    numbers: Array
    count: int
    #: The texts, or the integer that has the number 0.
    values: pl.Series | int

    @classmethod
    def number_texts(cls, column: pa.ChunkedArray) -> _NumberedValues | None:
        """Number the texts of a column; None if some of a dictionary are equal, which is rare."""
        dictionary = column.chunk(0).dictionary  # the same for all chunks
        dictionary.validate(full=True)
        texts = pl.Series(pl.from_arrow(dictionary), dtype=pl.String)
        count = len(texts)
        if texts.null_count() or texts.n_unique() < count:
            return None
        numbers = [
            chunk.indices.fill_null(count).to_numpy(zero_copy_only=False) for chunk in column.chunks
        ]
        with_null = pl.concat([texts, pl.Series([None], dtype=pl.String)]).rechunk()
        return cls(np.concatenate(numbers), count + 1, with_null)

    @classmethod
    def number_integers(cls, column: pa.ChunkedArray) -> _NumberedValues:
        """Number the integers of a column by their differences to the smallest one."""
        values = pl.Series(pl.from_arrow(column))
        first: Any = values.min()
        last: Any = values.max()
        if first is None:
            first = last = 0
        count = last - first + 2
        if count >= _MAX_NUMBERS:  # the caller does not use the numbers
            return cls(np.empty(0, np.int64), count, first)
        numbers = (values.cast(pl.Int64) - first).fill_null(count - 1)
        return cls(numbers.to_numpy(), count, first)

    def find_values(self, numbers: Array) -> pl.Series:
        """Return the values with these numbers."""
        if isinstance(self.values, pl.Series):
            return self.values.gather(numbers)
        values = pl.Series("", numbers, dtype=pl.Int64)
        if (numbers == self.count - 1).any():
            values = values.set(values == self.count - 1, None)
        return values + self.values


def _find_distinct_rows(table: pa.Table, kinds: Mapping[str, Any]) -> pl.DataFrame | None:
    """Return the distinct rows of a table; None if its values have too many combinations."""
    table = table.unify_dictionaries()
    keys, count, numbered = np.zeros(len(table), np.int64), 1, []
    for column in table.columns:
        is_text = pa.types.is_dictionary(column.type)
        number = _NumberedValues.number_texts if is_text else _NumberedValues.number_integers
        values = number(column)
        count *= values.count if values else _MAX_NUMBERS
        if values is None or count >= _MAX_NUMBERS:
            return None
        keys *= values.count
        keys += values.numbers
        numbered.append(values)
    rest = pl.DataFrame({"key": keys}).unique().to_series().to_numpy()
    columns = []
    for values in reversed(numbered):
        rest, numbers = np.divmod(rest, values.count)
        columns.append(values.find_values(numbers))
    return pl.DataFrame(
        [
            column.cast(kind).alias(name)
            for column, (name, kind) in zip(reversed(columns), kinds.items(), strict=True)
        ]
    )
