"""Columns as text, and back: what CSV and JSON lines hold of types that they do not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hyperplane.errors import DataError

#: Text of a column, however much it is.
TEXT = pa.large_string()
_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000}
#: Days since 1970 of the years 1 to 9999, which four digits hold.
_YEARS = (-719_162, 2_932_896)


def value_type(kind: pa.DataType) -> pa.DataType:
    """The type of the values of a column, of which a dictionary is but another form."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def format_column(column: pa.ChunkedArray, name: str, form: str) -> pa.ChunkedArray:
    """The values as text, from which :func:`from_text` makes the same values.

    Parameters
    ----------
    column : pyarrow.ChunkedArray
        Of any type that is not nested.
    name, form : str
        The column and the format, for errors.

    Raises
    ------
    DataError
        When there is no text that gives the same values back.

    Examples
    --------
    >>> as_text(pa.chunked_array([[1.0, None]]), "x", "CSV").to_pylist()
    ['1.0', None]
    """
    kind = value_type(column.type)
    plain = column.cast(kind) if kind != column.type else column
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return plain.cast(TEXT)
    write = _find_formatter(kind)
    if write is None:
        advice = f"convert it first, as with df[{name!r}].astype(str), or save it as Parquet"
        raise DataError(name, f"{form} has no form for {_type_name(kind)}; {advice}")
    try:
        made = write(plain)
        exact = _has_exact_text(kind) or _to_storage(parse_column(made, kind)).equals(
            _to_storage(plain)
        )
    except (pa.ArrowException, ArithmeticError, TypeError, ValueError):
        exact = False
    if not exact:
        advice = "convert it first, or save it as Parquet"
        raise DataError(name, f"{form} has no text for some of its values ({kind}); {advice}")
    return made


def parse_column(texts: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """The values of a type that :func:`as_text` has made text of.

    Raises
    ------
    pyarrow.ArrowException, ValueError
        When a text is no value of that type.
    """
    kind = value_type(kind)
    if pa.types.is_null(kind):
        return pa.chunked_array([pa.nulls(len(texts))])
    if pa.types.is_duration(kind):
        return _from_pandas(_parse_durations(texts, kind), kind)
    if _is_period(kind):
        return _from_pandas(_parse_periods(texts, kind), kind)
    if pa.types.is_float16(kind):
        return texts.cast(pa.float32()).cast(kind)
    if pa.types.is_time(kind):
        # pyarrow knows no fractions of seconds in the text of a time of day.
        unit = "ns" if kind == pa.time64("ns") else "us"
        return (
            join_texts("1970-01-01 ", texts)
            .cast(pa.timestamp(unit))
            .cast(pa.time64(unit))
            .cast(kind)
        )
    return texts.cast(kind)


def _to_storage(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values without the name of an extension, under which none is equal to another."""
    if not isinstance(column.type, pa.BaseExtensionType):
        return column
    chunks = [chunk.storage for chunk in column.chunks]
    return pa.chunked_array(chunks, column.type.storage_type)


def _from_pandas(values: Any, kind: pa.DataType) -> pa.ChunkedArray:
    made = pa.Array.from_pandas(values, type=kind)
    return made if isinstance(made, pa.ChunkedArray) else pa.chunked_array([made])


def _parse_durations(texts: pa.ChunkedArray, kind: pa.DataType) -> Any:
    import pandas as pd

    return pd.to_timedelta(pd.Series(texts.to_pylist(), dtype=object)).dt.as_unit(kind.unit)


def _parse_periods(texts: pa.ChunkedArray, kind: pa.DataType) -> Any:
    import pandas as pd

    return pd.Series(pd.PeriodIndex(texts.to_pylist(), freq=kind.freq))


def _is_period(kind: pa.DataType) -> bool:
    return getattr(kind, "extension_name", "") == "pandas.period"


def _has_exact_text(kind: pa.DataType) -> bool:
    """Types of which the text needs no second look."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_null(kind)
        or pa.types.is_float32(kind)
        or pa.types.is_float64(kind)
    )


def _type_name(kind: pa.DataType) -> str:
    return getattr(kind, "extension_name", "") or str(kind)


def _find_formatter(kind: pa.DataType) -> Callable[[pa.ChunkedArray], pa.ChunkedArray] | None:
    if pa.types.is_floating(kind):
        return _format_floats
    if pa.types.is_boolean(kind):
        return lambda column: pc.utf8_capitalize(column.cast(TEXT))
    if pa.types.is_timestamp(kind):
        return _format_times
    if pa.types.is_duration(kind) or _is_period(kind):
        return _format_with_pandas
    plain = (pa.types.is_integer, pa.types.is_decimal, pa.types.is_date, pa.types.is_time)
    if any(holds(kind) for holds in (*plain, pa.types.is_null)):
        return lambda column: column.cast(TEXT)
    return None


def _format_floats(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """As Python writes them, so that other programs see 1.0 and not the whole number 1."""
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    texts = column.cast(TEXT)
    bare = pc.match_substring_regex(texts, r"^-?\d+$")
    return pc.if_else(bare, join_texts(texts, ".0"), texts)


def join_texts(*pieces: Any, between: str = "") -> pa.ChunkedArray:
    """Texts, or columns of them, one after the other in each row."""
    texts = [pa.scalar(one, TEXT) if isinstance(one, str) else one.cast(TEXT) for one in pieces]
    return pc.binary_join_element_wise(*texts, pa.scalar(between, TEXT))


def _format_times(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if kind.unit != "ns" and len(column):
        ends = pc.min_max(column.cast(pa.int64())).as_py()
        first, last = (day * _DAY[kind.unit] for day in (_YEARS[0], _YEARS[1] + 1))
        if ends["min"] is not None and not (first <= ends["min"] and ends["max"] < last):
            raise ValueError("years of more than four digits")
    made = _format_with_pandas(column)
    if kind.tz is None:
        return made
    try:
        if parse_column(made, kind).equals(column):
            return made
    except pa.ArrowException:
        pass  # an offset with seconds, of times before there were zones
    return _format_with_pandas(column.cast(pa.timestamp(kind.unit, "UTC")))


def _format_with_pandas(column: pa.ChunkedArray) -> pa.ChunkedArray:
    values = column.to_pandas()
    texts = values.astype("str").astype(object).where(values.notna(), None)
    return pa.chunked_array([pa.array(texts, TEXT)])
