"""List the sizes of very many files with little memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hyperplane.core.errors import Fault, check
from hyperplane.objectstore import listing
from hyperplane.objectstore.links import is_circular
from hyperplane.objectstore.locations import Location


def iterate_file_sizes(
    urls: Any, options: Mapping[str, Any] | None = None
) -> Iterator[tuple[str, int]]:
    """Yield address and size of the files that :func:`find_files` finds, in no order.

    Local folders are read entry by entry: a million files of :func:`find_files` take more than a
    gigabyte. Files that several URLs name are yielded for each.

    Raises
    ------
    RequestError
        As :func:`find_files`, and for names that are not UTF-8, which no text file can hold.
    """
    names = [urls] if isinstance(urls, (str, os.PathLike)) else urls
    others: list[Any] = []
    folders: list[str] = []
    for name in list(names) if isinstance(names, (list, tuple)) else [names]:
        folder = _local_folder(name, options)
        if folder is None:
            others.append(name)
        else:
            folders.append(folder)
    if others or not folders:
        for file in listing.find_files(others, options):
            yield _check_utf8(file.address), file.size
    faults: list[Fault] = []
    for folder in folders:
        found = False
        for path, size in _scan(folder, faults):
            found = True
            yield _check_utf8(path), size
        if not found:
            faults.append(Fault("urls", folder, "a folder with at least one file"))
    check(faults)


def _local_folder(name: Any, options: Any) -> str | None:
    """Return the path of a local folder; None for anything else, which find_files judges."""
    if not isinstance(name, (str, os.PathLike)) or not str(os.fspath(name)).strip():
        return None
    if not isinstance(options, Mapping | None):
        return None
    location: Location = listing.resolve_location(os.fspath(name), options)
    is_folder = location.store.local and Path(location.path).is_dir()
    return location.path if is_folder and not listing.is_system_folder(location.path) else None


def _scan(folder: str, faults: list[Fault]) -> Iterator[tuple[str, int]]:
    """Yield the visible files of a folder and its subfolders; add dangling links to the faults."""
    pending = [folder]
    while pending:
        current = pending.pop()
        try:
            entries = os.scandir(current)
        except FileNotFoundError:  # removed during the listing
            continue
        except OSError as error:
            allowed = f"a folder that can be read ({error.strerror})"
            faults.append(Fault("urls", current, allowed))
            continue
        with entries:
            for entry in entries:
                if entry.name.startswith(("_", ".")):
                    continue
                try:
                    if entry.is_dir():
                        if not entry.is_symlink() or not is_circular(entry.path):
                            pending.append(entry.path)
                    elif entry.is_file():
                        yield entry.path, entry.stat().st_size
                    elif entry.is_symlink() and not Path(entry.path).exists():
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
