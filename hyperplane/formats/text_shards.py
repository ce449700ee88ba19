"""Select the rows of one shard of text files: byte ranges between record boundaries."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, cast

import polars as pl

from hyperplane.core.errors import Fault, ReadError, RequestError
from hyperplane.formats import text_samples
from hyperplane.formats.byte_ranges import ByteRange, ByteRangeDecoder, ByteRangePartition
from hyperplane.formats.file_changes import check_local_size
from hyperplane.formats.reader import translate_read_errors
from hyperplane.formats.request import ReadPlan

#: Bytes that are read and decoded at a time.
PIECE_BYTES = 1 << 25


class RecordBoundaries(Protocol):
    """Boundaries between the records of a text format."""

    @property
    def quoted(self) -> bool:
        """Whether records may contain line ends within quotes."""
        ...

    @property
    def contradiction(self) -> str:
        """The error message for a file in which the end of a shard is found before its start."""
        ...

    def find_record_start(self, byte_range: ByteRange, target: int) -> int:
        """Return the offset of the first record that begins after ``target``."""
        ...

    def adapt_decoder(self, decoder: ByteRangeDecoder) -> ByteRangeDecoder:
        """Return the decoder for byte ranges between these boundaries."""
        ...


class LineBoundaries:
    """Boundaries of a format whose lines are its records."""

    quoted = False
    contradiction = "its lines have changed while they were read; read all shards again"

    def find_record_start(self, byte_range: ByteRange, target: int) -> int:
        """Return the offset of the first line that begins after ``target``."""
        return text_samples.find_next_line(byte_range.file, target)

    def adapt_decoder(self, decoder: ByteRangeDecoder) -> ByteRangeDecoder:
        """Return the decoder unchanged."""
        return decoder


@dataclass(frozen=True, order=True)
class _Cut:
    """A record boundary: the number of a file and an offset in it."""

    number: int
    byte: int


def plan_shard(whole: ReadPlan, index: int, count: int, boundaries: RecordBoundaries) -> ReadPlan:
    """Plan the rows of a shard; ``whole`` is the plan of all files as one partition."""
    part = cast(ByteRangePartition, whole.parts[0])
    selected = select_ranges(part, index, count, boundaries)
    return replace(whole, parts=[selected] if selected else [])


def select_ranges(
    part: ByteRangePartition, index: int, count: int, boundaries: RecordBoundaries
) -> ByteRangePartition | None:
    """Return the byte ranges of one of ``count`` shards; None if the shard has none.

    ``part`` has all files, each as one byte range.

    Raises
    ------
    RequestError
        If there is only one file and it is compressed.
    ReadError
        If a file cannot be read, or the end of the shard is before its start.
    """
    byte_ranges = part.ranges
    if count > 1 and len(byte_ranges) == 1 and byte_ranges[0].file.compression:
        file, allowed = byte_ranges[0].file, "an uncompressed file, or several files"
        advice = "a compressed file cannot be divided: decompress it, or split it into several"
        raise RequestError([Fault("url", repr(file.url), allowed, advice)])
    lengths = [_count_stored_bytes(byte_range) for byte_range in byte_ranges]
    total = sum(lengths)
    first, last = (
        _find_cut(byte_ranges, lengths, total * number // count, boundaries)
        for number in (index, index + 1)
    )
    if last < first:
        raise ReadError(byte_ranges[last.number].file.url, boundaries.contradiction)
    selected: list[ByteRange] = []
    for number in range(first.number, min(last.number + 1, len(byte_ranges))):
        byte_range = byte_ranges[number]
        start = first.byte if number == first.number else byte_range.start
        stop = last.byte if number == last.number else byte_range.stop
        if byte_range.file.compression:
            if number < last.number:
                selected.append(byte_range)
        elif start < stop:
            selected.append(_make_record_span(byte_range, start, stop, boundaries))
    return replace(part, ranges=tuple(selected)) if selected else None


def _count_stored_bytes(byte_range: ByteRange) -> int:
    """Return the stored bytes of a byte range, which is the whole file if it is compressed."""
    return (
        byte_range.file.size if byte_range.file.compression else byte_range.stop - byte_range.start
    )


def _find_cut(
    byte_ranges: Sequence[ByteRange],
    lengths: Sequence[int],
    position: int,
    boundaries: RecordBoundaries,
) -> _Cut:
    """Return the record boundary near a byte position, counted over all files.

    The boundary depends on nothing else, so the end of a shard is the start of the next one.
    """
    for number, (byte_range, length) in enumerate(zip(byte_ranges, lengths, strict=True)):
        if position >= length:
            position -= length
            continue
        byte = byte_range.start
        if byte_range.file.compression:
            byte = byte_range.stop if 2 * position > length else byte_range.start
        elif position:
            with translate_read_errors(byte_range):
                byte = boundaries.find_record_start(byte_range, byte_range.start + position)
        if byte < byte_range.stop:
            return _Cut(number, byte)
        break
    else:
        return _Cut(len(byte_ranges), 0)
    return _Cut(number + 1, byte_ranges[number + 1].start if number + 1 < len(byte_ranges) else 0)


def _make_record_span(
    byte_range: ByteRange, start: int, stop: int, boundaries: RecordBoundaries
) -> RecordSpan:
    """Return a part of a byte range between record boundaries."""
    decoder = boundaries.adapt_decoder(byte_range.decoder)
    return RecordSpan(
        byte_range.file,
        start,
        stop,
        decoder,
        byte_range.mapping,
        byte_range.nbytes,
        boundaries.quoted,
        head=byte_range.head,
    )


@dataclass(frozen=True)
class RecordSpan(ByteRange):
    """A byte range that begins and ends at record boundaries.

    Parameters
    ----------
    quoted : bool
        Whether records may contain line ends within quotes.
    """

    quoted: bool

    def fetch(self, names: Collection[str]) -> pl.LazyFrame:
        """Return some columns of the file."""
        check_local_size(self.file, self.has_grown)
        frames = [self.decoder.decode(piece, names) for piece in self._read_pieces()]
        return pl.concat(frames, rechunk=False).lazy()

    def _read_pieces(self) -> Iterator[ByteRange]:
        """Yield byte ranges of whole records, each about ``PIECE_BYTES`` long."""
        begin, rest = self.start, b""
        for position in range(self.start, self.stop, PIECE_BYTES):
            stop = min(self.stop, position + PIECE_BYTES)
            text = rest + self.read_bytes(position, stop)
            end = len(text) if stop == self.stop else _find_last_record_end(text, self.quoted)
            if end:
                yield self._make_piece(begin, text[:end])
            begin, rest = begin + end, text[end:]

    def _make_piece(self, start: int, text: bytes) -> ByteRange:
        stop = start + len(text)
        return _LoadedSpan(self.file, start, stop, self.decoder, self.mapping, self.nbytes, text)


@dataclass(frozen=True)
class _LoadedSpan(ByteRange):
    """A byte range whose bytes are in memory."""

    text: bytes

    def read_data(self) -> bytes:
        """Return the bytes."""
        return self.text


def _find_last_record_end(text: bytes, quoted: bool) -> int:
    r"""Return the offset at which the last complete record ends; 0 if there is none.

    Examples
    --------
    >>> _find_last_record_end(b'1,2\n3,"a\nb\nc', quoted=True)
    4
    >>> _find_last_record_end(b"1,2\n3,4\n5", quoted=False)
    8
    """
    end = text.rfind(b"\n") + 1
    odd = quoted and text.count(b'"', 0, end) % 2 == 1
    while end and odd:
        line = text.rfind(b"\n", 0, end - 1) + 1
        odd ^= text.count(b'"', line, end) % 2 == 1
        end = line
    return end
