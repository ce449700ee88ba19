"""From what a caller names to files: paths, globs, folders and URLs."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from hyperplane.errors import Fault, check

FORMATS = {
    ".parquet": "parquet",
    ".parq": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".json": "jsonl",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".avro": "avro",
}
_STAMPS = ("ETag", "etag", "md5Hash", "generation", "mtime", "LastModified", "updated", "created")


@dataclass(frozen=True)
class Store:
    """A file system, made again wherever it is needed; never shows its options.

    Parameters
    ----------
    protocol : str
        As in the URL, such as ``file`` or ``gs``; may be a chain.
    url : str
        One URL on it, from which fsspec makes it.
    options : dict
        What fsspec is given; secrets among them.
    """

    protocol: str
    url: str = field(repr=False)
    options: Mapping[str, Any] = field(repr=False)

    @cached_property
    def system(self) -> Any:
        """The file system of fsspec."""
        return fsspec.url_to_fs(self.url, **self.options)[0]

    @property
    def local(self) -> bool:
        """Whether paths are those of this machine's own disk."""
        return self.protocol == "file"

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("protocol", "url", "options")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __dask_tokenize__(self) -> Any:
        return (self.protocol, self.url, sorted(self.options.items(), key=repr))


@dataclass(frozen=True)
class File:
    """One file: its path on its store, its bytes there, and what changes when it does."""

    store: Store
    path: str = field(repr=False)
    size: int
    stamp: str

    @property
    def url(self) -> str:
        """The file as messages may name it."""
        return (
            self.path if self.store.local else shown(self.store.system.unstrip_protocol(self.path))
        )

    def between(self, start: int, stop: int) -> bytes:
        """Some bytes of the file as it is stored."""
        if start >= stop:
            return b""
        if not self.store.local:
            return bytes(self.store.system.cat_file(self.path, start=start, end=stop))
        with Path(self.path).open("rb") as opened:
            opened.seek(start)
            return opened.read(stop - start)


def shown(url: object) -> str:
    """A URL without what may be secret in it: a user, a password, a signature."""
    return re.sub(r"//[^/@]*@", "//", str(url)).partition("?")[0] if "://" in str(url) else str(url)


def natural(path: str) -> list[Any]:
    """The key by which ``part-2`` comes before ``part-10``."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path)]


def find(urls: Any, options: Mapping[str, Any] | None) -> list[File]:
    """All files of paths, globs, folders and URLs, in natural order within each.

    Raises
    ------
    RequestError
        With everything that is not there or cannot be opened.
    """
    given = [urls] if isinstance(urls, (str, os.PathLike)) else urls
    if not isinstance(given, Sequence) or not given:
        check([_fault(urls, "a path, glob or URL, or a list of them")])
    found: list[File] = []
    faults: list[Fault] = []
    for url in given:
        if not isinstance(url, (str, os.PathLike)) or not os.fspath(url):
            faults.append(_fault(url, "a path, glob or URL"))
            continue
        try:
            files = _find(os.fspath(url), dict(options or {}))
        except (ImportError, OSError, ValueError, TypeError) as error:
            allowed = f"a URL that fsspec can open ({type(error).__name__}: {error})"
            faults.append(_fault(url, allowed, "see storage_options"))
            continue
        if isinstance(files, Fault):
            faults.append(files)
        else:
            found += files
    check(faults)
    return list({(file.store.protocol, file.path): file for file in found}.values())


def _fault(url: object, allowed: str, advice: str = "") -> Fault:
    asked = repr(shown(url)) if isinstance(url, (str, os.PathLike)) else repr(url)
    return Fault("urls", asked[:200], allowed, advice)


def _find(url: str, options: dict[str, Any]) -> list[File] | Fault:
    system, path = fsspec.url_to_fs(url, **options)
    if isinstance(system, LocalFileSystem):
        store = Store("file", "file:///", options)
    else:
        protocol = system.protocol if isinstance(system.protocol, str) else system.protocol[0]
        store = Store(protocol, url, options)
    if any(mark in path for mark in "*?[") and not (store.local and system.exists(path)):
        entries = list(system.glob(path, detail=True).values())
        entries = [e for e in entries if not _hidden(e["name"].rstrip("/").rpartition("/")[2])]
    elif system.exists(path):
        entries = [system.info(path)]
    else:
        return _fault(url, "files that are there; none were found", _similar(system, path))
    files = [entry for entry in entries if entry["type"] == "file"]
    for folder in [entry["name"] for entry in entries if entry["type"] == "directory"]:
        inside = system.find(folder, detail=True).values()
        files += [e for e in inside if not _hidden(e["name"].removeprefix(folder))]
    if not files:
        return _fault(url, "files that are there; none were found")
    made = [File(store, e["name"], int(e["size"] or 0), _stamp(e)) for e in files]
    return sorted(made, key=lambda file: natural(file.path))


def _hidden(path: str) -> bool:
    """Whether a file is a mark or a leftover of what wrote the data, or in a folder of such."""
    return any(part.startswith(("_", ".")) for part in path.split("/"))


def _stamp(entry: Mapping[str, Any]) -> str:
    return next((f"{name}={entry[name]}" for name in _STAMPS if entry.get(name)), "")


def _similar(system: Any, path: str) -> str:
    """Advice that names files beside the one that is missing."""
    folder, _, name = path.rstrip("/").rpartition("/")
    try:
        beside = [entry.rstrip("/").rpartition("/")[2] for entry in system.ls(folder, detail=False)]
    except (OSError, ValueError, NotImplementedError):
        return ""
    close = difflib.get_close_matches(name, beside, n=3)
    return f"did you mean {' or '.join(map(repr, close))}?" if close else ""


def format_of(files: Sequence[File], asked: str | None) -> str:
    """The one format that all files have.

    Raises
    ------
    RequestError
        When a suffix is unknown or the files are of several formats.
    """
    known = sorted(set(FORMATS.values()))
    if asked is not None:
        if asked not in known:
            close = difflib.get_close_matches(str(asked), known, n=1)
            advice = f"did you mean {close[0]!r}?" if close else ""
            check([Fault("format", repr(asked), f"one of {', '.join(known)}", advice)])
        return asked
    by_suffix: dict[str, File] = {}
    for file in files:
        by_suffix.setdefault(suffix_of(file.path), file)
    faults = [
        Fault("urls", repr(file.url), f"a name that ends in one of {', '.join(FORMATS)}", advice)
        for suffix, file in by_suffix.items()
        if suffix not in FORMATS
        for advice in ["or say it with format='parquet', 'csv', 'jsonl' or 'avro'"]
    ]
    check(faults)
    formats = {FORMATS[suffix]: file for suffix, file in by_suffix.items()}
    if len(formats) > 1:
        seen = " and ".join(f"{name} ({file.url})" for name, file in sorted(formats.items()))
        check([Fault("urls", seen, "files of one format", "use a glob such as '*.parquet'")])
    return next(iter(formats))


def suffix_of(path: str) -> str:
    """What a name ends in, without the ending of what packed it."""
    name = path.lower().partition("?")[0].rpartition("/")[2]
    if fsspec.utils.infer_compression(name):
        name = name.rpartition(".")[0]
    dot = name.rfind(".")
    return name[dot:] if dot >= 0 else ""
