"""Texts that are missing values in CSV: those of pandas, and those of ``na_values``."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hyperplane.core.errors import Fault
from hyperplane.core.units import is_iterable
from hyperplane.formats.filters import describe_columns, suggest_similar

#: Default missing values of ``pandas.read_csv``.
PANDAS_MISSING = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
_ALLOWED = "a text or number, a list of these, or a mapping of column to these"


@dataclass(frozen=True)
class MissingValues:
    """Missing values in addition to those of pandas, in every column or by column."""

    everywhere: tuple[str, ...] = ()
    by_column: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def texts_for(self, name: str) -> tuple[str, ...]:
        """Return the additional missing values of a column."""
        return dict(self.by_column).get(name, self.everywhere)

    def group_columns(self, names: Iterable[str]) -> dict[tuple[str, ...], list[str]]:
        """Group columns by their missing values."""
        groups: dict[tuple[str, ...], list[str]] = {}
        for name in names:
            groups.setdefault(self.texts_for(name), []).append(name)
        return groups

    def apply(self, table: pa.Table) -> pa.Table:
        """Return a table with floats that equal a missing value, in any notation, set to null."""
        for index, name in enumerate(table.column_names):
            column = table.column(index)
            numbers = (
                _parse_floats(self.texts_for(name)) if pa.types.is_floating(column.type) else []
            )
            if numbers:
                missing = pc.is_in(column, pa.array(numbers, column.type))
                null = pa.scalar(None, column.type)
                table = table.set_column(index, name, pc.if_else(missing, null, column))
        return table


def parse_na_values(na_values: Any, names: Collection[str]) -> tuple[MissingValues, list[Fault]]:
    """Parse ``na_values`` into missing values and faults.

    Examples
    --------
    >>> parse_na_values(["-", -999], ["a"])[0].everywhere
    ('-', '-999', '-999.0')
    """
    if isinstance(na_values, Mapping):
        unknown = [name for name in na_values if name not in names]
        faults = [
            Fault(
                "na_values",
                repr(name)[:80],
                describe_columns(names),
                suggest_similar(str(name), names),
            )
            for name in unknown
        ]
        by_column = {
            name: _parse_texts(na_values[name]) for name in na_values if name not in unknown
        }
        faults += [
            _make_fault(na_values[name]) for name, texts in by_column.items() if texts is None
        ]
        known = tuple((name, texts) for name, texts in by_column.items() if texts is not None)
        return MissingValues((), known), faults
    texts = _parse_texts(na_values)
    return (
        (MissingValues(), [_make_fault(na_values)]) if texts is None else (MissingValues(texts), [])
    )


def _make_fault(value: Any) -> Fault:
    return Fault("na_values", repr(value)[:80], _ALLOWED)


def _parse_texts(na_values: Any) -> tuple[str, ...] | None:
    """Return all notations of the values, as pandas does; None for values of other types."""
    if isinstance(na_values, Mapping):
        return None
    if isinstance(na_values, str | bytes) or not is_iterable(na_values):
        na_values = [na_values]
    texts: list[str] = []
    for value in na_values:
        if isinstance(value, bool) or not (isinstance(value, str) or hasattr(value, "__float__")):
            return None
        texts.append(str(value))
        with suppress(ValueError, OverflowError, TypeError):
            number = float(value)
            if number == int(number):
                texts += [str(int(number)), f"{int(number)}.0"]
    return tuple(dict.fromkeys(texts))


def _parse_floats(texts: Sequence[str]) -> list[float]:
    numbers = []
    for text in texts:
        with suppress(ValueError):
            numbers.append(float(text))
    return [number for number in numbers if not math.isnan(number)]
