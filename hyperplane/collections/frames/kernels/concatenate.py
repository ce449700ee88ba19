"""Tables of the same columns as one, in a type that loses nothing of any of them.

Polars has a common type for many pairs, but takes the coarser unit of two, floats for whole
numbers beyond what these can count, and text for anything.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import polars as pl

from hyperplane.collections.frames.column_names import unescape
from hyperplane.collections.frames.lossless_dtypes import MAX_EXACT_FLOAT
from hyperplane.errors import DataError

_UNITS = ("ms", "us", "ns")
_ADVICE = "make them one, as with astype('str')"


class TypeConflict(DataError):
    """Two tables hold values of one column that no common type holds.

    A task knows its tables, not the partitions that they come from;
    :func:`~hyperplane.collections.frames.task_graph.tasks` does, and has this error name them.

    Attributes
    ----------
    column : str
        The column.
    places : (int, int)
        Positions of the two among the tables.
    """

    def __init__(self, column: str, texts: tuple[str, str, str], places: tuple[int, int]) -> None:
        self.texts, self.places = texts, places
        super().__init__(column, self._message("one partition", "another"))

    def in_partitions(self, spans: Sequence[tuple[int, int]]) -> DataError:
        """The same error, with the numbers of the partitions that each table is made of."""
        one, other = (spans[place] for place in self.places)
        if one == other:
            return DataError(
                self.column, self._message("one row", f"another of {_format_partitions(one)}")
            )
        return DataError(
            self.column, self._message(_format_partitions(one), _format_partitions(other))
        )

    def _message(self, one: str, other: str) -> str:
        start, middle, end = self.texts
        return f"{start} in {one}{middle} in {other}{end}"


def _format_partitions(span: tuple[int, int]) -> str:
    first, last = span
    return f"partition {first}" if first == last else f"partitions {first} to {last}"


def concat_tables(
    tables: Sequence[pl.DataFrame],
    places: Sequence[int] | None = None,
    *,
    truth_as_numbers: str | None = None,
) -> pl.DataFrame:
    """Tables of the same columns as one, in their order.

    Parameters
    ----------
    tables : sequence of polars.DataFrame
        At least one.
    places : sequence of int, optional
        Where each stands among the tables of the task, if these are only some of them.
    truth_as_numbers : str, optional
        The column in which truth values beside numbers become 1 and 0. They are other values, so
        this is for a column that is compared, and not returned.

    Raises
    ------
    TypeConflict
        When a column has values of different kinds, or numbers that no common type holds.
    """
    if len(tables) == 1:
        return tables[0]
    schema = tables[0].schema
    if all(table.schema == schema for table in tables[1:]):
        return pl.concat(tables)
    places = range(len(tables)) if places is None else places
    columns = {name: [table.get_column(name) for table in tables] for name in schema}
    wanted = {
        name: _find_column_type(name, columns[name], places, name == truth_as_numbers)
        for name in schema
    }
    for name, kind in wanted.items():
        columns[name] = [
            _cast_column(name, columns[name], n, kind, places) for n in range(len(tables))
        ]
    return pl.concat(
        [pl.DataFrame([columns[name][n] for name in schema]) for n in range(len(tables))]
    )


def _find_column_type(
    name: str, columns: Sequence[pl.Series], places: Sequence[int], truth_as_numbers: bool
) -> pl.DataType:
    """The type of Polars that holds the values of all of these columns."""
    made: pl.DataType = columns[0].dtype
    before = 0  # the last column that has changed the type
    for number, column in enumerate(columns):
        found = _find_common_type(made, column.dtype)
        if found is None and truth_as_numbers:
            found = _find_common_boolean(made, column.dtype)
        if found is None:
            some = column.drop_nulls().head(1).to_list()
            shown = f", such as {some[0]!r:.60}" if some else ""
            texts = (
                f"holds {_describe_type(made)}",
                f" and {_describe_type(column.dtype)}",
                f"{shown}; {_ADVICE}",
            )
            raise TypeConflict(_get_column_name(name), texts, (places[before], places[number]))
        if found != made:
            made, before = found, number
    return made


def _find_common_type(one: Any, other: Any) -> pl.DataType | None:
    """The common type of two; None where there is none."""
    if one == other or other == pl.Null:
        return one
    if one == pl.Null:
        return other
    lists = isinstance(one, pl.List) and isinstance(other, pl.List)
    if lists:
        inner = _find_common_type(one.inner, other.inner)
        return None if inner is None else pl.List(inner)
    if isinstance(one, pl.Struct) and isinstance(other, pl.Struct):
        return _find_common_struct(one, other)
    for kind in (pl.Datetime, pl.Duration):
        if isinstance(one, kind) and isinstance(other, kind):
            if getattr(one, "time_zone", None) != getattr(other, "time_zone", None):
                return None
            return max(one, other, key=lambda each: _UNITS.index(each.time_unit))
    return _find_common_number(one, other) if one.is_numeric() and other.is_numeric() else None


def _find_common_struct(one: pl.Struct, other: pl.Struct) -> pl.DataType | None:
    if [field.name for field in one.fields] != [field.name for field in other.fields]:
        return None
    inner = [
        _find_common_type(a.dtype, b.dtype) for a, b in zip(one.fields, other.fields, strict=True)
    ]
    if None in inner:
        return None
    names = [field.name for field in one.fields]
    return pl.Struct(dict(zip(names, inner, strict=True)))  # type: ignore[arg-type]


def _find_common_boolean(one: pl.DataType, other: pl.DataType) -> pl.DataType | None:
    """The type of truth values and numbers, as 1 and 0 beside them."""
    alike = all(kind.is_numeric() or kind == pl.Boolean for kind in (one, other))
    return _find_common_number(one, other) if alike else None


def _find_common_number(one: pl.DataType, other: pl.DataType) -> pl.DataType | None:
    decimals = [kind for kind in (one, other) if kind.is_decimal()]
    if any(kind.is_float() for kind in (one, other)):
        narrow = all(kind.is_float() and kind != pl.Float64 for kind in (one, other))
        return None if decimals else (pl.Float32() if narrow else pl.Float64())
    empty = [pl.DataFrame(schema={"x": kind}) for kind in (one, other)]
    try:
        return pl.concat(empty, how="vertical_relaxed").schema["x"]
    except pl.exceptions.PolarsError:
        return None


def _cast_column(
    name: str, columns: Sequence[pl.Series], number: int, kind: pl.DataType, places: Sequence[int]
) -> pl.Series:
    """One of the columns in another type; no value becomes another one."""
    column = columns[number]
    if column.dtype == kind:
        return column
    try:
        made = column.cast(kind)
    except pl.exceptions.PolarsError as error:
        raise _make_lossy_conflict(name, columns, number, places) from error
    if column.dtype != pl.Null and not _is_exact(column, made):
        raise _make_lossy_conflict(name, columns, number, places)
    return made


def _is_exact(column: pl.Series, made: pl.Series) -> bool:
    """Whether a cast has kept all values."""
    if isinstance(column.dtype, pl.List):
        inner = column.explode(keep_nulls=False, empty_as_null=False)
        return _is_exact(inner, made.explode(keep_nulls=False, empty_as_null=False))
    if isinstance(column.dtype, pl.Struct):
        return all(
            _is_exact(column.struct.field(field.name), made.struct.field(field.name))
            for field in column.dtype.fields
        )
    if column.dtype.is_integer() and made.dtype.is_float():
        limit = MAX_EXACT_FLOAT if made.dtype == pl.Float64 else 2**24
        least: Any = column.min()
        most: Any = column.max()
        return least is None or bool(-limit <= least and most <= limit)
    if isinstance(column.dtype, (pl.Datetime, pl.Duration)):  # an overflow goes round
        return bool(made.cast(column.dtype).eq_missing(column).all())
    return True


def _make_lossy_conflict(
    name: str, columns: Sequence[pl.Series], number: int, places: Sequence[int]
) -> TypeConflict:
    """The error of a value that the common type does not hold; it names a column that needs it."""
    column = columns[number]
    others = [n for n, one in enumerate(columns) if one.dtype not in (column.dtype, pl.Null)]
    there = column.drop_nulls()
    value = (there.max() if there.dtype.is_numeric() else there.first()) if len(there) else None
    texts = (
        f"holds {_describe_type(column.dtype)}, such as {value!r:.60},",
        f" and {_describe_type(columns[others[0]].dtype)}",
        ", and no type holds the values of both; make partitions of one type with astype(...)",
    )
    return TypeConflict(_get_column_name(name), texts, (places[number], places[others[0]]))


def _describe_type(kind: Any) -> str:
    return "text" if kind == pl.String else str(kind).lower()


def _get_column_name(name: str) -> str:
    """The column of pandas; those of states have its name in their own."""
    state = re.fullmatch(r"__\d+_[a-z0-9]+_(.*)__n?", name, re.DOTALL)
    return unescape(state[1] if state else name)
