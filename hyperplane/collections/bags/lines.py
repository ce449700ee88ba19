"""Read whole lines of a byte range of a file, in chunks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hyperplane.collections.bags.files import TextByteRange
from hyperplane.errors import ReadError
from hyperplane.stores.file_names import DAMAGE_ERRORS, decompress
from hyperplane.stores.redaction import describe_error, redact_url

#: Bytes that are read and parsed at once; small, because some readers stop early.
STEP = 1 << 20
BOM = b"\xef\xbb\xbf"


@contextmanager
def _naming_file(span: TextByteRange, store: Any) -> Iterator[None]:
    """Convert errors to a ReadError that names the file."""
    try:
        yield
    except ReadError:
        raise
    except FileNotFoundError as error:
        gone = "the file is gone: it was deleted after the bag was made"
        raise ReadError(redact_url(span.path), gone) from error
    except DAMAGE_ERRORS as error:
        cut = isinstance(error, EOFError) or "runcated" in str(error)
        wrong = _describe_truncation(span) if cut else describe_error(error, store.storage_options)
        raise ReadError(redact_url(span.path), wrong) from error


def _describe_truncation(span: TextByteRange) -> str:
    return f"its {span.packing} data ends early: the file is truncated; copy it again"


@contextmanager
def _open_unpacked(store: Any, span: TextByteRange) -> Iterator[Any]:
    with store.open(span.path, "rb") as raw, decompress(raw, span.packing) as opened:
        yield opened


def chunks(store: Any, span: TextByteRange) -> Iterator[tuple[int, bytes]]:
    """Yield chunks of whole lines, each with its offset in the uncompressed file.

    A line belongs to the range that contains its first byte. Only the last line of a file may
    lack its line end. A byte order mark at the start of the file is skipped.

    Raises
    ------
    ReadError
        When the file cannot be read to the end of the range.
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
        place -= 1  # the preceding byte tells whether a line starts at place
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
    """Return the number, from 1, of the line at an offset of the uncompressed file.

    Reads the file up to that offset.
    """
    number, left = 1, place
    with _naming_file(span, store), _open_unpacked(store, span) as file:
        while left and (block := file.read(min(STEP, left))):
            number += block.count(b"\n")
            left -= len(block)
    return number
