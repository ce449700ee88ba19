"""Where records of CSV begin, found from the bytes around a state and not from all before it.

A line end is the end of a record unless it stands within quotes, and whether it does follows from
all bytes before it, or from one quote after it that can only be the first of a value, or only the
last. Quotes are those of RFC 4180: around a whole value, and doubled within it. So a run of
quotes says, by its length and its neighbours, on which side of quotes it stands:

===========  ==============================  =========================================
run of       outside of quotes before it     within quotes before it
===========  ==============================  =========================================
odd length   a value must begin here         a value must end here
even length  a whole value must stand here   anything; these are doubled
===========  ==============================  =========================================

Some runs fit both, such as the one of ``,",``; then the next one is asked, and at the end of the
file the number of quotes. Where neither fits, a parser takes the quote for text of a value without
quotes, so that after it one is outside.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hyperplane.stores.locations import File

#: Bytes that are read at first, and bytes after which no quote is waited for any more.
READ_BYTES, MAX_LOOKAHEAD = 1 << 16, 1 << 22

#: What to say when cuts turn out to be wrong.
CONTRADICTION = (
    "its quotes are not those of CSV near the ends of this share, or a value within quotes is very "
    "long; write multiline=True, which counts all quotes before"
)
_RUN = re.compile(rb'"+')
_QUOTED = re.compile(rb'"[^"]*("|\Z)')


@dataclass(frozen=True)
class RecordLayout:
    """How records look.

    Parameters
    ----------
    columns : int
        Values in each.
    separator : str
        One character between them.
    """

    columns: int
    separator: str


@dataclass(frozen=True)
class QuoteState:
    """What is known of a state in a text.

    Parameters
    ----------
    offset : int
        The state.
    in_quotes : bool
        Whether it is within quotes.
    """

    offset: int
    in_quotes: bool


def find_record_start(file: File, target: int, rows: RecordLayout) -> int:
    """Where the first record begins after a state; the end of the file when there is none.

    A value within quotes that goes on for more than ``ENOUGH`` bytes in which no quote tells, and
    whose lines all have as many values as the file has columns, is taken for such lines.

    Parameters
    ----------
    file : File
        Not packed.
    target : int
        The state, after the beginning of the first record.
    rows : Rows
        How the records look.
    """
    begin, length = target - 1, READ_BYTES
    text = file.read_range(begin, min(file.size, begin + length))
    while True:
        whole = begin + len(text) >= file.size
        state = infer_quote_state(text, whole, rows)
        if state is None and len(text) >= MAX_LOOKAHEAD:
            state = QuoteState(_first_offset(text), not _has_layout(text, rows))
        if state is not None:
            return _find_record_end(file, begin, text, state)
        length *= 2
        text += file.read_range(begin + len(text), min(file.size, begin + length))


def _first_offset(text: bytes) -> int:
    """The first state after the first byte that has no quote before it."""
    run = _RUN.match(text)
    return run.end() if run else 1


def infer_quote_state(text: bytes, whole: bool, rows: RecordLayout) -> QuoteState | None:
    """What the first run of quotes that can be only one thing says of a state near the start.

    Parameters
    ----------
    text : bytes
        The first byte is there for what it is beside.
    whole : bool
        Whether the file ends with it.
    rows : Rows
        How the records look.

    Returns
    -------
    Place or None
        None when more of the file must be seen.
    """
    ends = b"\r\n" + rows.separator.encode()
    first = _first_offset(text)
    before = 0
    for run in _RUN.finditer(text, first):
        if run.end() == len(text) and not whole:
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
    return QuoteState(first, before % 2 == 1) if whole else None


def _has_layout(text: bytes, rows: RecordLayout) -> bool:
    """Whether all whole records of a text that begins outside of quotes are such rows."""
    separator = rows.separator.encode()
    lines = _QUOTED.sub(b"", text[_first_offset(text) :]).split(b"\n")[1:-1]
    return all(line.count(separator) == rows.columns - 1 for line in lines if line.strip(b"\r"))


def _find_record_end(file: File, begin: int, text: bytes, state: QuoteState) -> int:
    """Where the line after a state begins that ends outside of quotes."""
    quotes, done = int(state.in_quotes), state.offset
    while True:
        line = text.find(b"\n", done)
        if line < 0:
            quotes += text.count(b'"', done)
            begin, done = begin + len(text), 0
            if begin >= file.size:
                return file.size
            text = file.read_range(begin, min(file.size, begin + READ_BYTES))
            continue
        quotes += text.count(b'"', done, line)
        done = line + 1
        if quotes % 2 == 0:
            return begin + done
