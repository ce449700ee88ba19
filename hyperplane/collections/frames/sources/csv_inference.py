"""Which type a column of CSV has, where pyarrow and pandas do not find the same in its text."""

from __future__ import annotations

from collections.abc import Callable, Collection

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

_HEXADECIMAL = r"^\s*[+-]?0[xX]"
_WHOLE = r"^\s*[+-]?\d+\s*$"
#: From here on a float may be another number than the whole one that is written.
_EXACT = 2.0**53
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
    which would lose digits; so are those beside fractions that are not the same as floats.

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
        if (marked and pa.types.is_integer(column.type)) or may_be_inexact(column)
    ]
    if not odd:
        return table
    texts = as_text(odd)
    for name in odd:
        place = table.column_names.index(name)
        table = table.set_column(place, name, _kept(table.column(name), texts.column(name)))
    return table


def may_be_inexact(column: pa.ChunkedArray) -> bool:
    """Whether numbers taken for floats may be whole ones that are no floats."""
    if not pa.types.is_floating(column.type):
        return False
    return bool(pc.any(_above(column, _EXACT)).as_py())


def _above(column: pa.ChunkedArray, least: float) -> pa.ChunkedArray:
    size = pc.abs(column)
    return pc.and_(pc.greater_equal(size, least), pc.is_finite(size))


def first_inexact(numbers: pa.ChunkedArray, texts: pa.ChunkedArray) -> int | None:
    """The row of the first whole number that is not the same as a float.

    Parameters
    ----------
    numbers : pyarrow.ChunkedArray
        Floats.
    texts : pyarrow.ChunkedArray
        How they are written.
    """
    suspect = pc.and_(_above(numbers, _EXACT), pc.match_substring_regex(texts, _WHOLE))
    for row in pc.indices_nonzero(pc.fill_null(suspect, False)).to_pylist():
        if int(texts[row].as_py()) != int(numbers[row].as_py()):
            return int(row)
    return None


def _kept(found: pa.ChunkedArray, texts: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_integer(found.type):
        return found if first_hexadecimal(texts) is None else texts
    if not pc.all(pc.match_substring_regex(texts, _WHOLE)).as_py():
        return found if first_inexact(found, texts) is None else texts
    if not pc.any(_above(found, _LARGE)).as_py():
        return found
    try:
        return pc.utf8_trim_whitespace(texts).cast(pa.uint64())
    except pa.ArrowInvalid:
        return texts


def families(column: pa.ChunkedArray) -> set[str]:
    """What the values of a column are, for :func:`kind`."""
    found = column.type
    if pa.types.is_null(found):
        return {"nothing"}
    if pa.types.is_boolean(found):
        return {"truth"}
    if not pa.types.is_integer(found):
        return {"number" if pa.types.is_floating(found) else "text"}
    ends = [end for end in pc.min_max(column).as_py().values() if end is not None]
    made = {"negative" if min(ends, default=0) < 0 else "whole"}
    if pa.types.is_uint64(found):
        made = {"large"}
    if any(abs(end) > _EXACT for end in ends):
        values = column.drop_null().to_pylist()
        made |= {"inexact"} if any(int(float(value)) != value for value in values) else set()
    return made


def kind(found: set[str], complete: bool) -> pl.DataType:
    """The type that holds the values of several tables.

    Parameters
    ----------
    found : set of str
        What they are.
    complete : bool
        Whether these are all values.

    Examples
    --------
    >>> kind({"whole", "number"}, True), kind({"whole", "large"}, True), kind({"truth"}, True)
    (Float64, UInt64, Boolean)
    >>> kind({"whole", "inexact", "number"}, True)
    String
    """
    exact = "inexact" not in found
    found = found - {"nothing", "inexact"}
    if found == {"truth"}:
        return pl.Boolean()
    if found and found <= {"whole", "negative"}:
        return pl.Int64()
    if found and found <= {"whole", "large"}:
        return pl.UInt64()
    if exact and "number" in found and found <= {"number", "whole", "negative", "large"}:
        return pl.Float64()
    # A column of nothing: of numbers for pandas; but what was not seen may be anything.
    return pl.Float64() if complete and not found else pl.String()


def distinct(names: Collection[str]) -> tuple[str, ...]:
    """Names as pandas makes them: none is empty, none is there twice, those given once stay.

    Examples
    --------
    >>> distinct(["a", "a", ""]), distinct(["a", "a", "a.1"])
    (('a', 'a.1', 'Unnamed: 2'), ('a', 'a.2', 'a.1'))
    """
    made = [name or f"Unnamed: {place}" for place, name in enumerate(names)]
    counts = dict.fromkeys(made, 0)
    # Names that are made here give way to those of the header.
    order = sorted(range(len(made)), key=[not name for name in names].__getitem__)
    for place in order:
        name = whole = made[place]
        number = counts[name]
        while number:
            counts[whole] = number + 1
            name = f"{whole}.{number}"
            number = number + 1 if name in made else counts.get(name, 0)
        made[place] = name
        counts[name] = number + 1
    return tuple(made)
