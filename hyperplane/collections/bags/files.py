"""Which files there are, and how they are cut or joined into partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from hyperplane.collections.active_cluster import count_threads
from hyperplane.errors import Fault, RequestError
from hyperplane.stores import listing
from hyperplane.stores.naming import format_of
from hyperplane.stores.places import File

#: Bytes of text in a partition, at most and at least, when the caller does not say.
LARGEST, SMALLEST = 64_000_000, 8_000_000
#: Partitions for each thread that are useful: the slow ones do not hold up the rest.
PER_THREAD = 4
#: To open a file takes as long as to read about so many bytes.
OPENING = 250_000
#: Text is about so many times larger than its packed form.
UNPACKED = 5

FORMATS = {
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".txt": "text",
    ".text": "text",
    ".log": "text",
}


@dataclass(frozen=True)
class Span:
    """The lines of a file that begin in ``[start, end)``; all of the file when ``end`` is None."""

    path: str
    packing: str = ""
    start: int = 0
    end: int | None = None


Part = tuple[Span, ...]


def find(
    urls: Any, storage_options: Mapping[str, Any] | None, kind: str | None
) -> tuple[list[File], str]:
    """The files in order, all on one store, and the format of what the URLs name.

    Raises
    ------
    RequestError
        With every URL that names nothing, and every file whose format is not known.
    """
    found = listing.find(urls, storage_options, sized=False)
    first = {file.store.system: file for file in reversed(found)}
    if len(first) > 1:
        asked = " and ".join(repr(file.url) for file in reversed(first.values()))
        advice = "make one bag for each store"
        raise RequestError([Fault("urls", asked, "all URLs on one store", advice)])
    return found, kind if kind is not None else format_of(
        found, FORMATS, "or write format='json' or format='text'"
    )


def weight(file: File) -> int:
    """What it takes to read a file, as bytes of text."""
    size = file.size if file.sized else LARGEST
    return OPENING + size * (UNPACKED if file.packing else 1)


def split(files: Sequence[File], blocksize: int | None) -> list[Part]:
    """Cut large files and join small ones into partitions of about one size, in their order.

    Parameters
    ----------
    files : sequence of File
    blocksize : int, optional
        Bytes of text in a partition. By default a partition for each of four turns of every
        thread, but no fewer than 8 and no more than 64 MB.

    Returns
    -------
    list of tuple of Span

    Examples
    --------
    >>> from hyperplane.stores.places import Store
    >>> here = Store("file", "file:///", {})
    >>> small = [File(here, f"{i}.txt", 1000, "") for i in range(500)]
    >>> [len(part) for part in split(small, 50_000_000)]
    [199, 199, 102]
    >>> [(span.start, span.end) for (span,) in split([File(here, "a", 250, "")], 100)]
    [(0, 83), (83, 166), (166, 250)]
    """
    target = blocksize or _target(sum(map(weight, files)))
    parts: list[Part] = []
    joined: list[Span] = []
    filled = 0
    for file in files:
        if joined and filled + weight(file) > target:
            parts.append(tuple(joined))
            joined, filled = [], 0
        if file.packing or not file.sized or file.size <= target:
            joined.append(Span(file.path, file.packing))
            filled += weight(file)
        else:
            count = -(-file.size // target)
            edges = [file.size * cut // count for cut in range(count + 1)]
            parts += [(Span(file.path, "", start, end),) for start, end in pairwise(edges)]
    return [*parts, tuple(joined)] if joined else parts


def _target(total: int) -> int:
    return min(LARGEST, max(SMALLEST, total // (PER_THREAD * count_threads())))
