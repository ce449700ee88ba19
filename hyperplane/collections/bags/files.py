"""Which files there are, and how they are cut or joined into partitions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import fsspec

from hyperplane.collections.in_use import threads
from hyperplane.errors import Fault, check

#: Bytes of text in a partition, at most and at least, when the caller does not say.
LARGEST, SMALLEST = 64_000_000, 8_000_000
#: Partitions for each thread that are useful: the slow ones do not hold up the rest.
PER_THREAD = 4
#: To open a file takes as long as to read about so many bytes.
OPENING = 250_000
#: Text is about so many times larger than its packed form.
UNPACKED = 5
#: Files whose details are asked for at once.
AT_ONCE = 16

PACKED = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd"}
FORMATS = {
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".txt": "text",
    ".text": "text",
    ".log": "text",
}


@dataclass(frozen=True)
class File:
    """A file: its path on its store, its bytes there if known, and what else the store says."""

    path: str
    size: int | None
    packing: str
    details: str

    @property
    def weight(self) -> int:
        """What it takes to read it, as bytes of text."""
        size = LARGEST if self.size is None else self.size
        return OPENING + size * (UNPACKED if self.packing else 1)


@dataclass(frozen=True)
class Span:
    """The lines of a file that begin in ``[start, end)``; all of the file when ``end`` is None."""

    path: str
    packing: str = ""
    start: int = 0
    end: int | None = None


Part = tuple[Span, ...]


def find(
    urls: Any, storage_options: Mapping[str, Any], kind: str | None
) -> tuple[Any, list[File], str]:
    """The store, the files in order, and the format of what the URLs name.

    Raises
    ------
    RequestError
        With every URL that names nothing, and every file whose format is not known.
    """
    asked = _as_list(urls)
    check(_not_urls(urls, asked))
    store: Any = None
    found: list[File] = []
    faults: list[Fault] = []
    single: list[tuple[str, str]] = []
    order: list[list[File] | int] = []
    for url in asked:
        try:
            its_store, path = fsspec.url_to_fs(url, **storage_options)
        except (ImportError, ValueError, TypeError) as error:
            faults.append(_refused(url, f"a URL that fsspec can open ({error})"))
            continue
        if store is not None and its_store is not store and its_store != store:
            faults.append(_refused(url, "all URLs on one store", "make one bag for each store"))
            continue
        store = its_store
        if any(mark in path for mark in "*?["):
            matched = _matched(store, path)
            if not matched:
                advice = "check the folder and the pattern"
                faults.append(_refused(url, "a glob that matches files; this one has none", advice))
            order.append(matched)
        else:
            order.append(len(single))
            single.append((url, path))
    details, missing = _details(store, single)
    check([*faults, *missing])
    for entry in order:
        found += entry if isinstance(entry, list) else [details[entry]]
    return store, found, kind or _kind([file.path for file in found])


def _as_list(urls: Any) -> list[Any]:
    if isinstance(urls, (str, os.PathLike)):
        return [os.fspath(urls)]
    listed = list(urls) if isinstance(urls, Iterable) else [urls]
    return [os.fspath(url) if isinstance(url, os.PathLike) else url for url in listed]


def _not_urls(urls: Any, asked: Sequence[Any]) -> list[Fault]:
    allowed = "a path, glob or URL, or a list of them"
    if not asked:
        return [Fault("urls", repr(urls), f"{allowed}; this list is empty")]
    return [
        Fault("urls", repr(url)[:80], allowed)
        for url in asked
        if not isinstance(url, str) or not url.strip()
    ]


def _refused(url: str, allowed: str, advice: str = "") -> Fault:
    return Fault("urls", repr(url), allowed, advice)


def _matched(store: Any, path: str) -> list[File]:
    entries = store.glob(path, detail=True)
    return [_file(entries[name]) for name in sorted(entries) if entries[name]["type"] == "file"]


def _details(store: Any, single: list[tuple[str, str]]) -> tuple[list[File], list[Fault]]:
    """What the store says of files that were named one by one."""

    def ask(entry: tuple[str, str]) -> File | Fault:
        url, path = entry
        try:
            info = store.info(path)
        except FileNotFoundError:
            return _refused(url, "a file that is there; this one is not", "check its name")
        except OSError as error:
            return _refused(url, f"a file that can be read ({type(error).__name__}: {error})")
        if info["type"] == "directory":
            return _refused(url, "files; this is a folder", f"write {url.rstrip('/')}/*.jsonl")
        return _file(info)

    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        answers = list(pool.map(ask, single))
    return (
        [answer for answer in answers if isinstance(answer, File)],
        [answer for answer in answers if isinstance(answer, Fault)],
    )


def _file(info: Mapping[str, Any]) -> File:
    path, size = info["name"], info.get("size")
    packing = next((kind for end, kind in PACKED.items() if path.lower().endswith(end)), "")
    known = sorted((str(key), str(value)) for key, value in info.items())
    return File(path, None if size is None else int(size), packing, str(known))


def _kind(paths: Sequence[str]) -> str:
    kinds: dict[str, str] = {}
    for path in paths:
        name = path.lower()
        for ending in PACKED:
            name = name.removesuffix(ending)
        suffix = "." + name.rpartition("/")[2].rpartition(".")[2]
        kinds.setdefault(FORMATS.get(suffix, ""), path)
    if "" in kinds:
        advice = "or write format='json' or format='text'"
        endings = f"{', '.join(FORMATS)}, also with {', '.join(PACKED)}"
        check([Fault("urls", repr(kinds[""]), f"a name that ends in {endings}", advice)])
    if len(kinds) > 1:
        both = " and ".join(repr(path) for path in kinds.values())
        check([Fault("urls", both, "files of one format", "make one bag of each")])
    return next(iter(kinds))


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
    >>> small = [File(f"{i}.txt", 1000, "", "") for i in range(500)]
    >>> [len(part) for part in split(small, 50_000_000)]
    [199, 199, 102]
    >>> [(span.start, span.end) for (span,) in split([File("a", 250, "", "")], 100)]
    [(0, 83), (83, 166), (166, 250)]
    """
    target = blocksize or _target(sum(file.weight for file in files))
    parts: list[Part] = []
    joined: list[Span] = []
    weight = 0
    for file in files:
        if joined and weight + file.weight > target:
            parts.append(tuple(joined))
            joined, weight = [], 0
        if file.packing or file.size is None or file.size <= target:
            joined.append(Span(file.path, file.packing))
            weight += file.weight
        else:
            count = -(-file.size // target)
            edges = [file.size * cut // count for cut in range(count + 1)]
            parts += [(Span(file.path, "", start, end),) for start, end in pairwise(edges)]
    return [*parts, tuple(joined)] if joined else parts


def _target(weight: int) -> int:
    return min(LARGEST, max(SMALLEST, weight // (PER_THREAD * threads())))
