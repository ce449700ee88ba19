"""List the files of a bag and divide them into partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from hyperplane.core.active_cluster import count_threads
from hyperplane.core.errors import Fault, RequestError
from hyperplane.formats.suffixes import detect_common_format
from hyperplane.objectstore import listing
from hyperplane.objectstore.locations import File
from hyperplane.objectstore.redaction import redact_url

#: Default maximum and minimum bytes of text in a partition.
MAX_PARTITION, MIN_PARTITION = 64_000_000, 8_000_000
#: Partitions per thread, so that slow partitions do not leave threads idle.
PARTITIONS_PER_THREAD = 4
#: Opening a file takes about as long as reading this many bytes.
OPEN_COST = 250_000
#: Assumed ratio of the sizes of uncompressed and compressed text.
COMPRESSION_RATIO = 5

#: Suffix of a file -> its format.
FORMATS = {
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".txt": "text",
    ".text": "text",
    ".log": "text",
}


@dataclass(frozen=True)
class TextByteRange:
    """The lines of a file that start in bytes ``[start, end)``; the whole file if end is None."""

    path: str
    compression: str = ""
    start: int = 0
    end: int | None = None

    @property
    def name(self) -> str:
        """The path without secrets, such as the signature of a URL."""
        return redact_url(self.path)


BagPartition = tuple[TextByteRange, ...]


def find_files(
    urls: Any, storage_options: Mapping[str, Any] | None, kind: str | None
) -> tuple[list[File], str]:
    """Return the files in order and their format; all files must be on one file system.

    A RequestError is raised if a URL matches no file, if the files are on several file systems, or
    if their format is not known.
    """
    files = listing.find_files(urls, storage_options, sized=False)
    first_files = {file.store.system: file for file in reversed(files)}
    if len(first_files) > 1:
        given = " and ".join(repr(file.url) for file in reversed(first_files.values()))
        advice = "make one bag for each file system and join them with dask.bag.concat"
        raise RequestError([Fault("urls", given, "URLs of one file system", advice)])
    return files, kind if kind is not None else detect_common_format(
        files, FORMATS, "or write format='json' or format='text'"
    )


def estimate_cost(file: File) -> int:
    """Return the cost of reading a file, in bytes of text."""
    size = file.size if file.sized else MAX_PARTITION
    return OPEN_COST + size * (COMPRESSION_RATIO if file.compression else 1)


def split_into_partitions(files: Sequence[File], blocksize: int | None) -> list[BagPartition]:
    """Divide large files and join small ones into partitions of similar size, in order.

    ``blocksize`` is the number of bytes of text in a partition; by default there are four
    partitions per thread, each of 8 to 64 MB.

    Examples
    --------
    >>> from hyperplane.objectstore.locations import Store
    >>> disk = Store("file", "file:///", {})
    >>> small = [File(disk, f"{i}.txt", 1000, "") for i in range(500)]
    >>> [len(part) for part in split_into_partitions(small, 50_000_000)]
    [199, 199, 102]
    >>> large = [File(disk, "a", 250, "")]
    >>> [(part[0].start, part[0].end) for part in split_into_partitions(large, 100)]
    [(0, 83), (83, 166), (166, 250)]
    """
    target = blocksize or _choose_blocksize(sum(map(estimate_cost, files)))
    parts: list[BagPartition] = []
    joined: list[TextByteRange] = []
    filled = 0
    for file in files:
        if joined and filled + estimate_cost(file) > target:
            parts.append(tuple(joined))
            joined, filled = [], 0
        if file.compression or not file.sized or file.size <= target:
            joined.append(TextByteRange(file.path, file.compression))
            filled += estimate_cost(file)
        else:
            count = -(-file.size // target)
            edges = [file.size * cut // count for cut in range(count + 1)]
            parts += [(TextByteRange(file.path, "", start, end),) for start, end in pairwise(edges)]
    return [*parts, tuple(joined)] if joined else parts


def _choose_blocksize(total: int) -> int:
    return min(
        MAX_PARTITION, max(MIN_PARTITION, total // (PARTITIONS_PER_THREAD * count_threads()))
    )
