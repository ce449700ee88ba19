"""Concatenation of tables whose column types differ, to types that represent every value.

Supertypes of Polars lose values: the coarser of two time units, floats for integers beyond 2**53,
and text for any other pair of types.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import polars as pl

from hyperplane.core.errors import DataError
from hyperplane.core.units import MAX_EXACT_FLOAT
from hyperplane.formats.pandas_frames.column_names import unescape

_UNITS = ("ms", "us", "ns")
_ADVICE = "convert all partitions to one type, for example with astype('str')"


class TypeConflict(DataError):
    """The values of a column in two tables have no common type.

    A kernel does not know the partitions of its tables; ``run_task`` adds them with
    :meth:`in_partitions`. ``texts`` are the parts of the message before, between and after the
    names of the two partitions. ``positions`` are those of the two tables among the tables of the
    task.
    """

    def __init__(
        self, column: str, texts: tuple[str, str, str], positions: tuple[int, int]
    ) -> None:
        self.texts, self.positions = texts, positions
        super().__init__(column, self._message("one partition", "another"))

    def in_partitions(self, partitions: Sequence[tuple[int, int]]) -> DataError:
        """Return this error with the partitions of the two tables.

        ``partitions`` has the first and last partition of each table of the task.
        """
        one, other = (partitions[position] for position in self.positions)
        if one == other:
            return DataError(
                self.column, self._message("one row", f"another of {_format_partitions(one)}")
            )
        return DataError(
            self.column, self._message(_format_partitions(one), _format_partitions(other))
        )

    def _message(self, one: str, other: str) -> str:
        before, between, after = self.texts
        return f"{before} in {one}{between} in {other}{after}"


def _format_partitions(partitions: tuple[int, int]) -> str:
    first, last = partitions
    return f"partition {first}" if first == last else f"partitions {first} to {last}"


def concat_tables(
    tables: Sequence[pl.DataFrame],
    positions: Sequence[int] | None = None,
    *,
    booleans_as_numbers: str | None = None,
) -> pl.DataFrame:
    """Concatenate one or more tables of the same columns, in their order.

    ``positions`` are those of the tables among the tables of the task; by default these are all.
    In the column ``booleans_as_numbers``, booleans become 1 and 0 if another table has numbers.
    This changes the values, so the column must only be compared, not returned. TypeConflict is
    raised if the values of a column have no common type.
    """
    if len(tables) == 1:
        return tables[0]
    schema = tables[0].schema
    if all(table.schema == schema for table in tables[1:]):
        return pl.concat(tables)
    positions = range(len(tables)) if positions is None else positions
    columns = {name: [table.get_column(name) for table in tables] for name in schema}
    common_types = {
        name: _find_column_type(name, columns[name], positions, name == booleans_as_numbers)
        for name in schema
    }
    for name, kind in common_types.items():
        columns[name] = [
            _cast_column(name, columns[name], n, kind, positions) for n in range(len(tables))
        ]
    return pl.concat(
        [pl.DataFrame([columns[name][n] for name in schema]) for n in range(len(tables))]
    )


def _find_column_type(
    name: str, columns: Sequence[pl.Series], positions: Sequence[int], booleans_as_numbers: bool
) -> pl.DataType:
    """Return the Polars type that represents the values of all these columns."""
    result: pl.DataType = columns[0].dtype
    position_of_type = 0  # of the column that last widened the type
    for number, column in enumerate(columns):
        common = _find_common_type(result, column.dtype)
        if common is None and booleans_as_numbers:
            common = _find_common_boolean(result, column.dtype)
        if common is None:
            first = column.drop_nulls().head(1).to_list()
            shown = f", such as {first[0]!r:.60}" if first else ""
            texts = (
                f"holds {_describe_type(result)}",
                f" and {_describe_type(column.dtype)}",
                f"{shown}; {_ADVICE}",
            )
            raise TypeConflict(
                _get_column_name(name), texts, (positions[position_of_type], positions[number])
            )
        if common != result:
            result, position_of_type = common, number
    return result


def _find_common_type(one: Any, other: Any) -> pl.DataType | None:
    """Return the common type of two types; None if there is none."""
    if one == other or other == pl.Null:
        return one
    if one == pl.Null:
        return other
    are_lists = isinstance(one, pl.List) and isinstance(other, pl.List)
    if are_lists:
        inner = _find_common_type(one.inner, other.inner)
        return None if inner is None else pl.List(inner)
    if isinstance(one, pl.Struct) and isinstance(other, pl.Struct):
        return _find_common_struct(one, other)
    for kind in (pl.Datetime, pl.Duration):
        if isinstance(one, kind) and isinstance(other, kind):
            if getattr(one, "time_zone", None) != getattr(other, "time_zone", None):
                return None
            return max(one, other, key=lambda dtype: _UNITS.index(dtype.time_unit))
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
    """Return the common type of booleans, as 1 and 0, and numbers."""
    are_numbers = all(kind.is_numeric() or kind == pl.Boolean for kind in (one, other))
    return _find_common_number(one, other) if are_numbers else None


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
    name: str,
    columns: Sequence[pl.Series],
    number: int,
    kind: pl.DataType,
    positions: Sequence[int],
) -> pl.Series:
    """Cast one of the columns; raise TypeConflict if that changes a value."""
    column = columns[number]
    if column.dtype == kind:
        return column
    try:
        result = column.cast(kind)
    except pl.exceptions.PolarsError as error:
        raise _make_lossy_conflict(name, columns, number, positions) from error
    if column.dtype != pl.Null and not _is_exact(column, result):
        raise _make_lossy_conflict(name, columns, number, positions)
    return result


def _is_exact(column: pl.Series, result: pl.Series) -> bool:
    """Return whether a cast has changed no value."""
    if isinstance(column.dtype, pl.List):
        inner = column.explode(keep_nulls=False, empty_as_null=False)
        return _is_exact(inner, result.explode(keep_nulls=False, empty_as_null=False))
    if isinstance(column.dtype, pl.Struct):
        return all(
            _is_exact(column.struct.field(field.name), result.struct.field(field.name))
            for field in column.dtype.fields
        )
    if column.dtype.is_integer() and result.dtype.is_float():
        limit = MAX_EXACT_FLOAT if result.dtype == pl.Float64 else 2**24
        lowest: Any = column.min()
        highest: Any = column.max()
        return lowest is None or bool(-limit <= lowest and highest <= limit)
    if isinstance(column.dtype, (pl.Datetime, pl.Duration)):  # overflows wrap around
        return bool(result.cast(column.dtype).eq_missing(column).all())
    return True


def _make_lossy_conflict(
    name: str, columns: Sequence[pl.Series], number: int, positions: Sequence[int]
) -> TypeConflict:
    """Return the error for a value that the common type does not represent."""
    column = columns[number]
    others = [n for n, other in enumerate(columns) if other.dtype not in (column.dtype, pl.Null)]
    present = column.drop_nulls()
    value = (
        (present.max() if present.dtype.is_numeric() else present.first()) if len(present) else None
    )
    texts = (
        f"holds {_describe_type(column.dtype)}, such as {value!r:.60},",
        f" and {_describe_type(columns[others[0]].dtype)}",
        ", and no type represents both exactly; convert all partitions to one type with "
        "astype(...)",
    )
    return TypeConflict(_get_column_name(name), texts, (positions[number], positions[others[0]]))


def _describe_type(kind: Any) -> str:
    return "text" if kind == pl.String else str(kind).lower()


def _get_column_name(name: str) -> str:
    """Return the name that a column, or the column of a state, has in pandas."""
    state = re.fullmatch(r"__\d+_[a-z0-9]+_(.*)__n?", name, re.DOTALL)
    return unescape(state[1] if state else name)
