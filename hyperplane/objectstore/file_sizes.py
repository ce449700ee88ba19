"""List the sizes of very many files with little memory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsspec.utils import glob_translate

from hyperplane.core.errors import Fault, check
from hyperplane.objectstore import listing
from hyperplane.objectstore.links import is_circular
from hyperplane.objectstore.locations import Location


def iterate_file_sizes(
    urls: Any, options: Mapping[str, Any] | None = None
) -> Iterator[tuple[str, int]]:
    """Yield address and size of the files that :func:`find_files` finds, in no order.

    Local folders and globs are read entry by entry: a million files of :func:`find_files` take more
    than a gigabyte. Files that several URLs name are yielded for each.

    Raises
    ------
    RequestError
        As :func:`find_files`, and for names that are not UTF-8, which no text file can hold.
    """
    names = [urls] if isinstance(urls, (str, os.PathLike)) else urls
    others: list[Any] = []
    scans: list[_Scan] = []
    for name in list(names) if isinstance(names, (list, tuple)) else [names]:
        scan = _plan_scan(name, options)
        if scan is None:
            others.append(name)
        else:
            scans.append(scan)
    if others or not scans:
        for file in listing.find_files(others, options):
            yield _check_utf8(file.address), file.size
    faults: list[Fault] = []
    for scan in scans:
        found = False
        for path, size in _list(scan, faults):
            found = True
            yield _check_utf8(path), size
        if not found:
            faults.append(Fault("urls", scan.name, "a folder or glob with at least one file"))
    check(faults)


@dataclass(frozen=True)
class _Scan:
    """A local folder to list, and for a glob the expression that its entries match.

    ``depth`` is the number of parts of a glob without ``**``, below which only matched folders are
    listed; 0 for no limit.
    """

    name: str
    folder: str
    pattern: re.Pattern[str] | None = None
    depth: int = 0
    is_hidden: bool = False


def _plan_scan(name: Any, options: Any) -> _Scan | None:
    """Return how to list a local folder or glob; None for all else, which find_files lists."""
    if not isinstance(name, (str, os.PathLike)) or not str(os.fspath(name)).strip():
        return None
    if not isinstance(options, Mapping | None):
        return None
    location: Location = listing.resolve_location(os.fspath(name), options)
    path = location.path
    if not location.store.local:
        return None
    if Path(path).is_dir():
        return None if listing.is_system_folder(path) else _Scan(path, path)
    if not listing.is_glob(path) or os.path.lexists(path) or path.endswith("/"):
        return None
    folder = re.split(r"[*?\[]", path, maxsplit=1)[0].rpartition("/")[0] or "/"
    if not Path(folder).is_dir() or listing.is_system_folder(folder):
        return None
    inside = path[len(folder) :].lstrip("/")
    return _Scan(
        name=path,
        folder=folder,
        pattern=re.compile(glob_translate(path)),
        depth=0 if "**" in inside else inside.count("/") + 1,
        is_hidden=listing.is_hidden(inside),
    )


def _list(scan: _Scan, faults: list[Fault]) -> Iterator[tuple[str, int]]:
    """Yield the files of a folder or glob; add dangling links and closed folders to the faults."""
    pattern = scan.pattern
    # Folder, whether all in it are listed, and its depth below the first.
    pending = [(scan.folder, pattern is None, 0)]
    while pending:
        folder, is_matched, depth = pending.pop()
        try:
            entries = os.scandir(folder)
        except FileNotFoundError:  # removed during the listing
            continue
        except OSError as error:
            allowed = f"a folder that can be read ({error.strerror})"
            faults.append(Fault("urls", folder, allowed))
            continue
        shows_hidden = scan.is_hidden and not is_matched
        with entries:
            for entry in entries:
                if entry.name.startswith(("_", ".")) and not shows_hidden:
                    continue
                is_listed = is_matched or (
                    pattern is not None and pattern.match(entry.path) is not None
                )
                try:
                    if entry.is_dir():
                        ends = not is_listed and depth + 1 == scan.depth
                        guards = is_matched or not scan.depth
                        if not ends and not (
                            guards and entry.is_symlink() and is_circular(entry.path)
                        ):
                            pending.append((entry.path, is_listed, depth + 1))
                    elif is_listed and entry.is_file():
                        yield entry.path, entry.stat().st_size
                    elif is_listed and entry.is_symlink() and not Path(entry.path).exists():
                        leads = repr(str(Path(entry.path).readlink()))
                        allowed = f"a link to an existing file; it leads to {leads}"
                        faults.append(Fault("urls", entry.path, allowed, "fix or remove the link"))
                except FileNotFoundError:  # removed during the listing
                    continue


def _check_utf8(address: str) -> str:
    try:
        address.encode()
    except UnicodeEncodeError:
        check([Fault("urls", ascii(address)[:200], "names of files in UTF-8", "rename the file")])
    return address
