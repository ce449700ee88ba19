"""Sample text files, and find line starts at which to divide them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat

from hyperplane.core.errors import ReadError
from hyperplane.formats.reader import READER_THREADS, translate_read_errors
from hyperplane.objectstore.locations import File

#: Bytes of the head of a sampled file, of each excerpt from its middle and its end, and of the head
#: of all other files.
HEAD = 500_000
EXCERPT = 100_000
SHORT_HEAD = 20_000
#: Maximum number of files from which types are inferred.
MAX_SAMPLED_FILES = 16
#: Maximum bytes of a head, within which a record must end.
MAX_HEAD = 128_000_000
#: Bytes per read while searching for a line end.
STEP = 65_536
#: Assumed ratio of uncompressed to compressed size.
COMPRESSION_RATIO = 5


@dataclass(frozen=True)
class TextSample:
    """Whole lines of one file.

    Parameters
    ----------
    file : File
        The file.
    head : bytes
        Its first lines.
    excerpts : tuple of (int, bytes)
        Offsets and lines from its middle and its end.
    whole : bool
        Whether the head is the whole file.
    used_for_types : bool
        Whether types are inferred from the sample; others only have a short head.
    """

    file: File
    head: bytes = b""
    excerpts: tuple[tuple[int, bytes], ...] = ()
    whole: bool = False
    used_for_types: bool = True

    @property
    def urls(self) -> tuple[str, ...]:
        """The URL of the file, for messages."""
        return (self.file.url,)


#: Returns the end of the last complete record in the first bytes of a file.
FindEnd = Callable[[File, bytes], int]


def read_samples(
    files: Sequence[File], find_end: FindEnd
) -> tuple[list[TextSample], list[ReadError]]:
    """Return a sample of each file, and errors; types are inferred from a few of the samples."""
    count = min(len(files), MAX_SAMPLED_FILES)
    chosen = {round(i * (len(files) - 1) / max(1, count - 1)) for i in range(count)}
    with ThreadPoolExecutor(min(READER_THREADS, len(files))) as pool:
        results = list(
            pool.map(_try_sample, files, [i in chosen for i in range(len(files))], repeat(find_end))
        )
    samples = [result for result in results if isinstance(result, TextSample)]
    return samples, [result for result in results if isinstance(result, ReadError)]


def _try_sample(file: File, used_for_types: bool, find_end: FindEnd) -> TextSample | ReadError:
    try:
        with translate_read_errors(TextSample(file)):
            return _read_sample(file, used_for_types, find_end)
    except ReadError as error:
        return error


def _read_sample(file: File, used_for_types: bool, find_end: FindEnd) -> TextSample:
    length = HEAD if used_for_types else SHORT_HEAD
    while True:
        head, whole = _read_head(file, length, find_end)
        # A header alone is not enough: at least one row is needed.
        if whole or head.count(b"\n") > 1:
            break
        if length >= MAX_HEAD:
            message = (
                f"its first {length} bytes do not contain two complete lines; "
                "perhaps a quote is not closed"
            )
            raise ReadError(file.url, message)
        length = min(MAX_HEAD, length * 8)
    excerpts = []
    if used_for_types and not whole and not file.compression:
        for start in {max(length, file.size // 2), max(length, file.size - EXCERPT)}:
            text = file.read_range(start, min(file.size, start + EXCERPT))
            first, last = text.find(b"\n") + 1, text.rfind(b"\n") + 1
            last = len(text) if start + EXCERPT >= file.size else last
            excerpts.append((start + first, text[first:last]))
    return TextSample(file, head, tuple(excerpts), whole, used_for_types)


def _read_head(file: File, length: int, find_end: FindEnd) -> tuple[bytes, bool]:
    """Return the complete records within ``length`` bytes, and whether that is the whole file."""
    if file.compression:
        with file.open() as opened:
            head = bytes(opened.read(length + 1))
        whole = len(head) <= length
    else:
        head, whole = file.read_range(0, min(file.size, length)), file.size <= length
    return (head, True) if whole else (head[: find_end(file, head[:length])], False)


def has_multiline_values(text: bytes) -> bool:
    """Whether a quoted value contains line ends."""
    if b'"' not in text:
        return False
    odd = False
    for line in text.split(b"\n")[:-1]:
        odd ^= line.count(b'"') % 2 == 1
        if odd:
            return True
    return False


def find_split_offsets(file: File, start: int, count: int, multiline: bool) -> list[int]:
    """Return offsets of line starts that divide a file into similar parts, with both ends.

    Parameters
    ----------
    file : File
        An uncompressed file.
    start : int
        Offset of its first record.
    count : int
        Number of parts.
    multiline : bool
        Whether quoted values may contain line ends; then the whole file is read to count quotes.
    """
    targets = [start + round(i * (file.size - start) / count) for i in range(1, count)]
    ends = (
        find_record_starts(file, start, targets)
        if multiline
        else (find_next_line(file, target) for target in targets)
    )
    return sorted({start, *(end for end in ends if end < file.size), file.size})


def find_next_line(file: File, position: int) -> int:
    """Return the offset of the next line start after ``position``."""
    while position < file.size:
        text = file.read_range(position, min(file.size, position + STEP))
        line_end = text.find(b"\n")
        if line_end >= 0:
            return position + line_end + 1
        position += STEP
    return file.size


def find_record_starts(file: File, start: int, targets: Sequence[int]) -> Iterator[int]:
    """Yield the next record start after each target offset, by counting quotes."""
    quotes, position, step = 0, start, STEP * 64
    remaining = list(targets)
    while remaining and position < file.size:
        text = file.read_range(position, min(file.size, position + step))
        counted = 0
        while remaining and remaining[0] < position + len(text):
            line = text.find(b"\n", max(counted, remaining[0] - position))
            if line < 0:
                break
            quotes += text.count(b'"', counted, line)
            counted = line + 1
            if quotes % 2 == 0:
                yield position + counted
                remaining.pop(0)
        quotes += text.count(b'"', counted)
        position += len(text)
