"""What a few bytes of text files say of the rest: their lines, and where to cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat

from hyperplane.collections.frames.sources.footers import READERS
from hyperplane.collections.frames.sources.reader import reading
from hyperplane.errors import ReadError
from hyperplane.stores.locations import File

#: Bytes of the head of a sampled file, of its middle and its end, and of the head of the others.
HEAD = 500_000
INSIDE = 100_000
GLANCE = 20_000
#: Files that are sampled.
SAMPLED = 16
#: Bytes within which a head must have an end of a record.
MOST = 128_000_000
#: Bytes that are read at once where a cut is looked for.
STEP = 65_536
#: A packed text is taken to be so many times as long as it is stored.
UNPACKED = 5


@dataclass(frozen=True)
class Sample:
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
    inside: tuple[tuple[int, bytes], ...] = ()
    whole: bool = False
    close: bool = True

    @property
    def urls(self) -> tuple[str, ...]:
        """The file, for messages."""
        return (self.file.url,)


#: Where the last record of a text that begins with one ends.
End = Callable[[File, bytes], int]


def taken(files: Sequence[File], end: End) -> tuple[list[Sample], list[ReadError]]:
    """Samples of files spread over the list, a glance at the others, and what is wrong."""
    count = min(len(files), SAMPLED)
    chosen = {round(i * (len(files) - 1) / max(1, count - 1)) for i in range(count)}
    with ThreadPoolExecutor(min(READERS, len(files))) as pool:
        found = list(
            pool.map(_attempt, files, [i in chosen for i in range(len(files))], repeat(end))
        )
    samples = [one for one in found if isinstance(one, Sample)]
    return samples, [one for one in found if isinstance(one, ReadError)]


def _attempt(file: File, close: bool, end: End) -> Sample | ReadError:
    try:
        with reading(Sample(file)):
            return _sample(file, close, end)
    except ReadError as error:
        return error


def _sample(file: File, close: bool, end: End) -> Sample:
    length = HEAD if close else GLANCE
    while True:
        head, whole = _head(file, length, end)
        # A header alone is not enough, where a row is longer than that.
        if whole or head.count(b"\n") > 1:
            break
        if length >= MOST:
            wrong = f"no two lines end in its first {length} bytes; is a quote not closed there?"
            raise ReadError(file.url, wrong)
        length = min(MOST, length * 8)
    inside = []
    if close and not whole and not file.compression:
        for start in {max(length, file.size // 2), max(length, file.size - INSIDE)}:
            text = file.read_range(start, min(file.size, start + INSIDE))
            first, last = text.find(b"\n") + 1, text.rfind(b"\n") + 1
            last = len(text) if start + INSIDE >= file.size else last
            inside.append((start + first, text[first:last]))
    return Sample(file, head, tuple(inside), whole, close)


def _head(file: File, length: int, end: End) -> tuple[bytes, bool]:
    """The first records within so many bytes, and whether they are all."""
    if file.compression:
        with file.open() as opened:
            head = bytes(opened.read(length + 1))
        whole = len(head) <= length
    else:
        head, whole = file.read_range(0, min(file.size, length)), file.size <= length
    return (head, True) if whole else (head[: end(file, head[:length])], False)


def breaks_lines(text: bytes) -> bool:
    """Whether a quoted value goes over several lines."""
    odd = False
    for line in text.split(b"\n")[:-1]:
        odd ^= line.count(b'"') % 2 == 1
        if odd:
            return True
    return False


def cuts(file: File, start: int, count: int, breaking: bool) -> list[int]:
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
        outside_quotes(file, start, wanted) if breaking else (line_after(file, w) for w in wanted)
    )
    return sorted({start, *(end for end in ends if end < file.size), file.size})


def line_after(file: File, position: int) -> int:
    """Where the next line begins."""
    while position < file.size:
        text = file.read_range(position, min(file.size, position + STEP))
        found = text.find(b"\n")
        if found >= 0:
            return position + found + 1
        position += STEP
    return file.size


def outside_quotes(file: File, start: int, wanted: Sequence[int]) -> Iterator[int]:
    """Where the next records begin, by the number of quotes before."""
    quotes, position, step = 0, start, STEP * 64
    rest = list(wanted)
    while rest and position < file.size:
        text = file.read_range(position, min(file.size, position + step))
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
