"""A share of the rows of text: spans of bytes that begin and end between records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hyperplane.collections.frames.sources import samples
from hyperplane.collections.frames.sources.byte_ranges import ByteRange, ByteRangePartition
from hyperplane.collections.frames.sources.csv_decoder import CsvDecoder
from hyperplane.collections.frames.sources.reader import translate_read_errors
from hyperplane.errors import Fault, ReadError, RequestError
from hyperplane.shards import quotes
from hyperplane.shards.identity import Shard
from hyperplane.shards.stretches import Stretch


@dataclass(frozen=True, order=True)
class _Cut:
    """A place between two records: a file by its number, and a byte of it."""

    number: int
    byte: int


def share(
    part: ByteRangePartition, shard: Shard, multiline: bool | None
) -> ByteRangePartition | None:
    """The spans of one shard.

    Parameters
    ----------
    part : ByteRangePartition
        All files, whole.
    shard : Shard
        Which share.
    multiline : bool or None
        Whether values of CSV may go over lines; None to find that out at each cut.

    Returns
    -------
    ByteRangePartition or None
        None when nothing is left for this shard.

    Raises
    ------
    RequestError
        When there is but one file and it is packed.
    ReadError
        When a file cannot be read, or its quotes contradict each other.
    """
    spans = part.ranges
    if shard.n > 1 and len(spans) == 1 and spans[0].file.packing:
        file, allowed = spans[0].file, "a file that is not packed, or several files"
        advice = "a packed text can be read from its beginning only: unpack it, or pack pieces"
        raise RequestError([Fault("url", repr(file.url), allowed, advice)])
    lengths = [_length(span) for span in spans]
    total = sum(lengths)
    first, last = (
        _cut(spans, lengths, total * number // shard.n, multiline)
        for number in (shard.idx, shard.idx + 1)
    )
    if last < first:
        # One of the two was taken for the end of a record and lies within quotes.
        raise ReadError(spans[last.number].file.url, quotes.CONTRADICTION)
    mine: list[ByteRange] = []
    for number in range(first.number, min(last.number + 1, len(spans))):
        span = spans[number]
        start = first.byte if number == first.number else span.start
        stop = last.byte if number == last.number else span.stop
        if span.file.packing:
            if number < last.number:
                mine.append(span)
        elif start < stop:
            mine.append(_stretch(span, start, stop, multiline))
    return replace(part, ranges=tuple(mine)) if mine else None


def _length(span: ByteRange) -> int:
    return span.file.size if span.file.packing else span.stop - span.start


def _cut(
    spans: Sequence[ByteRange], lengths: Sequence[int], position: int, multiline: bool | None
) -> _Cut:
    """The cut that belongs to a byte of all files in a row; the same for all shards."""
    for number, (span, length) in enumerate(zip(spans, lengths, strict=True)):
        if position >= length:
            position -= length
            continue
        byte = span.start
        if span.file.packing:
            byte = span.stop if 2 * position > length else span.start
        elif position:
            with translate_read_errors(span):
                byte = _record_after(span, span.start + position, multiline)
        if byte < span.stop:
            return _Cut(number, byte)
        break
    else:
        return _Cut(len(spans), 0)
    return _Cut(number + 1, spans[number + 1].start if number + 1 < len(spans) else 0)


def _record_after(span: ByteRange, target: int, multiline: bool | None) -> int:
    if not isinstance(span.decoder, CsvDecoder) or multiline is False:
        return samples.find_next_line(span.file, target)
    if multiline:
        return next(samples.find_record_starts(span.file, span.start, [target]), span.file.size)
    form = span.decoder.csv_format
    return quotes.record_after(span.file, target, quotes.Rows(len(form.names), form.separator))


def _stretch(span: ByteRange, start: int, stop: int, multiline: bool | None) -> Stretch:
    decoder, quoted = span.decoder, False
    if isinstance(decoder, CsvDecoder):
        quoted = multiline is not False
        # Where cuts were found from what is near them, the decoder counts the quotes in between.
        form = replace(decoder.csv_format, multiline=multiline is not None)
        decoder = replace(decoder, csv_format=form)
    return Stretch(span.file, start, stop, decoder, span.mapping, span.nbytes, quoted)
