"""Find the first CSV record after an offset, without reading the file from its beginning.

A line end within quotes does not end a record. Whether an offset is within quotes follows from
all bytes before it, or from the first quote after it that can only open or only close a value.
Quotes follow RFC 4180: they enclose a whole value and are doubled within it. So the length and
the neighbors of a run of quotes show whether the run begins inside or outside of quotes:

===========  =================================  =========================================
run of       if outside of quotes before it     if within quotes before it
===========  =================================  =========================================
odd length   a value must begin here            a value must end here
even length  this must be a whole value         anything; these are doubled quotes
===========  =================================  =========================================

A run may fit both, such as the one of ``,",``; then the next run decides, and at the end of the
file the parity of all quotes. If a run fits neither, a parser treats these quotes as characters of
a value that is not quoted, so the position after the run is outside of quotes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import cast

from hyperplane.formats import text_samples
from hyperplane.formats.byte_ranges import ByteRange, ByteRangeDecoder
from hyperplane.formats.csv.decoder import CsvDecoder
from hyperplane.objectstore.locations import File

#: Bytes of the first read, and bytes after which the search for a deciding quote ends.
READ_BYTES, MAX_LOOKAHEAD = 1 << 16, 1 << 22

#: Error message for a shard whose end is found before its start.
CONTRADICTION = (
    "its quotes are not valid CSV near the boundaries of this shard, or a quoted value is very "
    "long; pass multiline=True, which counts all quotes from the beginning of the file"
)
_RUN = re.compile(rb'"+')
_QUOTED = re.compile(rb'"[^"]*("|\Z)')


@dataclass(frozen=True)
class RecordLayout:
    """Columns and separator of CSV records.

    Parameters
    ----------
    columns : int
        Values in each record.
    separator : str
        One character.
    """

    columns: int
    separator: str


@dataclass(frozen=True)
class QuoteState:
    """Whether an offset of a text is within quotes."""

    offset: int
    in_quotes: bool


def find_record_start(file: File, target: int, layout: RecordLayout) -> int:
    """Return the offset of the first record after ``target``, or the file's size if there is none.

    If ``MAX_LOOKAHEAD`` bytes contain no deciding quote, and each of their lines has as many values
    as the file has columns, they are treated as records, and not as one long quoted value.

    Parameters
    ----------
    file : File
        Not compressed.
    target : int
        An offset after the beginning of the first record.
    """
    begin, length = target - 1, READ_BYTES
    text = file.read_range(begin, min(file.size, begin + length))
    while True:
        at_end = begin + len(text) >= file.size
        state = infer_quote_state(text, at_end, layout)
        if state is None and len(text) >= MAX_LOOKAHEAD:
            state = QuoteState(_find_first_offset(text), not _has_layout(text, layout))
        if state is not None:
            return _find_record_end(file, begin, text, state)
        length *= 2
        text += file.read_range(begin + len(text), min(file.size, begin + length))


def _find_first_offset(text: bytes) -> int:
    """Return the offset after the run of quotes that the text begins with; 1 if there is none."""
    run = _RUN.match(text)
    return run.end() if run else 1


def infer_quote_state(text: bytes, at_end: bool, layout: RecordLayout) -> QuoteState | None:
    """Return the quote state near the start of a text, from the first decisive run of quotes.

    The first byte of ``text`` only serves as the neighbor of the second. ``at_end`` is whether the
    file ends with the text. The result is None if more of the file must be read.
    """
    ends = b"\r\n" + layout.separator.encode()
    first = _find_first_offset(text)
    before = 0
    for run in _RUN.finditer(text, first):
        if run.end() == len(text) and not at_end:
            return None
        odd = len(run[0]) % 2 == 1
        last = run.end() == len(text)
        closes = last or text[run.end()] in ends
        opens = text[run.start() - 1] in ends
        outside = opens and (not last if odd else closes)
        within = closes if odd else not last
        if outside != within:
            return QuoteState(first, within != (before % 2 == 1))
        if not outside:
            return QuoteState(run.end(), False)
        before += len(run[0])
    return QuoteState(first, before % 2 == 1) if at_end else None


def _has_layout(text: bytes, layout: RecordLayout) -> bool:
    """Return whether all complete records of a text that begins outside of quotes have a layout."""
    separator = layout.separator.encode()
    lines = _QUOTED.sub(b"", text[_find_first_offset(text) :]).split(b"\n")[1:-1]
    return all(line.count(separator) == layout.columns - 1 for line in lines if line.strip(b"\r"))


def _find_record_end(file: File, begin: int, text: bytes, state: QuoteState) -> int:
    """Return the offset after the next record end, counting quotes from ``state``."""
    quotes, offset = int(state.in_quotes), state.offset
    while True:
        line = text.find(b"\n", offset)
        if line < 0:
            quotes += text.count(b'"', offset)
            begin, offset = begin + len(text), 0
            if begin >= file.size:
                return file.size
            text = file.read_range(begin, min(file.size, begin + READ_BYTES))
            continue
        quotes += text.count(b'"', offset, line)
        offset = line + 1
        if quotes % 2 == 0:
            return begin + offset


@dataclass(frozen=True)
class CsvRecordBoundaries:
    """Boundaries of CSV records.

    Parameters
    ----------
    multiline : bool, optional
        Whether values may contain line breaks; None infers that at each boundary.
    """

    multiline: bool | None
    #: The end of a shard is before its start if one of them is a line end within quotes.
    contradiction = CONTRADICTION

    @property
    def quoted(self) -> bool:
        """Whether records may contain line ends within quotes."""
        return self.multiline is not False

    def find_record_start(self, byte_range: ByteRange, target: int) -> int:
        """Return the offset of the first record that begins after ``target``."""
        if self.multiline is False:
            return text_samples.find_next_line(byte_range.file, target)
        if self.multiline:
            return next(
                text_samples.find_record_starts(byte_range.file, byte_range.start, [target]),
                byte_range.file.size,
            )
        dialect = cast(CsvDecoder, byte_range.decoder).dialect
        layout = RecordLayout(len(dialect.names), dialect.separator)
        return find_record_start(byte_range.file, target, layout)

    def adapt_decoder(self, decoder: ByteRangeDecoder) -> CsvDecoder:
        """Return the decoder for byte ranges between these boundaries."""
        decoder = cast(CsvDecoder, decoder)
        # With ``multiline`` the decoder accepts an odd number of quotes. It must not if boundaries
        # were inferred from nearby quotes: an odd number then shows that a boundary is wrong.
        dialect = replace(decoder.dialect, multiline=self.multiline is not None)
        return replace(decoder, dialect=dialect)
