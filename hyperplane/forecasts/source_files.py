"""Files that the tasks of a graph read, on local disks and in object stores, with their sizes.

Tasks of Dask's readers have paths and a file system: one of fsspec, with the storage options of the
collection, or one of PyArrow.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
from fsspec.implementations.local import LocalFileSystem
from fsspec.spec import AbstractFileSystem

from hyperplane.core.dask_internals.tasks import GraphNode
from hyperplane.guard.graph_structure import find_paths

if TYPE_CHECKING:
    import polars as pl

#: Depth to which arguments of a task are searched.
_DEPTH = 10
#: Most items of one argument that are searched.
_ITEMS = 200
#: Requests to an object store at a time, and seconds for those of all its files.
_PARALLEL, _SECONDS = 16, 30.0
#: Files of a request to a file system of PyArrow.
_BATCH = 200


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
        # Not above: the process of a sample has this module, and a worker has no Polars.
        import polars as pl
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
    # With its endpoint and region: buckets of two stores may have one name.
    name = f"pyarrow {system.type_name} {hash(cloudpickle.dumps(system))}"
    return SourceFile(path, name, system)


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
    elif isinstance(value, GraphNode):
        arguments = getattr(value, "args", ())
        system = getattr(getattr(value, "func", None), "fs", None)
        if system is not None:
            yield from ((path, system) for path in _find_pieces(arguments))
        yield from _find_remote(arguments, depth)
        yield from _find_remote(getattr(value, "kwargs", None) or {}, depth)
    elif _is_instance(value, "FragmentWrapper", "dask"):  # a part of a Parquet data set
        yield str(value.fragment.path), value.fragment.filesystem
    elif _is_instance(value, "OpenFile", "fsspec"):
        yield str(value.path), value.fs


def _is_instance(value: Any, name: str, package: str) -> bool:
    """Return whether a value has a class of a package, which need not be imported for that.

    Attributes do not show it: columns of a data frame are attributes, too.
    """
    return type(value).__name__ == name and type(value).__module__.split(".")[0] == package


def _find_pieces(arguments: Any) -> Iterator[str]:
    """Yield the paths of the Parquet files among the arguments of a task."""
    for argument in arguments:
        for part in argument if isinstance(argument, list | tuple) else [argument]:
            piece = part.get("piece") if isinstance(part, dict) else None
            if isinstance(piece, tuple | list) and piece and isinstance(piece[0], str):
                yield piece[0]


def measure_files(files: Collection[SourceFile]) -> dict[SourceFile, int | None]:
    """Return the bytes of files.

    Those of this machine that do not exist, or are not accessible, have none. Those of other file
    systems whose size is not found in time are None.
    """
    sizes: dict[SourceFile, int | None] = {
        file: _measure_local(file.path) for file in files if file.system is None
    }

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


def _measure_remote(files: list[SourceFile]) -> dict[SourceFile, int | None]:
    """Return the bytes of the files of one file system, of fsspec from listings of folders."""
    system = files[0].system
    paths = [file.path for file in files]
    if isinstance(system, AbstractFileSystem):
        folders = sorted({path.rpartition("/")[0] for path in paths})
        found = _request(lambda folder: _list_folder(system, folder), folders)
    else:
        batches = [paths[start : start + _BATCH] for start in range(0, len(paths), _BATCH)]
        found = _request(lambda batch: _get_sizes(system, batch), batches)
    return {file: found.get(file.path.strip("/")) for file in files}


def _request(ask: Callable[[Any], dict[str, int]], questions: Sequence[Any]) -> dict[str, int]:
    """Return the answers to all requests; those that fail, or come too late, are missing."""
    deadline = time.monotonic() + _SECONDS
    found: dict[str, int] = {}
    executor = ThreadPoolExecutor(_PARALLEL)
    for future in [executor.submit(ask, each) for each in questions]:
        try:
            found |= future.result(max(0.0, deadline - time.monotonic()))
        except Exception:  # noqa: BLE001 - each file system has other errors
            if time.monotonic() >= deadline:
                break
    executor.shutdown(wait=False, cancel_futures=True)
    return found


def _list_folder(system: AbstractFileSystem, folder: str) -> dict[str, int]:
    """Return the bytes of the files of a folder that have a size."""
    found = system.ls(folder, detail=True)
    return {
        each["name"].strip("/"): int(each["size"]) for each in found if each.get("size") is not None
    }


def _get_sizes(system: Any, paths: list[str]) -> dict[str, int]:
    """Return the bytes of the files of a file system of PyArrow that have a size."""
    found = system.get_file_info(paths)
    return {
        path.strip("/"): info.size
        for path, info in zip(paths, found, strict=True)
        if info.size is not None
    }
