"""Which type a column of CSV has, where pyarrow and pandas do not find the same in its text."""

from __future__ import annotations

from collections.abc import Callable, Collection

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

_HEXADECIMAL = r"^\s*[+-]?0[xX]"
_WHOLE = r"^\s*[+-]?\d+\s*$"
#: From here on a whole number is no int64.
_LARGE = 2.0**63

#: Makes text of some columns of the same lines.
AsText = Callable[[Collection[str]], pa.Table]


def may_be_hexadecimal(data: bytes) -> bool:
    """Whether any number of a text may be hexadecimal."""
    return b"0x" in data or b"0X" in data


def first_hexadecimal(texts: pa.ChunkedArray) -> int | None:
    """The row of the first hexadecimal number."""
    found = pc.index(pc.match_substring_regex(texts, _HEXADECIMAL), True).as_py()
    return None if found < 0 else int(found)


def as_pandas(table: pa.Table, data: bytes, as_text: AsText) -> pa.Table:
    """A table with the types that pandas finds, where pyarrow finds others in the same text.

    Hexadecimal numbers are text. Whole numbers beyond int64 are uint64 or else text, not floats,
    which would lose digits.

    Parameters
    ----------
    table : pyarrow.Table
        With the types that pyarrow found.
    data : bytes
        The text.
    as_text : callable
        Given names, makes a table of text of these columns.
    """
    marked = may_be_hexadecimal(data)
    odd = [
        name
        for name, column in zip(table.column_names, table.columns, strict=True)
        if (marked and pa.types.is_integer(column.type)) or _is_large(column)
    ]
    if not odd:
        return table
    texts = as_text(odd)
    for name in odd:
        place = table.column_names.index(name)
        table = table.set_column(place, name, _kept(table.column(name), texts.column(name)))
    return table


def _is_large(column: pa.ChunkedArray) -> bool:
    """Whether among numbers taken for floats there may be whole ones that are no int64."""
    if not pa.types.is_floating(column.type):
        return False
    size = pc.abs(column)
    large = pc.and_(pc.greater_equal(size, _LARGE), pc.is_finite(size))
    return bool(pc.any(large).as_py())


def _kept(found: pa.ChunkedArray, texts: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_integer(found.type):
        return found if first_hexadecimal(texts) is None else texts
    if not pc.all(pc.match_substring_regex(texts, _WHOLE)).as_py():
        return found
    try:
        return pc.utf8_trim_whitespace(texts).cast(pa.uint64())
    except pa.ArrowInvalid:
        return texts


def family(column: pa.ChunkedArray) -> str:
    """What the values of a column are, for :func:`kind`."""
    found = column.type
    if pa.types.is_null(found):
        return "nothing"
    if pa.types.is_boolean(found):
        return "truth"
    if pa.types.is_uint64(found):
        return "large"
    if pa.types.is_integer(found):
        return "negative" if (pc.min(column).as_py() or 0) < 0 else "whole"
    return "number" if pa.types.is_floating(found) else "text"


def kind(families: set[str], complete: bool) -> pl.DataType:
    """The type that holds the values of several tables.

    Parameters
    ----------
    families : set of str
        What they are.
    complete : bool
        Whether these are all values.

    Examples
    --------
    >>> kind({"whole", "number"}, True), kind({"whole", "large"}, True), kind({"truth"}, True)
    (Float64, UInt64, Boolean)
    """
    families = families - {"nothing"}
    if families == {"truth"}:
        return pl.Boolean()
    if families and families <= {"whole", "negative"}:
        return pl.Int64()
    if families and families <= {"whole", "large"}:
        return pl.UInt64()
    if "number" in families and families <= {"number", "whole", "negative", "large"}:
        return pl.Float64()
    # A column of nothing: of numbers for pandas; but what was not seen may be anything.
    return pl.Float64() if complete and not families else pl.String()


def distinct(names: Collection[str]) -> tuple[str, ...]:
    """Names as pandas makes them: none is empty, none is there twice.

    Examples
    --------
    >>> distinct(["a", "a", ""])
    ('a', 'a.1', 'Unnamed: 2')
    """
    made: list[str] = []
    for place, name in enumerate(names):
        whole = name or f"Unnamed: {place}"
        one, number = whole, 0
        while one in made:
            number += 1
            one = f"{whole}.{number}"
        made.append(one)
    return tuple(made)
