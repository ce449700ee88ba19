"""Whole lines of a part of a file, in chunks of bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hyperplane.collections.bags.files import TextByteRange
from hyperplane.errors import ReadError
from hyperplane.stores.naming import DAMAGE, unpacked
from hyperplane.stores.secrets import said, shown

#: Bytes that are read and parsed at once; so a reader that stops early has read little.
STEP = 1 << 20
BOM = b"\xef\xbb\xbf"


@contextmanager
def _naming_file(span: TextByteRange, store: Any) -> Iterator[None]:
    """Say of which file a fault is, and what it means."""
    try:
        yield
    except ReadError:
        raise
    except FileNotFoundError as error:
        gone = "it was there when the bag was made and is gone"
        raise ReadError(shown(span.path), gone) from error
    except DAMAGE as error:
        cut = isinstance(error, EOFError) or "runcated" in str(error)
        wrong = _describe_truncation(span) if cut else said(error, store.storage_options)
        raise ReadError(shown(span.path), wrong) from error


def _describe_truncation(span: TextByteRange) -> str:
    return f"its {span.packing} data stops before its end; the file is truncated, copy it again"


@contextmanager
def _open_unpacked(store: Any, span: TextByteRange) -> Iterator[Any]:
    with store.open(span.path, "rb") as raw, unpacked(raw, span.packing) as opened:
        yield opened


def chunks(store: Any, span: TextByteRange) -> Iterator[tuple[int, bytes]]:
    """Chunks of whole lines, each with the place of its first byte in the unpacked file.

    A line belongs to the span in which its first byte is. Only the last line of a file may lack
    its line end. A byte order mark at the start of the file is no part of its first line.

    Raises
    ------
    ReadError
        When the file cannot be read to the end of the span.
    """
    with _naming_file(span, store), _open_unpacked(store, span) as file:
        for place, chunk in _whole_lines(file, span):
            if place == 0 and chunk.startswith(BOM):
                place, chunk = len(BOM), chunk[len(BOM) :]
            if chunk:
                yield place, chunk


def _whole_lines(file: Any, span: TextByteRange) -> Iterator[tuple[int, bytes]]:
    place, end = span.start, span.end
    skipping = place > 0
    if skipping:
        place -= 1  # the byte before says whether a line begins here
        file.seek(place)
    pending: list[bytes] = []
    while block := file.read(STEP):
        if skipping:
            cut = block.find(b"\n") + 1
            place += cut or len(block)
            if end is not None and place >= end:
                return
            if not cut:
                continue
            skipping, block = False, block[cut:]
        cut = block.rfind(b"\n") + 1
        if not cut:
            pending.append(block)
            continue
        text = b"".join([*pending, block[:cut]])
        pending = [block[cut:]]
        if end is not None and place + len(text) >= end:
            yield place, text[: text.index(b"\n", max(0, end - 1 - place)) + 1]
            return
        yield place, text
        place += len(text)
    if any(pending):
        yield place, b"".join(pending)


def line_number(store: Any, span: TextByteRange, place: int) -> int:
    """Number, from 1, of the line that begins at a place of the unpacked file.

    Reads the file up to there.
    """
    number, left = 1, place
    with _naming_file(span, store), _open_unpacked(store, span) as file:
        while left and (block := file.read(min(STEP, left))):
            number += block.count(b"\n")
            left -= len(block)
    return number
