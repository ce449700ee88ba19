"""Parse whole CSV records with Polars, where its result is that of pyarrow.

Polars takes a third to nine tenths of the CPU time of pyarrow. It differs from pyarrow and pandas
in these cases, which are left to pyarrow: files of one column, quotes within values, lone carriage
returns, rows that are too short, blank lines, and numbers of blanks only. It also rejects some
values that pyarrow accepts, such as a number that a blank follows.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from polars import selectors

from hyperplane.core.units import MAX_EXACT_FLOAT
from hyperplane.formats.csv.missing_values import PANDAS_MISSING

#: Notations of booleans that pandas accepts.
TRUE, FALSE = ("True", "TRUE", "true"), ("False", "FALSE", "false")
_SEPARATORS = (b",", b";", b"\t", b"|")
_KINDS = (pl.Int64, pl.UInt64, pl.Float64, pl.String, pl.Boolean)
#: Bytes that NumPy compares at once, which fit into the CPU cache.
_BLOCK = 1 << 18
#: Number and bytes of the pieces that are searched for a notation of missing numbers.
_PIECES, _PIECE = 8, 1 << 12


class Records(NamedTuple):
    """Parsed records.

    Parameters
    ----------
    frame : polars.DataFrame
        All columns. Missing values are null, never NaN.
    large_floats : list of str
        The columns of floats with values that may be integers that float64 rounds.
    """

    frame: pl.DataFrame
    large_floats: list[str]


def parse_records(
    data: bytes, separator: bytes, kinds: Mapping[str, pl.DataType]
) -> Records | None:
    r"""Return the values of CSV text in UTF-8; None if pyarrow must parse it.

    Parameters
    ----------
    data : bytes
        Whole records without a header, whose quotes are sound (see :mod:`.quotes`).
    separator : bytes
        The separator between values.
    kinds : mapping of str to polars.DataType
        All columns.

    Examples
    --------
    >>> kinds = {"n": pl.Int64(), "s": pl.String()}
    >>> parse_records(b'1,"a,b"\nNA,NA\n', b",", kinds).frame.rows()
    [(1, 'a,b'), (None, None)]
    >>> parse_records(b"1,a\n2\n", b",", kinds) is None
    True
    """
    if len(kinds) < 2 or separator not in _SEPARATORS or data.startswith(b"\xef\xbb\xbf"):
        return None
    if any(kind not in _KINDS for kind in kinds.values()):
        return None
    if b"\r" in data and data.count(b"\r") != data.count(b"\r\n"):
        return None
    if data.endswith((b"\n\n", b"\n\r\n")):
        data = data.rstrip(b"\r\n")
    if data.endswith(separator):
        data += b"\n"  # without it, Polars accepts a last row with one more, empty value
    # Polars treats names such as ^x$ as patterns.
    parsed = {f"c{n}": _get_parsed_type(kind) for n, kind in enumerate(kinds.values())}
    numbers = [name for name, kind in parsed.items() if kind != pl.String]
    notation = _find_missing_notation(data, separator) if numbers else None
    try:
        frame = pl.read_csv(
            data,
            has_header=False,
            separator=separator.decode(),
            schema=parsed,
            null_values=None if notation is None else dict.fromkeys(numbers, notation),
        )
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return None
    texts = [name for name, kind in parsed.items() if kind == pl.String]
    if frame.to_series(-1).null_count() and not _are_complete(frame, texts, data, separator):
        return None
    if any(frame.get_column(name).null_count() for name in numbers) and may_have_blanks(
        data, separator
    ):
        return None
    frame = _replace_missing(frame, texts)
    booleans = [f"c{n}" for n, kind in enumerate(kinds.values()) if kind == pl.Boolean]
    if booleans:
        converted = _to_booleans(frame, booleans)
        if converted is None:
            return None
        frame = converted
    frame, large = _replace_nan(frame)
    frame.columns = list(kinds)
    return Records(frame, [name for n, name in enumerate(kinds) if f"c{n}" in large])


def _replace_nan(frame: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Set NaN to null; also return the columns of floats that are large."""
    floats = selectors.float()
    if pl.Float64 not in frame.dtypes:
        return frame, []
    # This maximum is NaN if any value is, so that one pass over most columns is enough.
    ends = frame.select(floats.abs().nan_max()).row(0, named=True)
    nan = [name for name, end in ends.items() if end is not None and math.isnan(end)]
    if nan:
        frame = frame.with_columns(pl.col(nan).fill_nan(None))
        ends |= frame.select(pl.col(nan).abs().max()).row(0, named=True)
    large = [name for name, end in ends.items() if end is not None and end >= MAX_EXACT_FLOAT]
    return frame, large


def _get_parsed_type(kind: pl.DataType) -> Any:
    # Polars accepts booleans in any case, which pandas reads as text.
    return pl.String() if kind == pl.Boolean else kind


def _are_complete(frame: pl.DataFrame, texts: list[str], data: bytes, separator: bytes) -> bool:
    """Whether all rows have a value of each column; Polars has rejected longer rows.

    Missing values of shorter rows, and blank lines, are null, as are missing values of the last
    column. Separators within quotes are in the texts.
    """
    quoted = 0
    if b'"' in data and texts:
        sums = frame.select(
            pl.col(texts).str.count_matches(separator.decode(), literal=True).sum()
        ).row(0)
        quoted = sum(count or 0 for count in sums)
    count = sum(int(np.count_nonzero(block == separator[0])) for block in _split_blocks(data))
    return count - quoted == frame.height * (frame.width - 1)


def may_have_blanks(data: bytes, separator: bytes) -> bool:
    """Whether there may be values of blanks only, which are null for Polars if they are numbers.

    Values that begin with two blanks count as such, too.

    Examples
    --------
    >>> may_have_blanks(b"1, ,2", b","), may_have_blanks(b"1, 2,a b", b",")
    (True, False)
    """
    blanks = [blank for blank in b" \t" if blank != separator[0]]
    if not any(bytes([blank]) in data for blank in blanks):
        return False
    if data[0] in blanks:
        return True
    ends = np.zeros(256, bool)
    ends[[*b' \t\r\n"', separator[0]]] = True
    values = np.frombuffer(data, np.uint8)
    for start in range(0, len(values), _BLOCK):
        part = values[start : start + _BLOCK + 1]  # with the first byte of the next block
        blank = np.logical_or.reduce([part[1:] == one for one in blanks])
        if not blank.any():
            continue
        before = part[:-1]
        blank &= (before == separator[0]) | (before == ord("\n")) | (before == ord('"'))
        places = np.flatnonzero(blank) + start + 2
        if len(places) and (places[-1] >= len(values) or ends[values[places]].any()):
            return True
    return False


def _split_blocks(data: bytes) -> Iterator[np.ndarray[Any, Any]]:
    values = np.frombuffer(data, np.uint8)
    for start in range(0, len(values), _BLOCK):
        yield values[start : start + _BLOCK]


def _find_missing_notation(data: bytes, separator: bytes) -> str | None:
    """Return the most frequent notation of missing values, other than empty ones, in a sample."""
    step = max(_PIECE, len(data) // _PIECES)
    found: Counter[bytes] = Counter()
    for start in range(0, len(data), step):
        found.update(_compile_missing(separator).findall(data, start, start + _PIECE))
    return found.most_common(1)[0][0].decode() if found else None


@lru_cache
def _compile_missing(separator: bytes) -> re.Pattern[bytes]:
    notations = b"|".join(re.escape(text.encode()) for text in PANDAS_MISSING if text)
    edge = re.escape(separator) + rb"\r\n"
    return re.compile(rb"(?<=[%b])(?:%b)(?=[%b])" % (edge, notations, edge))


def _replace_missing(frame: pl.DataFrame, texts: list[str]) -> pl.DataFrame:
    """Set texts that are missing values for pandas, also those in quotes, to null."""
    if not texts:
        return frame
    is_missing = [pl.col(name).is_in(PANDAS_MISSING) for name in texts]
    found = frame.select(one.any() for one in is_missing).row(0)
    return frame.with_columns(
        pl.when(one.not_()).then(pl.col(name))
        for name, one, any_found in zip(texts, is_missing, found, strict=True)
        if any_found
    )


def _to_booleans(frame: pl.DataFrame, names: list[str]) -> pl.DataFrame | None:
    """Convert texts to booleans; None if a text is neither true nor false."""
    if not all(frame.select(pl.col(names).is_in([*TRUE, *FALSE]).all()).row(0)):
        return None
    return frame.with_columns(pl.col(names).is_in(TRUE))
