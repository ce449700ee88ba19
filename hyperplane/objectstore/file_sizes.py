"""List the sizes of very many files with little memory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fsspec.utils import glob_translate

from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.objectstore import listing
from hyperplane.objectstore.links import is_circular
from hyperplane.objectstore.locations import Location
from hyperplane.objectstore.object_scan import ObjectScan, plan_object_scan

_CHECK_ACCESS = "check the name, and your permissions for the folders above it"


def iterate_file_sizes(
    urls: Any, options: Mapping[str, Any] | None = None
) -> Iterator[tuple[str, int]]:
    """Yield address and size of the files that :func:`find_files` finds, in no order.

    Local folders and globs are read entry by entry, and those of S3 and Google Cloud Storage page
    by page: a million files of :func:`find_files` take gigabytes. Files that several URLs name are
    yielded for each.

    Raises
    ------
    RequestError
        As :func:`find_files`, and for names that are not UTF-8, which no text file can hold.
    """
    names = [urls] if isinstance(urls, (str, os.PathLike)) else urls
    others: list[Any] = []
    scans: list[_Scan] = []
    object_scans: list[ObjectScan] = []
    for name in list(names) if isinstance(names, (list, tuple)) else [names]:
        scan = _plan_scan(name, options)
        if scan is None:
            others.append(name)
        elif isinstance(scan, ObjectScan):
            object_scans.append(scan)
        else:
            scans.append(scan)
    for object_scan in object_scans:
        found = False
        for sized in object_scan.iterate_sizes():
            found = True
            yield sized
        if not found:
            others.append(object_scan.name)  # for its fault
    if others or not (scans or object_scans):
        for file in listing.find_files(others, options):
            yield _check_utf8(file.address), file.size
    faults: list[Fault] = []
    for scan in scans:
        found = False
        for path, size in _list(scan, faults):
            found = True
            yield _check_utf8(path), size
        if not found:
            allowed = "a folder or glob with at least one file"
            faults.append(Fault("urls", scan.name, allowed, "check the folder and the pattern"))
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


def _plan_scan(name: Any, options: Any) -> _Scan | ObjectScan | None:
    """Return how to list a folder or glob; None for all else, which find_files lists."""
    if not isinstance(name, (str, os.PathLike)) or not str(os.fspath(name)).strip():
        return None
    if not isinstance(options, Mapping | None):
        return None
    location: Location = listing.resolve_location(os.fspath(name), options)
    if not location.store.local:
        return plan_object_scan(name, location)
    try:
        return _plan_local_scan(location.path)
    except OSError as error:  # such as a closed folder above it, or a name that is too long
        allowed = f"a file, folder or glob that can be read ({error.strerror})"
        raise RequestError([Fault("urls", location.path[:200], allowed, _CHECK_ACCESS)]) from error


def _plan_local_scan(path: str) -> _Scan | None:
    if Path(path).is_dir():
        return None if listing.is_system_folder(path) else _Scan(path, path)
    if not listing.is_glob(path) or os.path.lexists(path) or path.endswith("/"):
        return None
    folder = re.split(r"[*?\[]", path, maxsplit=1)[0].rpartition("/")[0] or "/"
    if not Path(folder).is_dir() or listing.is_system_folder(folder):
        return None
    inside = path[len(folder) :].lstrip("/")
    try:
        pattern = re.compile(glob_translate(path))
    except (ValueError, re.error) as error:  # such as a**.csv, or [z-a]
        allowed = f"a valid pattern; in this one is: {error}"
        advice = "write * for any text in a name, and ** for folders at any depth, as in a/**/*.csv"
        raise RequestError([Fault("urls", path[:200], allowed, advice)]) from error
    return _Scan(
        name=path,
        folder=folder,
        pattern=pattern,
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
        shows_hidden = scan.is_hidden and not is_matched
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.startswith(("_", ".")) and not shows_hidden:
                        continue
                    is_listed = is_matched or (
                        pattern is not None and pattern.match(entry.path) is not None
                    )
                    kind, size = _examine(entry, is_listed, faults)
                    if kind == "file" and is_listed:
                        yield entry.path, size
                    elif kind == "folder":
                        ends = not is_listed and depth + 1 == scan.depth
                        guards = is_matched or not scan.depth
                        if not ends and not (
                            guards and entry.is_symlink() and is_circular(entry.path)
                        ):
                            pending.append((entry.path, is_listed, depth + 1))
        except FileNotFoundError:  # removed during the listing
            continue
        except OSError as error:
            allowed = f"a folder that can be read ({error.strerror})"
            faults.append(Fault("urls", folder, allowed, _CHECK_ACCESS))


def _examine(
    entry: os.DirEntry[str], is_listed: bool, faults: list[Fault]
) -> tuple[Literal["file", "folder", "other"], int]:
    """Return the kind and size of what an entry leads to; add a fault for a listed broken link."""
    try:
        if entry.is_dir():
            return "folder", 0
        if entry.is_file():
            return "file", entry.stat().st_size if is_listed else 0
        if not entry.is_symlink() or Path(entry.path).exists():  # such as a socket
            return "other", 0
        reason = ""
    except FileNotFoundError:  # removed during the listing
        return "other", 0
    except OSError as error:  # such as a circle of links, or a target in a closed folder
        reason = f" ({error.strerror})"
    if is_listed:
        with suppress(OSError):  # removed during the listing, or no link
            leads = repr(str(Path(entry.path).readlink()))
            allowed = f"a link to an existing file that can be read; it leads to {leads}{reason}"
            faults.append(Fault("urls", entry.path, allowed, "fix or remove the link"))
            return "other", 0
        if reason:
            allowed = f"a file that can be read{reason}"
            faults.append(Fault("urls", entry.path, allowed, _CHECK_ACCESS))
    return "other", 0


def _check_utf8(address: str) -> str:
    try:
        address.encode()
    except UnicodeEncodeError:
        check([Fault("urls", ascii(address)[:200], "names of files in UTF-8", "rename the file")])
    return address
