"""Messages about lines and values of text files, with advice."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

import polars as pl

from hyperplane.core.errors import ReadError
from hyperplane.formats import column_types

if TYPE_CHECKING:
    from hyperplane.objectstore.locations import File

#: Separators to suggest if the expected one is wrong.
SEPARATORS = (",", ";", "\t", "|")
#: Maximum bytes that are read to find a line number for a message, of remote and local files.
MAX_REMOTE_COUNT, MAX_LOCAL_COUNT = 50_000_000, 4_000_000_000
#: Bytes per read while counting lines.
STEP = 1 << 24
#: Lines that are compared with the header to guess the separator.
COMPARED = 10
#: Advice for a line that cannot be decoded; ``shard_rows`` has no ``on_error``.
SKIP_ADVICE = 'leave out this part of the file with dataframe.read(..., on_error="skip")'


def suggest_dtype(value: object, kind: str) -> str:
    """Return the pandas dtype for a column that has to represent ``value``, too.

    Parameters
    ----------
    value : object
        The value, or its text.
    kind : str
        The current type of the column, as text of Arrow or Polars.

    Examples
    --------
    >>> suggest_dtype("9223372036854775813", "int64"), suggest_dtype("2.5", "int64")
    ('uint64', 'float64')
    """
    text = str(value).strip()
    if "bool" in kind.lower() or isinstance(value, (bool, dict, list)):
        return "str"
    if kind.lower().startswith(("float", "double")):  # float64 represents all other numbers
        return "str"
    if re.fullmatch(r"[+-]?\d+", text):
        value, unsigned = int(text), kind.lower() == "uint64"
        if -(2**63) <= value < 2**63 and not (unsigned and value < 0):
            return "int64"
        return "uint64" if 0 <= value < 2**64 else "str"
    try:
        float(text)
    except ValueError:
        return "str"
    return "float64"


def describe_value(name: str, value: object, kind: str, declared: bool, location: str) -> str:
    """Return the message for a value that does not fit its column's type."""
    why = f"dtypes sets {kind}" if declared else f"its type in the sample was {kind}"
    advice = suggest_dtype(value, kind)
    fix = f"write dtypes={{{name!r}: {advice!r}}}"
    return f"column {name!r} holds {value!r}, but {why} ({location}); {fix}"


def check_non_nullable(
    frame: pl.DataFrame, names: Collection[str], url: str, locate_row: Callable[[int], str]
) -> None:
    """Raise ReadError for missing values in columns whose dtype does not allow them.

    ``locate_row`` returns a description of the line of a row.
    """
    for name in names:
        if name in frame.columns and frame.get_column(name).null_count():
            kind = frame.schema[name]
            row = frame.get_column(name).is_null().arg_max() or 0
            declared, other = (
                column_types.to_pandas_dtype(kind, nullable) for nullable in (False, True)
            )
            raise ReadError(
                url,
                f"column {name!r} has a missing value, but dtypes sets {declared} "
                f"({locate_row(row)}); write dtypes={{{name!r}: '{other}'}}",
            )


def locate_line(file: File, start: int, number: int) -> str:
    """Describe line ``number`` (from 1) of the byte range that starts at ``start``.

    The description has the line number in the file, unless counting the lines before the range
    would take too long.
    """
    if start > (MAX_LOCAL_COUNT if file.store.local else MAX_REMOTE_COUNT):
        return f"line {number} after byte {start}"
    before = 0
    if file.compression:
        with file.open() as opened:
            before = bytes(opened.read(start)).count(b"\n")
    else:
        for position in range(0, start, STEP):
            before += file.read_range(position, min(start, position + STEP)).count(b"\n")
    return f"line {before + number} of the file"


def excerpt_line(data: bytes, offset: int) -> str:
    """Return the line that contains an offset, shortened."""
    first = data.rfind(b"\n", 0, offset) + 1
    text = data[first : first + 200].splitlines()[0].decode("utf-8", "replace")
    return text if len(text) <= 60 else f"{text[:57]}..."


def describe_open_quote(location: str, text: str) -> str:
    """Return the message for a quote that is not closed."""
    return (
        f"{location} has an opening quote without a closing one before a separator or line end: "
        f"{text!r}; close it, or double it inside a quoted value"
    )


def describe_row_length(message: str, names: Sequence[str], separator: str) -> str:
    """Return the message for a row with the wrong number of values, with advice."""
    other = guess_separator(names[0], (), separator) if len(names) == 1 else None
    if other:
        return (
            f"{message}; the header separates its columns by {other!r}: write separator={other!r}"
        )
    return (
        f"{message}; correct the line, name all columns with names=[...] if the file has no "
        f"complete header, or {SKIP_ADVICE}"
    )


def guess_separator(header: str, lines: Sequence[str], separator: str) -> str | None:
    """Return another separator that splits header and lines into equally many values, or None.

    Parameters
    ----------
    header : str
        The header, which does not contain the expected separator.
    lines : sequence of str
        Some of the lines that follow.
    separator : str
        The expected separator.

    Examples
    --------
    >>> guess_separator("day;city", ["1;Rome", "2;Oslo"], ",")
    ';'
    """
    candidates = []
    for other in SEPARATORS:
        counts = {len(row) for row in csv.reader([header, *lines], delimiter=other) if row}
        if other != separator and len(counts) == 1:
            candidates.append((max(counts), other))
    most, other = max(candidates, default=(1, ""))
    return other if most > 1 else None
