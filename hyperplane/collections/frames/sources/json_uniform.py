"""JSON lines by Polars, where counts of bytes prove that it has read every field.

Polars takes two thirds of the CPU time of pyarrow for the same lines, but passes over fields that a
schema lacks, and makes text of other values in a column of text. Three counts exclude both. They
hold for bytes without a backslash, in which each quote begins or ends a key or a text:

1. Each missing value of a column ``c`` is written, as ``"c":null``: no record lacks a column.
2. Each value of a column of text that looks like a number, a truth value or a nested value is in
   quotes, as ``"c":"``: Polars has made no text.
3. There are two quotes for each key and each text of the columns: there is no other field.

Where a count differs pyarrow has to parse the lines. The counts do not tell one case: a record with
the same key twice, a value before null, beside a record that lacks this key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import polars as pl
import pyarrow as pa

#: Types of columns that Polars refuses other values for, but for text.
_KINDS = (pl.Int64(), pl.UInt64(), pl.Float64(), pl.Boolean(), pl.String())
#: Names that neither a part of a text looks like, nor what is between two texts.
_NAME = re.compile(r'[^\x00-\x1f"\\,:{}\[\]\ud800-\udfff]*')
#: What Polars writes for values that are no text, and how that begins, by byte.
_NO_TEXT = r"^(?:[\[{]|true$|false$|-?[0-9.]+$)"
_BEGINS = np.isin(np.arange(256), list(b"[{tf-0123456789"))
#: Bytes that are compared at once: such as fit into a processor's cache.
_STEP = 1 << 18


def uniform_frame(data: bytes, kinds: Mapping[str, pl.DataType]) -> pl.DataFrame | None:
    r"""Parse lines whose records all have the same known fields; None where that is not proven.

    Parameters
    ----------
    data : bytes
        Lines of JSON objects.
    kinds : mapping of str to polars.DataType
        All columns.

    Examples
    --------
    >>> kinds = {"n": pl.Int64(), "s": pl.String()}
    >>> uniform_frame(b'{"n":1,"s":"a"}\n{"s":null,"n":2}\n', kinds).rows()
    [(1, 'a'), (2, None)]
    >>> uniform_frame(b'{"n":1,"s":"a"}\n{"s":"b","n":2,"other":3}\n', kinds)
    >>> uniform_frame(b'{"n":1,"s":"a"}\n{"s":1.0,"n":2}\n', kinds)
    """
    gap = _gap(data, kinds)
    if gap is None or b"\\" in data:
        return None
    try:
        frame = pl.read_ndjson(data, schema=dict(kinds))
    except pl.exceptions.PolarsError:
        return None
    missing = {name: n for name in kinds if (n := frame.get_column(name).null_count())}
    texts = frame.select(pl.col(pl.String))
    held = {name: frame.height - missing.get(name, 0) for name in texts.columns}
    proven = (
        _quotes(data) == 2 * (frame.height * frame.width + sum(held.values()))
        and _nulls(data, [_key(name) + gap for name in missing]) == list(missing.values())
        and all(
            data.count(_key(column.name) + gap + b'"') == held[column.name]
            for column in texts
            if _may_be_no_text(column)
        )
    )
    return frame if proven else None


def _gap(data: bytes, kinds: Mapping[str, pl.DataType]) -> bytes | None:
    """What is between a colon and its value; None unless the first record has these columns."""
    if not all(kind in _KINDS for kind in kinds.values()) or not all(map(_NAME.fullmatch, kinds)):
        return None
    line = data[: data.find(b"\n") + 1 or len(data)]
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or record.keys() != kinds.keys():
        return None
    gap = b" " if b'": ' in line else b""
    return gap if all(_key(name) + gap in line for name in kinds) else None


def _may_be_no_text(column: pl.Series) -> bool:
    """Whether Polars may have made a text of a value that was none."""
    views = column.to_arrow(compat_level=pl.CompatLevel.newest())
    if pa.types.is_string_view(views.type):
        # Of the 16 bytes for each text the first four are its length, the next ones how it begins.
        held = np.frombuffer(views.buffers()[1], np.uint8)
        if not _BEGINS[held[16 * views.offset + 4 :: 16]].any():  # a tenth of the time below
            return False
    # To methods of Polars a name such as ^x$ is a pattern.
    return bool(column.alias("values").str.contains(_NO_TEXT).any())


def _key(name: str) -> bytes:
    return f'"{name}":'.encode()


def _quotes(data: bytes) -> int:
    return sum(int(np.count_nonzero(step == ord('"'))) for _, step in _steps(data, 0))


def _nulls(data: bytes, keys: Sequence[bytes]) -> list[int]:
    """How many values of each of some keys are null."""
    counts = [0] * len(keys)
    if not keys:
        return counts
    before = keys[0][-1]
    # Texts as long as a key with its null, one for each byte that they may begin at.
    wholes = [key + b"null" for key in keys]
    windows = [
        np.ndarray((max(0, len(data) - len(whole) + 1),), f"S{len(whole)}", data, strides=(1,))
        for whole in wholes
    ]
    for start, step in _steps(data, 1):
        marked = step[:-1] == before
        marked &= step[1:] == ord("n")
        places = np.flatnonzero(marked) + start + 1
        for number, (key, whole, window) in enumerate(zip(keys, wholes, windows, strict=True)):
            begins = places - len(key)
            begins = begins[(begins >= 0) & (begins < len(window))]
            counts[number] += int(np.count_nonzero(window[begins] == whole))
    return counts


def _steps(data: bytes, more: int) -> Iterator[tuple[int, np.ndarray]]:
    """Pieces of bytes, each with a few of the next, and where they begin."""
    text = np.frombuffer(data, np.uint8)
    for start in range(0, len(text), _STEP):
        yield start, text[start : start + _STEP + more]
