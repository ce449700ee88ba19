"""Format and compression of a file, by its name."""

from __future__ import annotations

import lzma
import os
import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import fsspec

from hyperplane.core.errors import Fault, check
from hyperplane.core.units import plural

if TYPE_CHECKING:
    from hyperplane.objectstore.locations import File

#: Compression by file name extension.
COMPRESSIONS = {
    ".gz": "gzip",
    ".bz2": "bz2",
    ".xz": "xz",
    ".lzma": "lzma",
    ".zip": "zip",
    ".zst": "zstd",
    ".lz4": "lz4",
}
#: Extension of both tables and plain text.
_TEXT = ".txt"
#: Exceptions that reading a damaged file can raise, compressed or not.
DAMAGE_ERRORS: tuple[type[Exception], ...] = (
    OSError,
    EOFError,
    ValueError,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
)


def detect_compression(path: str) -> str:
    """Return the compression of a file, by its name; empty if not compressed.

    Examples
    --------
    >>> [detect_compression(name) for name in ("a.csv.gz", "A.JSONL.ZST", "a.csv")]
    ['gzip', 'zstd', '']
    """
    return COMPRESSIONS.get(_extension(_name(path)), "")


def suffix_of(path: str) -> str:
    """Return the lower-case suffix of a name, without the extension of its compression.

    Examples
    --------
    >>> suffix_of("a.CSV.gz"), suffix_of("https://host/a.json?signature=b.c"), suffix_of("README")
    ('.csv', '.json', '')
    """
    name = _name(path)
    ending = _extension(name)
    return _extension(name.removesuffix(ending)) if ending in COMPRESSIONS else ending


def _name(path: str) -> str:
    """Return the last part of a path, or of a URL without its query, in lower case."""
    return (path.partition("?")[0] if "://" in path else path).lower().rpartition("/")[2]


def _extension(name: str) -> str:
    """Return the extension of a name with its dot; empty if it has none."""
    dot = name.rfind(".")
    return name[dot:] if dot >= 0 else ""


def decompress(raw: Any, compression: str) -> AbstractContextManager[Any]:
    """Return a reader of the decompressed content of a file.

    Parameters
    ----------
    raw : file
        Opened for bytes.
    compression : str
        A value of ``COMPRESSIONS``; if empty, ``raw`` itself is returned.
    """
    if not compression:
        return nullcontext(raw)
    if compression in ("zstd", "lz4"):
        # pyarrow is installed anyway, and unlike other decoders it detects truncated files.
        import pyarrow as pa

        stream: AbstractContextManager[Any] = pa.CompressedInputStream(
            pa.PythonFile(raw, mode="r"), compression
        )
        return stream
    if compression == "zip":
        return _open_zip(raw)
    reader: AbstractContextManager[Any] = fsspec.core.compr[compression](raw, mode="rb")
    return reader


def _open_zip(raw: Any) -> AbstractContextManager[Any]:
    """Open the only file in a zip archive, ignoring the metadata files of macOS."""
    archive = zipfile.ZipFile(raw)
    entries = [entry for entry in archive.infolist() if not entry.is_dir()]
    files = [entry for entry in entries if not entry.filename.startswith("__MACOSX/")]
    if len(files) != 1:
        names = ", ".join([entry.filename for entry in files][:3]) + ", ..." * (len(files) > 3)
        holds = f"the archive holds {plural(len(files), 'file')}{f' ({names})' * bool(files)}"
        raise zipfile.BadZipFile(f"{holds}, expected exactly one; compress each file separately")
    return archive.open(files[0])


def detect_format(
    files: Sequence[File], formats: Mapping[str, str], advice: str = "", urls: Any = None
) -> str:
    """Return the one format that all files have, by their names.

    Parameters
    ----------
    files : sequence of File
        At least one.
    formats : mapping of str to str
        The format of each suffix.
    advice : str
        Advice for a file with an unknown suffix.
    urls : str, path or iterable of these, optional
        What the caller gave to find the files. If given, ``.txt`` counts as data only if all
        files have it, or if a URL names the file or is a glob such as ``*.txt``.

    Raises
    ------
    RequestError
        With every unknown suffix, or if the files have several formats.
    """
    by_suffix: dict[str, File] = {}
    for file in files:
        by_suffix.setdefault(suffix_of(file.path), file)
    endings = (
        f"a name that ends in one of {', '.join(formats)}, also with {', '.join(COMPRESSIONS)}"
    )
    unknown = [
        Fault("urls", repr(file.url), endings, advice)
        for suffix, file in by_suffix.items()
        if suffix not in formats
    ]
    check(unknown + _text_file_faults(files, urls, formats))
    by_format: dict[str, File] = {}
    for suffix, file in by_suffix.items():
        by_format.setdefault(formats[suffix], file)
    if len(by_format) > 1:
        given = " and ".join(f"{name} ({file.url})" for name, file in sorted(by_format.items()))
        glob = f"use a glob such as '*{next(iter(by_suffix))}'"
        check([Fault("urls", given, "files of one format", glob)])
    return next(iter(by_format))


def _text_file_faults(files: Sequence[File], urls: Any, formats: Collection[str]) -> list[Fault]:
    """Return a fault for the first ``.txt`` file not named by a URL, such as a README."""
    # An iterator is already consumed.
    if urls is None or isinstance(urls, Iterator):
        return []
    data = next((file for file in files if suffix_of(file.path) in {*formats} - {_TEXT}), None)
    if data is None:
        return []
    given: Iterable[Any] = [urls] if isinstance(urls, str | os.PathLike) else urls
    links = [link for url in given for link in os.fspath(url).split("::")]
    patterns = [name for name in map(_name, links) if _TEXT in name]
    for file in files:
        name = _name(file.path)
        if suffix_of(name) == _TEXT and not any(
            name == pattern or fnmatchcase(name, pattern) for pattern in patterns
        ):
            allowed = f"files such as {data.url}, and {_TEXT} only where a URL names it"
            advice = f"name the data with a glob such as '*{suffix_of(data.path)}'"
            return [Fault("urls", repr(file.url), allowed, advice)]
    return []
