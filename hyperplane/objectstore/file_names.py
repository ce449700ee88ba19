"""Suffix and compression of a file by its name, and readers of compressed files."""

from __future__ import annotations

import lzma
import zipfile
import zlib
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import fsspec

from hyperplane.core.units import plural

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
    """Return the compression of a file by its name; empty if it is not compressed.

    Examples
    --------
    >>> [detect_compression(name) for name in ("a.csv.gz", "A.JSONL.ZST", "a.csv")]
    ['gzip', 'zstd', '']
    """
    return COMPRESSIONS.get(_extension(file_name(path)), "")


def suffix_of(path: str) -> str:
    """Return the lower-case suffix of a name, without the extension of its compression.

    Examples
    --------
    >>> suffix_of("a.CSV.gz"), suffix_of("https://host/a.json?signature=b.c"), suffix_of("README")
    ('.csv', '.json', '')
    """
    name = file_name(path)
    ending = _extension(name)
    return _extension(name.removesuffix(ending)) if ending in COMPRESSIONS else ending


def file_name(path: str) -> str:
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
        content = f"the archive holds {plural(len(files), 'file')}{f' ({names})' * bool(files)}"
        raise zipfile.BadZipFile(f"{content}, expected exactly one; compress each file separately")
    return archive.open(files[0])
