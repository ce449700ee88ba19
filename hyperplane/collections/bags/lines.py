"""Read whole lines of a byte range of a file, in chunks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hyperplane.collections.bags.files import TextByteRange
from hyperplane.core.errors import ReadError
from hyperplane.objectstore.file_names import DAMAGE_ERRORS, decompress
from hyperplane.objectstore.redaction import describe_error

#: Bytes that are read and parsed at once; small, because some readers stop early.
BLOCK_BYTES = 1 << 20
#: Byte order mark of UTF-8.
BOM = b"\xef\xbb\xbf"


@contextmanager
def _name_file_in_errors(byte_range: TextByteRange, store: Any) -> Iterator[None]:
    """Convert errors to a ReadError that names the file."""
    try:
        yield
    except ReadError:
        raise
    except FileNotFoundError as error:
        reason = "the file was deleted after the bag was created"
        raise ReadError(byte_range.name, reason) from error
    except DAMAGE_ERRORS as error:
        is_truncated = isinstance(error, EOFError) or "runcated" in str(error)
        reason = (
            _describe_truncation(byte_range)
            if is_truncated
            else describe_error(error, store.storage_options)
        )
        raise ReadError(byte_range.name, reason) from error


def _describe_truncation(byte_range: TextByteRange) -> str:
    return f"its {byte_range.compression} data ends early: the file is truncated; copy it again"


@contextmanager
def _open_decompressed(store: Any, byte_range: TextByteRange) -> Iterator[Any]:
    with (
        store.open(byte_range.path, "rb") as raw,
        decompress(raw, byte_range.compression) as opened,
    ):
        yield opened


def read_chunks(store: Any, byte_range: TextByteRange) -> Iterator[tuple[int, bytes]]:
    """Yield chunks of whole lines, each with its offset in the uncompressed file.

    A line belongs to the range that contains its first byte. Only the last line of a file may
    lack its line end. A byte order mark at the start of the file is skipped. A ReadError with the
    name of the file is raised if the file cannot be read to the end of the range.
    """
    with _name_file_in_errors(byte_range, store), _open_decompressed(store, byte_range) as file:
        for offset, chunk in _read_whole_lines(file, byte_range):
            if offset == 0 and chunk.startswith(BOM):
                offset, chunk = len(BOM), chunk[len(BOM) :]
            if chunk:
                yield offset, chunk


def _read_whole_lines(file: Any, byte_range: TextByteRange) -> Iterator[tuple[int, bytes]]:
    offset, end = byte_range.start, byte_range.end
    skipping = offset > 0
    if skipping:
        offset -= 1  # a line starts at offset if the preceding byte is a line end
        file.seek(offset)
    pending: list[bytes] = []
    while block := file.read(BLOCK_BYTES):
        if skipping:
            cut = block.find(b"\n") + 1
            offset += cut or len(block)
            if end is not None and offset >= end:
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
        if end is not None and offset + len(text) >= end:
            yield offset, text[: text.index(b"\n", max(0, end - 1 - offset)) + 1]
            return
        yield offset, text
        offset += len(text)
    if any(pending):
        yield offset, b"".join(pending)


def find_line_number(store: Any, byte_range: TextByteRange, offset: int) -> int:
    """Return the number, from 1, of the line at an offset of the uncompressed file.

    Reads the file up to that offset.
    """
    number, remaining = 1, offset
    with _name_file_in_errors(byte_range, store), _open_decompressed(store, byte_range) as file:
        while remaining and (block := file.read(min(BLOCK_BYTES, remaining))):
            number += block.count(b"\n")
            remaining -= len(block)
    return number
