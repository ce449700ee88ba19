"""Long byte ranges of text, decoded in pieces to bound memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import polars as pl

from hyperplane.formats.byte_ranges import ByteRange

#: Bytes that are read and decoded at a time.
PIECE_BYTES = 1 << 25


@dataclass(frozen=True)
class RecordSpan(ByteRange):
    """A span that begins and ends at record boundaries.

    Parameters
    ----------
    quoted : bool
        Whether line ends within quotes do not end a record.
    """

    quoted: bool

    def fetch(self, names: Collection[str]) -> pl.LazyFrame:
        """Return raw columns."""
        frames = [self.decoder.decode(piece, names) for piece in self._pieces()]
        return pl.concat(frames, rechunk=False).lazy()

    def _pieces(self) -> Iterator[ByteRange]:
        """Yield spans of whole records, each about ``PIECE_BYTES`` long."""
        begin, rest = self.start, b""
        for position in range(self.start, self.stop, PIECE_BYTES):
            stop = min(self.stop, position + PIECE_BYTES)
            text = rest + self.file.read_range(position, stop)
            end = len(text) if stop == self.stop else _last_record_end(text, self.quoted)
            if end:
                yield self._piece(begin, text[:end])
            begin, rest = begin + end, text[end:]

    def _piece(self, start: int, text: bytes) -> ByteRange:
        stop = start + len(text)
        return _LoadedSpan(self.file, start, stop, self.decoder, self.mapping, self.nbytes, text)


@dataclass(frozen=True)
class _LoadedSpan(ByteRange):
    """A span whose bytes are in memory."""

    text: bytes

    def data(self) -> bytes:
        """Return the bytes."""
        return self.text


def _last_record_end(text: bytes, quoted: bool) -> int:
    r"""Return where the last complete record ends; 0 if there is none.

    Examples
    --------
    >>> _last_record_end(b'1,2\n3,"a\nb\nc', quoted=True)
    4
    >>> _last_record_end(b"1,2\n3,4\n5", quoted=False)
    8
    """
    end = text.rfind(b"\n") + 1
    odd = quoted and text.count(b'"', 0, end) % 2 == 1
    while end and odd:
        line = text.rfind(b"\n", 0, end - 1) + 1
        odd ^= text.count(b'"', line, end) % 2 == 1
        end = line
    return end
