"""Files that the tasks of a graph read, on local disks and in object stores, with their sizes.

Tasks of Dask's readers have paths and a file system: one of fsspec, with the storage options of the
collection, or one of PyArrow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import polars as pl
from fsspec.implementations.local import LocalFileSystem
from fsspec.spec import AbstractFileSystem

from hyperplane.guard.graph_structure import find_paths

#: Depth to which arguments of a task are searched.
_DEPTH = 10
#: Most items of one argument that are searched.
_ITEMS = 200
#: Folders of an object store that are listed at a time, and in all.
_PARALLEL, _MOST_FOLDERS = 16, 2_000


@dataclass(frozen=True)
class SourceFile:
    """A file that a task reads.

    Parameters
    ----------
    path : str
        Path in its file system.
    system_name : str
        Identifies the file system; empty for that of this machine.
    system : object
        File system of fsspec or PyArrow; None for that of this machine.
    """

    path: str
    system_name: str = ""
    system: Any = field(default=None, compare=False)

    def scan(self) -> pl.LazyFrame:
        """Return the columns of a Parquet file of an object store."""
        from pyarrow import dataset

        return pl.scan_pyarrow_dataset(
            dataset.dataset(self.path, filesystem=self.system, format="parquet")
        )


def find_source_files(node: Any) -> set[SourceFile]:
    """Return the files that a task of Dask reads, as far as its arguments name them."""
    remote = {make_source_file(path, system) for path, system in _find_remote(node)}
    remote = {file for file in remote if file.system is not None}
    known = {file.path for file in remote}
    return remote | {SourceFile(path) for path in find_paths(node) if path not in known}


def make_source_file(path: str, system: Any) -> SourceFile:
    """Return a file of a file system, without the system if it is that of this machine."""
    if isinstance(system, LocalFileSystem) or type(system).__name__ == "LocalFileSystem":
        return SourceFile(path)
    if isinstance(system, AbstractFileSystem):
        return SourceFile(path, f"fsspec {hash(system)}", system)
    # A file system of PyArrow, which may have one of fsspec.
    inner = getattr(getattr(system, "handler", None), "fs", None)
    if isinstance(inner, AbstractFileSystem):
        return make_source_file(path, inner)
    return SourceFile(path, f"pyarrow {system.type_name}", system)


def _find_remote(value: Any, depth: int = _DEPTH) -> Iterator[tuple[str, Any]]:
    """Yield paths with their file systems, of those arguments that have both."""
    if depth <= 0 or isinstance(value, str):
        return
    if isinstance(value, list | tuple | set):
        for item in list(value)[:_ITEMS]:
            yield from _find_remote(item, depth - 1)
    elif isinstance(value, dict):
        for item in list(value.values())[:_ITEMS]:
            yield from _find_remote(item, depth - 1)
    elif hasattr(value, "args") and hasattr(value, "dependencies"):
        system = getattr(getattr(value, "func", None), "fs", None)
        if system is not None:
            yield from ((path, system) for path in _find_pieces(value.args))
        yield from _find_remote(value.args, depth)
        yield from _find_remote(getattr(value, "kwargs", None) or {}, depth)
    elif hasattr(value, "fragment"):  # a part of a Parquet data set
        yield str(value.fragment.path), value.fragment.filesystem
    elif type(value).__name__ == "OpenFile":
        yield str(value.path), value.fs


def _find_pieces(arguments: Any) -> Iterator[str]:
    """Yield the paths of the Parquet files among the arguments of a task."""
    for argument in arguments:
        for part in argument if isinstance(argument, list | tuple) else [argument]:
            piece = part.get("piece") if isinstance(part, dict) else None
            if isinstance(piece, tuple | list) and piece and isinstance(piece[0], str):
                yield piece[0]


def measure_files(files: Collection[SourceFile]) -> dict[SourceFile, int]:
    """Return the bytes of files; those that do not exist, or are not accessible, have none."""
    sizes = {file: _measure_local(file.path) for file in files if file.system is None}

    def order(file: SourceFile) -> str:
        return file.system_name

    remote = sorted((file for file in files if file.system is not None), key=order)
    for _, group in groupby(remote, key=order):
        sizes |= _measure_remote(list(group))
    return sizes


def _measure_local(path: str) -> int:
    try:
        return Path(path).stat().st_size if not Path(path).is_dir() else 0
    except (OSError, ValueError):  # a text that is no path
        return 0


def _measure_remote(files: list[SourceFile]) -> dict[SourceFile, int]:
    """Return the bytes of the files of one file system, from listings of their folders."""
    system = files[0].system
    if not isinstance(system, AbstractFileSystem):
        try:
            found = system.get_file_info([file.path for file in files])
        except OSError:
            return dict.fromkeys(files, 0)
        return {file: info.size or 0 for file, info in zip(files, found, strict=True)}
    folders = sorted({file.path.rpartition("/")[0] for file in files})[:_MOST_FOLDERS]
    with ThreadPoolExecutor(_PARALLEL) as executor:
        listings = list(executor.map(lambda folder: _list_folder(system, folder), folders))
    sizes = {name.strip("/"): size for listing in listings for name, size in listing}
    return {file: sizes.get(file.path.strip("/"), 0) for file in files}


def _list_folder(system: AbstractFileSystem, folder: str) -> Iterable[tuple[str, int]]:
    """Return names and bytes of the files of a folder; nothing if it cannot be listed."""
    try:
        found = system.ls(folder, detail=True)
    except Exception:  # noqa: BLE001 - each file system has other errors
        return []
    return [(each["name"], int(each.get("size") or 0)) for each in found]
