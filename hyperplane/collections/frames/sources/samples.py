"""What a few bytes of text files say of the rest: their lines, and where to cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat

from hyperplane.collections.frames.sources.footers import READER_THREADS
from hyperplane.collections.frames.sources.reader import translate_read_errors
from hyperplane.errors import ReadError
from hyperplane.stores.places import File

#: Bytes of the head of a sampled file, of its middle and its end, and of the head of the others.
HEAD = 500_000
EXCERPT = 100_000
GLANCE = 20_000
#: Files that are sampled.
MAX_SAMPLED_FILES = 16
#: Bytes within which a head must have an end of a record.
MAX_HEAD = 128_000_000
#: Bytes that are read at once where a cut is looked for.
STEP = 65_536
#: A packed text is taken to be so many times as long as it is stored.
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
    inside : tuple of (int, bytes)
        Lines from its middle and its end, and where they begin.
    whole : bool
        Whether the head is all there is.
    close : bool
        Whether the sample is large enough to find types in it.
    """

    file: File
    head: bytes = b""
    excerpts: tuple[tuple[int, bytes], ...] = ()
    whole: bool = False
    is_sampled: bool = True

    @property
    def urls(self) -> tuple[str, ...]:
        """The file, for messages."""
        return (self.file.url,)


#: Where the last record of a text that begins with one ends.
FindEnd = Callable[[File, bytes], int]


def read_samples(files: Sequence[File], end: FindEnd) -> tuple[list[TextSample], list[ReadError]]:
    """Samples of files spread over the list, a glance at the others, and what is wrong."""
    count = min(len(files), MAX_SAMPLED_FILES)
    chosen = {round(i * (len(files) - 1) / max(1, count - 1)) for i in range(count)}
    with ThreadPoolExecutor(min(READER_THREADS, len(files))) as pool:
        found = list(
            pool.map(_try_sample, files, [i in chosen for i in range(len(files))], repeat(end))
        )
    samples = [one for one in found if isinstance(one, TextSample)]
    return samples, [one for one in found if isinstance(one, ReadError)]


def _try_sample(file: File, is_sampled: bool, end: FindEnd) -> TextSample | ReadError:
    try:
        with translate_read_errors(TextSample(file)):
            return _read_sample(file, is_sampled, end)
    except ReadError as error:
        return error


def _read_sample(file: File, is_sampled: bool, end: FindEnd) -> TextSample:
    length = HEAD if is_sampled else GLANCE
    while True:
        head, whole = _read_head(file, length, end)
        # A header alone is not enough, where a row is longer than that.
        if whole or head.count(b"\n") > 1:
            break
        if length >= MAX_HEAD:
            wrong = f"no two lines end in its first {length} bytes; is a quote not closed there?"
            raise ReadError(file.url, wrong)
        length = min(MAX_HEAD, length * 8)
    excerpts = []
    if is_sampled and not whole and not file.packing:
        for start in {max(length, file.size // 2), max(length, file.size - EXCERPT)}:
            text = file.between(start, min(file.size, start + EXCERPT))
            first, last = text.find(b"\n") + 1, text.rfind(b"\n") + 1
            last = len(text) if start + EXCERPT >= file.size else last
            excerpts.append((start + first, text[first:last]))
    return TextSample(file, head, tuple(excerpts), whole, is_sampled)


def _read_head(file: File, length: int, end: FindEnd) -> tuple[bytes, bool]:
    """The first records within so many bytes, and whether they are all."""
    if file.packing:
        with file.opened() as opened:
            head = bytes(opened.read(length + 1))
        whole = len(head) <= length
    else:
        head, whole = file.between(0, min(file.size, length)), file.size <= length
    return (head, True) if whole else (head[: end(file, head[:length])], False)


def has_multiline_values(text: bytes) -> bool:
    """Whether a quoted value goes over several lines."""
    odd = False
    for line in text.split(b"\n")[:-1]:
        odd ^= line.count(b'"') % 2 == 1
        if odd:
            return True
    return False


def find_cuts(file: File, start: int, count: int, multiline: bool) -> list[int]:
    """Where lines begin that cut a file into parts of about equal length; both ends included.

    Parameters
    ----------
    file : File
        Not packed.
    start : int
        Where its first record begins.
    count : int
        Parts.
    breaking : bool
        Whether quoted values may go over lines; then all of the file is read, for the quotes.
    """
    wanted = [start + round(i * (file.size - start) / count) for i in range(1, count)]
    ends = (
        find_record_starts(file, start, wanted)
        if multiline
        else (find_next_line(file, w) for w in wanted)
    )
    return sorted({start, *(end for end in ends if end < file.size), file.size})


def find_next_line(file: File, position: int) -> int:
    """Where the next line begins."""
    while position < file.size:
        text = file.between(position, min(file.size, position + STEP))
        found = text.find(b"\n")
        if found >= 0:
            return position + found + 1
        position += STEP
    return file.size


def find_record_starts(file: File, start: int, wanted: Sequence[int]) -> Iterator[int]:
    """Where the next records begin, by the number of quotes before."""
    quotes, position, step = 0, start, STEP * 64
    rest = list(wanted)
    while rest and position < file.size:
        text = file.between(position, min(file.size, position + step))
        done = 0
        while rest and rest[0] < position + len(text):
            line = text.find(b"\n", max(done, rest[0] - position))
            if line < 0:
                break
            quotes += text.count(b'"', done, line)
            done = line + 1
            if quotes % 2 == 0:
                yield position + done
                rest.pop(0)
        quotes += text.count(b'"', done)
        position += len(text)
