"""Columns of CSV and JSON lines: format them as text, and parse them back to their types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hyperplane.core.errors import DataError

#: Type of text columns, without a limit of 2 GiB.
TEXT = pa.large_string()
_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000}
#: Block size for pyarrow, and its maximum, which is used if a row is longer than a block.
_BLOCK_BYTES, _MAX_BLOCK_BYTES = 1 << 22, 2**31 - 1
#: Days from 1970 to the first day of the year 1 and to the last of 9999: years of four digits.
_YEARS = (-719_162, 2_932_896)


def value_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values of a column, also if it is dictionary-encoded."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def format_column(column: pa.ChunkedArray, name: str, format_name: str) -> pa.ChunkedArray:
    """Return a column as text from which :func:`parse_column` restores the values.

    Parameters
    ----------
    column : pyarrow.ChunkedArray
        Of any type that is not nested.
    name, format_name : str
        The column and the format, for errors.

    Raises
    ------
    DataError
        If text cannot represent the values without loss.

    Examples
    --------
    >>> format_column(pa.chunked_array([[1.0, None]]), "x", "CSV").to_pylist()
    ['1.0', None]
    """
    kind = value_type(column.type)
    plain = column.cast(kind) if kind != column.type else column
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return plain.cast(TEXT)
    write = _find_formatter(kind)
    if write is None:
        advice = f"convert it with df[{name!r}].astype(str), or save it as Parquet"
        raise DataError(name, f"{format_name} does not support {_get_type_name(kind)}; {advice}")
    try:
        texts = write(plain)
        exact = _has_exact_text(kind) or _to_storage(parse_column(texts, kind)).equals(
            _to_storage(plain)
        )
    except (pa.ArrowException, ArithmeticError, TypeError, ValueError):
        exact = False
    if not exact:
        advice = "convert it first, or save it as Parquet"
        raise DataError(
            name, f"{format_name} cannot represent some of its values ({kind}); {advice}"
        )
    return texts


def parse_column(texts: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return the values of a type that :func:`format_column` has formatted.

    Raises
    ------
    pyarrow.ArrowException, ValueError
        If a text is not a value of that type.
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
        # pyarrow does not parse fractional seconds of a time of day.
        unit = "ns" if kind == pa.time64("ns") else "us"
        return (
            join_texts("1970-01-01 ", texts)
            .cast(pa.timestamp(unit))
            .cast(pa.time64(unit))
            .cast(kind)
        )
    return texts.cast(kind)


def _to_storage(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the storage of an extension column, as extension arrays never compare equal."""
    if not isinstance(column.type, pa.BaseExtensionType):
        return column
    chunks = [chunk.storage for chunk in column.chunks]
    return pa.chunked_array(chunks, column.type.storage_type)


def _from_pandas(values: Any, kind: pa.DataType) -> pa.ChunkedArray:
    """Return pandas values as an Arrow column."""
    converted = pa.Array.from_pandas(values, type=kind)
    return converted if isinstance(converted, pa.ChunkedArray) else pa.chunked_array([converted])


def _parse_durations(texts: pa.ChunkedArray, kind: pa.DataType) -> Any:
    """Parse durations with pandas."""
    import pandas as pd

    return pd.to_timedelta(pd.Series(texts.to_pylist(), dtype=object)).dt.as_unit(kind.unit)


def _parse_periods(texts: pa.ChunkedArray, kind: pa.DataType) -> Any:
    """Parse periods with pandas."""
    import pandas as pd

    return pd.Series(pd.PeriodIndex(texts.to_pylist(), freq=kind.freq))


def _is_period(kind: pa.DataType) -> bool:
    """Return whether a type is a pandas period."""
    return getattr(kind, "extension_name", "") == "pandas.period"


def _has_exact_text(kind: pa.DataType) -> bool:
    """Return whether text is exact for each value of a type, so that no check is needed."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_null(kind)
        or pa.types.is_float32(kind)
        or pa.types.is_float64(kind)
    )


def _get_type_name(kind: pa.DataType) -> str:
    """Return the name of a type in messages."""
    return getattr(kind, "extension_name", "") or str(kind)


def _find_formatter(kind: pa.DataType) -> Callable[[pa.ChunkedArray], pa.ChunkedArray] | None:
    """Return the function that formats columns of a type; None if unsupported."""
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
    """Format floats as Python does, so that other programs read 1.0 and not the integer 1."""
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    texts = column.cast(TEXT)
    bare = pc.match_substring_regex(texts, r"^-?\d+$")
    return pc.if_else(bare, join_texts(texts, ".0"), texts)


def join_texts(*columns: Any, between: str = "") -> pa.ChunkedArray:
    """Concatenate texts and text columns row by row."""
    texts = [
        pa.scalar(column, TEXT) if isinstance(column, str) else column.cast(TEXT)
        for column in columns
    ]
    return pc.binary_join_element_wise(*texts, pa.scalar(between, TEXT))


def _format_times(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Format times in their zone, or in UTC if the zone's offset cannot be parsed back."""
    kind = column.type
    if kind.unit != "ns" and len(column):
        ends = pc.min_max(column.cast(pa.int64())).as_py()
        first, last = (day * _DAY[kind.unit] for day in (_YEARS[0], _YEARS[1] + 1))
        if ends["min"] is not None and not (first <= ends["min"] and ends["max"] < last):
            raise ValueError("years of more than four digits")
    texts = _format_with_pandas(column)
    if kind.tz is None:
        return texts
    try:
        if parse_column(texts, kind).equals(column):
            return texts
    except pa.ArrowException:
        pass  # offsets before standard time have seconds
    return _format_with_pandas(column.cast(pa.timestamp(kind.unit, "UTC")))


def _format_with_pandas(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Format values as pandas does."""
    values = column.to_pandas()
    texts = values.astype("str").astype(object).where(values.notna(), None)
    return pa.chunked_array([pa.array(texts, TEXT)])


def list_file_columns(schema: pa.Schema) -> list[str]:
    """Return the column names in a file; an index without a name is called ``index``."""
    taken = set(schema.names)
    return [
        "index" if name == "__index_level_0__" and "index" not in taken else name
        for name in schema.names
    ]


def read_in_blocks(read: Callable[[int], pa.Table], data: bytes) -> pa.Table:
    """Call ``read`` with a block size, and again with the largest if a row exceeds it."""
    try:
        return read(_BLOCK_BYTES)
    except pa.ArrowInvalid as error:
        if "straddl" not in str(error):
            raise
    return read(min(_MAX_BLOCK_BYTES, len(data) + 1))


def parse_columns(columns: Sequence[Any], schema: pa.Schema) -> pa.Table:
    """Return a table with columns of text, or of JSON values, as the types of a schema."""
    cast = [
        parse_column(column, field.type)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        else column.cast(value_type(field.type))
        for column, field in zip(columns, schema, strict=True)
    ]
    fields = [pa.field(field.name, column.type) for field, column in zip(schema, cast, strict=True)]
    return pa.table(cast, schema=pa.schema(fields, schema.metadata))


def is_text(kind: pa.DataType) -> bool:
    """Return whether the values of a type are text."""
    kind = value_type(kind)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def build_integer_column(values: Sequence[Any]) -> Any:
    """Return integers as int64 or uint64, nullable if some are missing; else as objects."""
    import numpy as np
    import pandas as pd

    present = [value for value in values if value is not None]
    least, most = min(present, default=0), max(present, default=0)
    if least >= -(2**63) and most < 2**63:
        name = "Int64"
    elif least >= 0 and most < 2**64:
        name = "UInt64"
    else:
        objects = np.empty(len(values), dtype=object)
        objects[:] = list(values)
        return pd.Series(objects, dtype=object)
    if len(present) == len(values):
        # Not pandas.array, which rounds integers of 2**63 and more to floats.
        return np.array(values, dtype=name.lower())
    dtype: Any = name
    return pd.array(list(values), dtype=dtype)
