"""The share of text rows of one shard: byte ranges that begin and end at record boundaries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hyperplane.core.errors import Fault, ReadError, RequestError
from hyperplane.formats import samples
from hyperplane.formats.byte_ranges import ByteRange, ByteRangePartition
from hyperplane.formats.csv import record_starts
from hyperplane.formats.csv.decoder import CsvDecoder
from hyperplane.formats.reader import translate_read_errors
from hyperplane.shards.identity import Shard
from hyperplane.shards.record_boundaries import RecordSpan


@dataclass(frozen=True, order=True)
class _Cut:
    """A record boundary: the number of a file and an offset in it."""

    number: int
    byte: int


def select_spans(
    part: ByteRangePartition, shard: Shard, multiline: bool | None
) -> ByteRangePartition | None:
    """Return the spans of one shard; None if it has none.

    ``part`` is all files, undivided. ``multiline`` says whether CSV values may contain line breaks;
    None infers that at each boundary.

    Raises
    ------
    RequestError
        If there is only one file and it is compressed.
    ReadError
        If a file cannot be read, or its quotes are contradictory.
    """
    spans = part.ranges
    if shard.n > 1 and len(spans) == 1 and spans[0].file.compression:
        file, allowed = spans[0].file, "an uncompressed file, or several files"
        advice = "a compressed file cannot be divided: decompress it, or split it into several"
        raise RequestError([Fault("url", repr(file.url), allowed, advice)])
    lengths = [_stored_bytes(span) for span in spans]
    total = sum(lengths)
    first, last = (
        _find_cut(spans, lengths, total * number // shard.n, multiline)
        for number in (shard.idx, shard.idx + 1)
    )
    if last < first:
        # One of the two is not a record boundary but a line end within quotes.
        raise ReadError(spans[last.number].file.url, record_starts.CONTRADICTION)
    selected: list[ByteRange] = []
    for number in range(first.number, min(last.number + 1, len(spans))):
        span = spans[number]
        start = first.byte if number == first.number else span.start
        stop = last.byte if number == last.number else span.stop
        if span.file.compression:
            if number < last.number:
                selected.append(span)
        elif start < stop:
            selected.append(_record_span(span, start, stop, multiline))
    return replace(part, ranges=tuple(selected)) if selected else None


def _stored_bytes(span: ByteRange) -> int:
    """Return the stored bytes of a span; of a compressed file, all of it."""
    return span.file.size if span.file.compression else span.stop - span.start


def _find_cut(
    spans: Sequence[ByteRange], lengths: Sequence[int], position: int, multiline: bool | None
) -> _Cut:
    """Return the record boundary for a byte position in all files, the same for all shards."""
    for number, (span, length) in enumerate(zip(spans, lengths, strict=True)):
        if position >= length:
            position -= length
            continue
        byte = span.start
        if span.file.compression:
            byte = span.stop if 2 * position > length else span.start
        elif position:
            with translate_read_errors(span):
                byte = _find_record_start(span, span.start + position, multiline)
        if byte < span.stop:
            return _Cut(number, byte)
        break
    else:
        return _Cut(len(spans), 0)
    return _Cut(number + 1, spans[number + 1].start if number + 1 < len(spans) else 0)


def _find_record_start(span: ByteRange, target: int, multiline: bool | None) -> int:
    """Return where the first record after an offset begins."""
    if not isinstance(span.decoder, CsvDecoder) or multiline is False:
        return samples.find_next_line(span.file, target)
    if multiline:
        return next(samples.find_record_starts(span.file, span.start, [target]), span.file.size)
    form = span.decoder.dialect
    return record_starts.find_record_start(
        span.file, target, record_starts.RecordLayout(len(form.names), form.separator)
    )


def _record_span(span: ByteRange, start: int, stop: int, multiline: bool | None) -> RecordSpan:
    """Return a part of a span, with the decoder set for its quoting."""
    decoder, quoted = span.decoder, False
    if isinstance(decoder, CsvDecoder):
        quoted = multiline is not False
        # If boundaries were inferred from nearby quotes, the decoder checks the quotes between.
        dialect = replace(decoder.dialect, multiline=multiline is not None)
        decoder = replace(decoder, dialect=dialect)
    return RecordSpan(span.file, start, stop, decoder, span.mapping, span.nbytes, quoted)
