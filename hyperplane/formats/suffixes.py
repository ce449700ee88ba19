"""The format of files by the suffixes of their names."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from hyperplane.core.errors import Fault, check
from hyperplane.objectstore.file_names import COMPRESSIONS, file_name, suffix_of
from hyperplane.objectstore.locations import File

#: Suffix of both tables and plain text.
_TEXT = ".txt"


def detect_common_format(
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
        The argument from which the files were listed. If it is set, ``.txt`` counts as data only
        if all files have it, or if a URL names the file or is a glob such as ``*.txt``.

    Raises
    ------
    RequestError
        If a suffix is unknown or the files have several formats; the error
        lists all unknown suffixes.
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
    check(unknown + _find_text_file_faults(files, urls, formats))
    by_format: dict[str, File] = {}
    for suffix, file in by_suffix.items():
        by_format.setdefault(formats[suffix], file)
    if len(by_format) > 1:
        formats_found = " and ".join(
            f"{name} ({file.url})" for name, file in sorted(by_format.items())
        )
        glob = f"use a glob such as '*{next(iter(by_suffix))}'"
        check([Fault("urls", formats_found, "files of one format", glob)])
    return next(iter(by_format))


def _find_text_file_faults(
    files: Sequence[File], urls: Any, formats: Collection[str]
) -> list[Fault]:
    """Return a fault for the first ``.txt`` file not named by a URL, such as a README."""
    # An iterator is already consumed.
    if urls is None or isinstance(urls, Iterator):
        return []
    data = next((file for file in files if suffix_of(file.path) in {*formats} - {_TEXT}), None)
    if data is None:
        return []
    url_list: Iterable[Any] = [urls] if isinstance(urls, str | os.PathLike) else urls
    links = [link for url in url_list for link in os.fspath(url).split("::")]
    patterns = [name for name in map(file_name, links) if _TEXT in name]
    for file in files:
        name = file_name(file.path)
        if suffix_of(name) == _TEXT and not any(
            name == pattern or fnmatchcase(name, pattern) for pattern in patterns
        ):
            allowed = f"files such as {data.url}, and {_TEXT} only where a URL names it"
            advice = f"name the data with a glob such as '*{suffix_of(data.path)}'"
            return [Fault("urls", repr(file.url), allowed, advice)]
    return []
