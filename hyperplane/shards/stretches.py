"""Long spans of text, decoded piece by piece, so that their bytes are never all in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import polars as pl

from hyperplane.collections.frames.sources.byte_ranges import ByteRange

#: Bytes that are read and decoded at once.
PIECE = 1 << 25


@dataclass(frozen=True)
class Stretch(ByteRange):
    """A span that begins and ends between records.

    Parameters
    ----------
    quoted : bool
        Whether line ends within quotes end no record.
    """

    quoted: bool

    def fetch(self, names: Collection[str]) -> pl.LazyFrame:
        """Some raw columns."""
        frames = [self.decoder.decode(piece, names) for piece in self._pieces()]
        return pl.concat(frames, rechunk=False).lazy()

    def _pieces(self) -> Iterator[ByteRange]:
        begin, rest = self.start, b""
        for position in range(self.start, self.stop, PIECE):
            stop = min(self.stop, position + PIECE)
            text = rest + self.file.between(position, stop)
            end = len(text) if stop == self.stop else _end(text, self.quoted)
            if end:
                yield self._piece(begin, text[:end])
            begin, rest = begin + end, text[end:]

    def _piece(self, start: int, text: bytes) -> ByteRange:
        stop = start + len(text)
        return _Held(self.file, start, stop, self.decoder, self.mapping, self.nbytes, text)


@dataclass(frozen=True)
class _Held(ByteRange):
    """A span whose bytes are here."""

    text: bytes

    def data(self) -> bytes:
        """The bytes."""
        return self.text


def _end(text: bytes, quoted: bool) -> int:
    r"""Where the last record ends; 0 when none does.

    Examples
    --------
    >>> _end(b'1,2\n3,"a\nb\nc', quoted=True), _end(b"1,2\n3,4\n5", quoted=False)
    (4, 8)
    """
    end = text.rfind(b"\n") + 1
    odd = quoted and text.count(b'"', 0, end) % 2 == 1
    while end and odd:
        line = text.rfind(b"\n", 0, end - 1) + 1
        odd ^= text.count(b'"', line, end) % 2 == 1
        end = line
    return end
