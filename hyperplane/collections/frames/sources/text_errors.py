"""What is wrong with lines and values of text, and what to write instead."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

import polars as pl

from hyperplane.collections.frames.sources import types
from hyperplane.errors import ReadError

if TYPE_CHECKING:
    from hyperplane.stores.places import File

#: Separators that files have in place of the one that was expected.
SEPARATORS = (",", ";", "\t", "|")
#: Bytes before a span in which lines are counted for a message: of a store, and of this machine.
MAX_REMOTE_COUNT, MAX_LOCAL_COUNT = 50_000_000, 4_000_000_000
#: Bytes that are read at once for it.
STEP = 1 << 24
#: Lines that are compared with the header where another separator is looked for.
COMPARED = 10


def suggest_dtype(value: object, kind: str) -> str:
    """The pandas type that holds a value which the type of its column does not.

    Parameters
    ----------
    held : object
        The value, or its text.
    kind : str
        The type of the column, as Arrow or Polars writes it.

    Examples
    --------
    >>> suggest_dtype("9223372036854775813", "int64"), suggest_dtype("2.5", "int64")
    ('uint64', 'float64')
    """
    text = str(value).strip()
    if "bool" in kind.lower() or isinstance(value, (bool, dict, list)):
        return "str"
    if kind.lower().startswith(("float", "double")):  # which holds all but such numbers
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


def describe_value(name: str, value: object, kind: str, declared: bool, place: str) -> str:
    """That a value does not fit the type of its column, and which type would.

    Parameters
    ----------
    name : str
        The column.
    held : object
        The value.
    kind : str
        The type of the column.
    asked : bool
        Whether the caller set it.
    place : str
        Where the value is.
    """
    why = f"dtypes asks for {kind}" if declared else f"the sample held {kind}"
    advice = suggest_dtype(value, kind)
    fix = f"write dtypes={{{name!r}: {advice!r}}}"
    return f"column {name!r} holds {value!r}, but {why} ({place}); {fix}"


def check_non_nullable(
    frame: pl.DataFrame, names: Collection[str], url: str, place: Callable[[int], str]
) -> None:
    """Refuse missing values where the caller's type has none; as floats numbers lose digits.

    Parameters
    ----------
    frame : polars.DataFrame
        The rows.
    names : collection of str
        Columns without missing values.
    url : str
        The file.
    place : callable
        Names the line of a row.
    """
    for name in names:
        if name in frame.columns and frame.get_column(name).null_count():
            kind = frame.schema[name]
            row = frame.get_column(name).is_null().arg_max() or 0
            declared, other = (types.to_pandas_dtype(kind, nullable) for nullable in (False, True))
            raise ReadError(
                url,
                f"column {name!r} holds nothing, but dtypes asks for {declared} ({place(row)}); "
                f"write dtypes={{{name!r}: '{other}'}}",
            )


def locate_line(file: File, start: int, number: int) -> str:
    """Which line of a file one of a span of it is, if that is not far.

    Parameters
    ----------
    file : File
        The file.
    start : int
        Where the span begins.
    number : int
        The number of the line in the span, from 1.
    """
    if start > (MAX_LOCAL_COUNT if file.store.local else MAX_REMOTE_COUNT):
        return f"line {number} of what begins at byte {start}"
    before = 0
    if file.packing:
        with file.opened() as opened:
            before = bytes(opened.read(start)).count(b"\n")
    else:
        for position in range(0, start, STEP):
            before += file.between(position, min(start, position + STEP)).count(b"\n")
    return f"line {before + number} of the file"


def excerpt_line(data: bytes, offset: int) -> str:
    """The line that a byte is in, shortened."""
    first = data.rfind(b"\n", 0, offset) + 1
    text = data[first : first + 200].splitlines()[0].decode("utf-8", "replace")
    return text if len(text) <= 60 else f"{text[:57]}..."


def describe_open_quote(place: str, text: str) -> str:
    """That a quote opens and is not closed."""
    return (
        f"in {place} a quote opens that is not closed before a separator or the end of a line: "
        f"{text!r}; close it, or write it twice in a value that is quoted"
    )


def describe_row_length(wrong: str, names: Sequence[str], separator: str) -> str:
    """What is wrong with the length of a row, and what can be done."""
    other = guess_separator(names[0], (), separator) if len(names) == 1 else None
    if other:
        return f"{wrong}; the header has {other!r} between its columns: write separator={other!r}"
    return (
        f"{wrong}; correct the line, name all columns with names=[...] where the file has no "
        'header of them, or leave out this part of the file with on_error="skip"'
    )


def guess_separator(header: str, lines: Sequence[str], separator: str) -> str | None:
    """Another separator, that divides a header and as many values of each line.

    Parameters
    ----------
    header : str
        Without the separator that was expected.
    lines : sequence of str
        Some of the lines that follow.
    separator : str
        The one that was expected.

    Examples
    --------
    >>> guess_separator("day;city", ["1;Rome", "2;Oslo"], ",")
    ';'
    """
    found = []
    for other in SEPARATORS:
        counts = {len(one) for one in csv.reader([header, *lines], delimiter=other) if one}
        if other != separator and len(counts) == 1:
            found.append((max(counts), other))
    most, other = max(found, default=(1, ""))
    return other if most > 1 else None
