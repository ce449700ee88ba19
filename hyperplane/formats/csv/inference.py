"""Infer column types of CSV as pandas does, where pyarrow infers other types."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from hyperplane.core.units import MAX_EXACT_FLOAT

_HEXADECIMAL = r"^\s*[+-]?0[xX]"
_WHOLE = r"^\s*[+-]?\d+\s*$"
#: From this value on, an integer does not fit into int64.
_MIN_BEYOND_INT64 = 2.0**63

#: Bytes that are compared at once, and the bit that is set in lower case letters.
_BLOCK, _LOWER = 1 << 18, 0x20

#: Parses some columns of the same lines as text.
AsText = Callable[[Collection[str]], pa.Table]


def may_be_hexadecimal(data: bytes) -> bool:
    """Whether the data may contain hexadecimal numbers.

    ``b"0x" in data`` takes 30 times as long as the search of one byte, and 5 times as long as
    NumPy, which compares blocks that fit into the CPU cache.

    Examples
    --------
    >>> may_be_hexadecimal(b"1,0xff"), may_be_hexadecimal(b"10,x")
    (True, False)
    """
    if b"x" not in data and b"X" not in data:
        return False
    values = np.frombuffer(data, np.uint8)
    for start in range(0, len(values), _BLOCK):
        part = values[start : start + _BLOCK + 1]  # with the first byte of the next block
        if ((part[:-1] == ord("0")) & (part[1:] | _LOWER == ord("x"))).any():
            return True
    return False


def find_hexadecimal(texts: pa.ChunkedArray) -> int | None:
    """Return the row of the first hexadecimal number, or None."""
    row = pc.index(pc.match_substring_regex(texts, _HEXADECIMAL), True).as_py()
    return None if row < 0 else int(row)


def match_pandas_types(table: pa.Table, data: bytes, as_text: AsText) -> pa.Table:
    """Return a table with the column types that pandas infers instead of those of pyarrow.

    Hexadecimal numbers become text. Integers beyond int64 become uint64 or else text, instead of
    floats, which would lose digits. Columns that mix fractions with integers that float64 cannot
    represent become text, too.

    Parameters
    ----------
    table : pyarrow.Table
        Parsed with the types that pyarrow inferred.
    data : bytes
        The CSV text.
    as_text : callable
        Returns some columns, by name, as text.
    """
    marked = may_be_hexadecimal(data)
    ambiguous = [
        name
        for name, column in zip(table.column_names, table.columns, strict=True)
        if (marked and pa.types.is_integer(column.type)) or may_be_inexact(column)
    ]
    if not ambiguous:
        return table
    texts = as_text(ambiguous)
    for name in ambiguous:
        index = table.column_names.index(name)
        table = table.set_column(
            index, name, _choose_column(table.column(name), texts.column(name))
        )
    return table


def may_be_inexact(column: pa.ChunkedArray) -> bool:
    """Whether floats are large enough to have been integers that float64 cannot represent."""
    if not pa.types.is_floating(column.type):
        return False
    # One kernel for almost all columns: it skips missing values and NaN.
    ends = [end for end in pc.min_max(column).as_py().values() if end is not None]
    if all(abs(end) < MAX_EXACT_FLOAT for end in ends):
        return False
    return bool(pc.any(_is_at_least(column, float(MAX_EXACT_FLOAT))).as_py())


def _is_at_least(column: pa.ChunkedArray, least: float) -> pa.ChunkedArray:
    size = pc.abs(column)
    return pc.and_(pc.greater_equal(size, least), pc.is_finite(size))


def find_inexact(numbers: pa.ChunkedArray, texts: pa.ChunkedArray) -> int | None:
    """Return the row of the first integer that its float does not equal, or None.

    Parameters
    ----------
    numbers : pyarrow.ChunkedArray
        The values parsed as floats.
    texts : pyarrow.ChunkedArray
        The same values as text.
    """
    suspect = pc.and_(
        _is_at_least(numbers, float(MAX_EXACT_FLOAT)), pc.match_substring_regex(texts, _WHOLE)
    )
    for row in pc.indices_nonzero(pc.fill_null(suspect, False)).to_pylist():
        if int(texts[row].as_py()) != int(numbers[row].as_py()):
            return int(row)
    return None


def _choose_column(inferred: pa.ChunkedArray, texts: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_integer(inferred.type):
        return inferred if find_hexadecimal(texts) is None else texts
    if not pc.all(pc.match_substring_regex(texts, _WHOLE)).as_py():
        return inferred if find_inexact(inferred, texts) is None else texts
    if not pc.any(_is_at_least(inferred, _MIN_BEYOND_INT64)).as_py():
        return inferred
    try:
        return pc.utf8_trim_whitespace(texts).cast(pa.uint64())
    except pa.ArrowInvalid:
        return texts


def classify_values(column: pa.ChunkedArray) -> set[str]:
    """Return the categories of the values of a column, for :func:`choose_type`.

    ``whole`` means integers that are not negative, ``negative`` those of which some are, ``large``
    the type uint64, and ``inexact`` in addition that float64 does not represent one of them.
    """
    inferred = column.type
    if pa.types.is_null(inferred):
        return {"nothing"}
    if pa.types.is_boolean(inferred):
        return {"boolean"}
    if not pa.types.is_integer(inferred):
        return {"number" if pa.types.is_floating(inferred) else "text"}
    ends = [end for end in pc.min_max(column).as_py().values() if end is not None]
    categories = {"negative" if min(ends, default=0) < 0 else "whole"}
    if pa.types.is_uint64(inferred):
        categories = {"large"}
    if any(abs(end) > MAX_EXACT_FLOAT for end in ends):
        values = column.drop_null().to_pylist()
        categories |= {"inexact"} if any(int(float(value)) != value for value in values) else set()
    return categories


def choose_type(categories: set[str], complete: bool) -> pl.DataType:
    """Return a type that can represent the values of several tables.

    Parameters
    ----------
    categories : set of str
        Categories from :func:`classify_values`.
    complete : bool
        Whether all values were seen, instead of a sample.

    Examples
    --------
    >>> choose_type({"whole", "number"}, True), choose_type({"whole", "large"}, True)
    (Float64, UInt64)
    >>> choose_type({"whole", "inexact", "number"}, True)
    String
    """
    exact = "inexact" not in categories
    categories = categories - {"nothing", "inexact"}
    if categories == {"boolean"}:
        return pl.Boolean()
    if categories and categories <= {"whole", "negative"}:
        return pl.Int64()
    if categories and categories <= {"whole", "large"}:
        return pl.UInt64()
    if exact and "number" in categories and categories <= {"number", "whole", "negative", "large"}:
        return pl.Float64()
    # pandas makes an empty column float64; in a sample, later values may have any type.
    return pl.Float64() if complete and not categories else pl.String()


def deduplicate_names(names: Collection[str]) -> tuple[str, ...]:
    """Return unique, nonempty column names, renamed as pandas does.

    Examples
    --------
    >>> deduplicate_names(["a", "a", ""]), deduplicate_names(["a", "a", "a.1"])
    (('a', 'a.1', 'Unnamed: 2'), ('a', 'a.2', 'a.1'))
    """
    unique = [name or f"Unnamed: {index}" for index, name in enumerate(names)]
    counts = dict.fromkeys(unique, 0)
    # Generated names are deduplicated after those of the header.
    order = sorted(range(len(unique)), key=[not name for name in names].__getitem__)
    for index in order:
        name = base = unique[index]
        number = counts[name]
        while number:
            counts[base] = number + 1
            name = f"{base}.{number}"
            number = number + 1 if name in unique else counts.get(name, 0)
        unique[index] = name
        counts[name] = number + 1
    return tuple(unique)
