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
from hyperplane.collections.frames.fitting import EXACT
from hyperplane.errors import DataError

_UNITS = ("ms", "us", "ns")
_ADVICE = "make them one, as with astype('str')"


def together(tables: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Tables of the same columns as one, in their order.

    Raises
    ------
    DataError
        When a column has values of different kinds, or numbers that no common type holds.
    """
    if len(tables) == 1:
        return tables[0]
    schema = tables[0].schema
    if all(table.schema == schema for table in tables[1:]):
        return pl.concat(tables)
    wanted = {
        name: common_type(name, [table.get_column(name) for table in tables]) for name in schema
    }
    return pl.concat([_cast(table, wanted) for table in tables])


def common_type(name: str, columns: Sequence[pl.Series]) -> pl.DataType:
    """The type of Polars that holds the values of all of these columns.

    Raises
    ------
    DataError
        When there is none.
    """
    made: pl.DataType | None = None
    for column in columns:
        found = column.dtype if made is None else _common(made, column.dtype)
        if found is None:
            some = column.drop_nulls().head(1).to_list()
            raise DataError(
                _column(name),
                f"holds {_word(made)} in one partition and {_word(column.dtype)} in another"
                f"{', such as ' + repr(some[0])[:60] if some else ''}; {_ADVICE}",
            )
        made = found
    return made if made is not None else pl.Null()


def _common(one: Any, other: Any) -> pl.DataType | None:
    """The common type of two; None where there is none."""
    if one == other or other == pl.Null:
        return one
    if one == pl.Null:
        return other
    lists = isinstance(one, pl.List) and isinstance(other, pl.List)
    if lists:
        inner = _common(one.inner, other.inner)
        return None if inner is None else pl.List(inner)
    if isinstance(one, pl.Struct) and isinstance(other, pl.Struct):
        return _common_struct(one, other)
    for kind in (pl.Datetime, pl.Duration):
        if isinstance(one, kind) and isinstance(other, kind):
            if getattr(one, "time_zone", None) != getattr(other, "time_zone", None):
                return None
            return max(one, other, key=lambda each: _UNITS.index(each.time_unit))
    numbers = [kind for kind in (one, other) if kind.is_numeric() or kind == pl.Boolean]
    if len(numbers) < 2:
        return None
    return _common_number(one, other)


def _common_struct(one: pl.Struct, other: pl.Struct) -> pl.DataType | None:
    if [field.name for field in one.fields] != [field.name for field in other.fields]:
        return None
    inner = [_common(a.dtype, b.dtype) for a, b in zip(one.fields, other.fields, strict=True)]
    if None in inner:
        return None
    names = [field.name for field in one.fields]
    return pl.Struct(dict(zip(names, inner, strict=True)))  # type: ignore[arg-type]


def _common_number(one: pl.DataType, other: pl.DataType) -> pl.DataType | None:
    decimals = [kind for kind in (one, other) if kind.is_decimal()]
    if any(kind.is_float() for kind in (one, other)):
        narrow = all(kind.is_float() and kind != pl.Float64 for kind in (one, other))
        return None if decimals else (pl.Float32() if narrow else pl.Float64())
    empty = [pl.DataFrame(schema={"x": kind}) for kind in (one, other)]
    try:
        return pl.concat(empty, how="vertical_relaxed").schema["x"]
    except pl.exceptions.PolarsError:
        return None


def _cast(table: pl.DataFrame, wanted: dict[str, pl.DataType]) -> pl.DataFrame:
    """A table in other types; no value becomes another one."""
    for name, kind in wanted.items():
        if table.schema[name] == kind:
            continue
        column = table.get_column(name)
        try:
            made = column.cast(kind)
        except pl.exceptions.PolarsError as error:
            raise DataError(_column(name), _lost(column, kind)) from error
        if column.dtype != pl.Null and not _is_exact(column, made):
            raise DataError(_column(name), _lost(column, kind))
        table = table.with_columns(made)
    return table


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
        limit = EXACT if made.dtype == pl.Float64 else 2**24
        least: Any = column.min()
        most: Any = column.max()
        return least is None or bool(-limit <= least and most <= limit)
    if isinstance(column.dtype, (pl.Datetime, pl.Duration)):  # an overflow goes round
        return bool(made.cast(column.dtype).eq_missing(column).all())
    return True


def _lost(column: pl.Series, kind: pl.DataType) -> str:
    there = column.drop_nulls()
    numbers = there.dtype.is_numeric()
    value = (there.max() if numbers else there.first()) if len(there) else None
    return (
        f"holds {_word(column.dtype)} in one partition, such as {value!r:.60}, and {_word(kind)} "
        "in another, which cannot hold all of them; make partitions of one type with astype(...)"
    )


def _word(kind: Any) -> str:
    return "text" if kind == pl.String else str(kind).lower()


def _column(name: str) -> str:
    """The column of pandas; those of states have its name in their own."""
    state = re.fullmatch(r"__\d+_[a-z0-9]+_(.*)__n?", name, re.DOTALL)
    return unescape(state[1] if state else name)
