"""What the name of a file says: its format, and how it is packed."""

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

from hyperplane.errors import Fault, check
from hyperplane.units import plural

if TYPE_CHECKING:
    from hyperplane.stores.locations import File

#: How a file is packed, by the ending of its name.
COMPRESSIONS = {
    ".gz": "gzip",
    ".bz2": "bz2",
    ".xz": "xz",
    ".lzma": "lzma",
    ".zip": "zip",
    ".zst": "zstd",
    ".lz4": "lz4",
}
#: Suffix of tables and of plain text alike.
_TEXT = ".txt"
#: What reading a damaged file can raise, packed or not.
DAMAGE_ERRORS: tuple[type[Exception], ...] = (
    OSError,
    EOFError,
    ValueError,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
)


def detect_compression(path: str) -> str:
    """How a file is packed, by its name; empty when it is not.

    Examples
    --------
    >>> packing_of("a.csv.gz"), packing_of("A.JSONL.ZST"), packing_of("a.csv")
    ('gzip', 'zstd', '')
    """
    return COMPRESSIONS.get(_extension(_name(path)), "")


def suffix_of(path: str) -> str:
    """What a name ends in, without the ending of what packed it.

    Examples
    --------
    >>> suffix_of("a.CSV.gz"), suffix_of("https://host/a.json?signature=b.c"), suffix_of("README")
    ('.csv', '.json', '')
    """
    name = _name(path)
    ending = _extension(name)
    return _extension(name.removesuffix(ending)) if ending in COMPRESSIONS else ending


def _name(path: str) -> str:
    """The last part of a path, or of a URL without its query."""
    return (path.partition("?")[0] if "://" in path else path).lower().rpartition("/")[2]


def _extension(name: str) -> str:
    dot = name.rfind(".")
    return name[dot:] if dot >= 0 else ""


def decompress(raw: Any, packing: str) -> AbstractContextManager[Any]:
    """A file of what is packed in another one.

    Parameters
    ----------
    raw : file
        Opened for bytes.
    packing : str
        A value of ``PACKED``; empty for a file that is not packed, which comes back as it is.
    """
    if not packing:
        return nullcontext(raw)
    if packing in ("zstd", "lz4"):
        # Needs no package more, and unlike some finds that a file is cut off.
        import pyarrow as pa

        stream: AbstractContextManager[Any] = pa.CompressedInputStream(
            pa.PythonFile(raw, mode="r"), packing
        )
        return stream
    if packing == "zip":
        return _open_zip(raw)
    made: AbstractContextManager[Any] = fsspec.core.compr[packing](raw, mode="rb")
    return made


def _open_zip(raw: Any) -> AbstractContextManager[Any]:
    """The only file in an archive; what macOS adds to each is none."""
    archive = zipfile.ZipFile(raw)
    entries = [entry for entry in archive.infolist() if not entry.is_dir()]
    files = [entry for entry in entries if not entry.filename.startswith("__MACOSX/")]
    if len(files) != 1:
        names = ", ".join([entry.filename for entry in files][:3]) + ", ..." * (len(files) > 3)
        holds = f"the archive holds {plural(len(files), 'file')}{f' ({names})' * bool(files)}"
        raise zipfile.BadZipFile(f"{holds}, and must hold one; pack each file by itself")
    return archive.open(files[0])


def detect_format(
    files: Sequence[File], formats: Mapping[str, str], advice: str = "", urls: Any = None
) -> str:
    """The one format that all files have, by their names.

    Parameters
    ----------
    files : sequence of File
        At least one.
    formats : mapping of str to str
        The format of each suffix.
    advice : str
        For a file whose suffix says nothing.
    urls : str, path or iterable of these, optional
        What the caller gave to find the files. With these ``.txt`` is a format of data only
        where all files have it, or where a URL names the file or is a glob such as ``*.txt``.

    Raises
    ------
    RequestError
        With every suffix that is not known, or when the files are of several formats.
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
    found: dict[str, File] = {}
    for suffix, file in by_suffix.items():
        found.setdefault(formats[suffix], file)
    if len(found) > 1:
        asked = " and ".join(f"{name} ({file.url})" for name, file in sorted(found.items()))
        glob = f"use a glob such as '*{next(iter(by_suffix))}'"
        check([Fault("urls", asked, "files of one format", glob)])
    return next(iter(found))


def _text_file_faults(files: Sequence[File], urls: Any, formats: Collection[str]) -> list[Fault]:
    """A fault for the first ``.txt`` file that no URL names, such as a README beside the data."""
    # What an iterator gave is known no more.
    if urls is None or isinstance(urls, Iterator):
        return []
    data = next((file for file in files if suffix_of(file.path) in {*formats} - {_TEXT}), None)
    if data is None:
        return []
    several: Iterable[Any] = [urls] if isinstance(urls, str | os.PathLike) else urls
    links = [link for url in several for link in os.fspath(url).split("::")]
    asked = [name for name in map(_name, links) if _TEXT in name]
    for file in files:
        name = _name(file.path)
        if suffix_of(name) == _TEXT and not any(
            name == pattern or fnmatchcase(name, pattern) for pattern in asked
        ):
            allowed = f"files such as {data.url}, and {_TEXT} only where a URL names it"
            advice = f"name the data with a glob such as '*{suffix_of(data.path)}'"
            return [Fault("urls", repr(file.url), allowed, advice)]
    return []
