"""Arrays and data sets as the files of a Zarr store, each made in memory by the zarr library.

zarr is imported here, so this module is imported by the functions that have asked for it.
"""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import dask.array as da
import zarr
from dask.array.core import slices_from_chunks
from dask.array.optimization import optimize
from dask.core import flatten
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from dask.tokenize import tokenize
from dask.utils import ensure_dict
from zarr.core.buffer import Buffer
from zarr.storage import MemoryStore, StorePath

from hyperplane.collections.frames import task_graph
from hyperplane.errors import Fault, OutputExists, RequestError
from hyperplane.optional import need
from hyperplane.storage.manifest import Part
from hyperplane.storage.shelf import Shelf
from hyperplane.stores.places import Store
from hyperplane.stores.secrets import said

_DOCUMENTS = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")
#: Names by which xarray finds an array in a file that cannot hold it under its own.
_UNNAMED, _NAMED = "__xarray_dataarray_variable__", "__xarray_dataarray_name__"


@dataclass(frozen=True)
class Template:
    """A Zarr store without the blocks that are still to be computed.

    Parameters
    ----------
    documents : mapping of str to bytes
        The metadata, by key.
    chunks : mapping of str to bytes
        Those of variables that were in memory already.
    lazy : list of (dask.array.Array, str)
        What is to be computed, and the path of its array.
    """

    documents: Mapping[str, bytes]
    chunks: Mapping[str, bytes]
    lazy: list[tuple[da.Array, str]]


@dataclass(frozen=True)
class Writing:
    """How files are written, by tasks and before them.

    Parameters
    ----------
    store : Store
        Where.
    folder : str
        Path of the folder for what is not yet published.
    documents : mapping of str to bytes
        The metadata, by key.
    there : mapping of str to Part
        What is published; the same is not written again.
    refuse : str
        URL for the error of a file that differs from what is there; empty to write it.
    """

    store: Store
    folder: str
    documents: Mapping[str, bytes]
    there: Mapping[str, Part]
    refuse: str = ""

    def part(self, name: str, data: bytes) -> Part:
        """A file by its checksum; nothing is written.

        Raises
        ------
        OutputExists
            When it is not the one that is there, which is not to be replaced.
        """
        part = Part(name, len(data), hashlib.sha256(data).hexdigest())
        if self.refuse and self.there.get(name) != part:
            raise OutputExists(
                self.refuse,
                f"{name} is not the one that is there; write mode='overwrite' to replace what is "
                "there, or mode='skip' to keep it",
            )
        return part

    def put(self, name: str, data: bytes) -> Part:
        """Write a file, unless the same is there."""
        part = self.part(name, data)
        if self.there.get(name) == part:
            return part
        shelf, path = Shelf(self.store), f"{self.folder}/{name}"
        try:
            shelf.put_new(path, data)
        except FileExistsError:
            # A task may run twice, and what it computes may differ; that which is there first
            # stays, so that no late writer makes a file differ from its checksum.
            found = shelf.get(path)
            if found is None:
                raise
            return self.part(name, found)
        return part


def template_of(obj: Any) -> Template:
    """The metadata of an array or a data set, with nothing computed.

    Raises
    ------
    RequestError
        When Zarr cannot hold it.
    """
    files: dict[str, Buffer] = {}
    try:
        with warnings.catch_warnings():
            # Every version of zarr reads the data without it.
            warnings.filterwarnings("ignore", "Consolidated metadata")
            lazy = _array(obj, files) if isinstance(obj, da.Array) else _dataset(obj, files)
    except (ValueError, TypeError, NotImplementedError) as error:
        if isinstance(error, RequestError):
            raise
        raise _refused(obj, error) from error
    data = {key: value.to_bytes() for key, value in sorted(files.items())}
    documents = {key: data.pop(key) for key in list(data) if _is_document(key)}
    return Template(documents, data, lazy)


def _is_document(key: str) -> bool:
    return key.rpartition("/")[2] in _DOCUMENTS


def _array(array: da.Array, files: dict[str, Buffer]) -> list[tuple[da.Array, str]]:
    if any(math.isnan(length) for length in array.shape):
        advice = "call its compute_chunk_sizes() first"
        raise RequestError([Fault("obj", "an array of unknown shape", "known chunks", advice)])
    # Zarr has chunks of one size, of which only the last may be smaller.
    array = array.rechunk(tuple(max(sizes) for sizes in array.chunks))
    chunks = tuple(max(sizes[0], 1) for sizes in array.chunks)
    zarr.create_array(MemoryStore(files), shape=array.shape, chunks=chunks, dtype=array.dtype)
    return [(array, "")]


def _dataset(obj: Any, files: dict[str, Buffer]) -> list[tuple[da.Array, str]]:
    """The metadata of a data set, and its variables as xarray encodes them."""
    xarray = need("xarray", "array")
    data = _as_dataset(obj) if isinstance(obj, xarray.DataArray) else obj
    wrong = [name for name in data.variables if not isinstance(name, str) or not name]
    if wrong:
        raise RequestError([Fault("obj", f"variables named {wrong}", "names that are text")])
    made = xarray.backends.ZarrStore.open_group(
        MemoryStore(files), mode="w", consolidate_on_close=True
    )
    writer = _Writer()
    data.dump_to_store(made, writer=writer)
    return writer.lazy


def _as_dataset(array: Any) -> Any:
    """An array of xarray as the data set in which xarray finds it again, with its name."""
    if array.name is None:
        return array.to_dataset(name=_UNNAMED)
    if array.name in array.coords or array.name in array.dims:
        return array.to_dataset(name=_UNNAMED).assign_attrs({_NAMED: array.name})
    return array.to_dataset()


class _Writer:
    """Takes the variables from xarray: writes those in memory, and keeps those that are lazy."""

    def __init__(self) -> None:
        self.lazy: list[tuple[da.Array, str]] = []

    def add(self, source: Any, target: Any, region: Any = None) -> None:
        if isinstance(source, da.Array) and source.size:
            self.lazy.append((source, target.path))
        elif not isinstance(source, da.Array):
            target[region or ...] = source


def _refused(obj: Any, error: Exception) -> RequestError:
    """A library's complaint as a fault of the call."""
    text = said(error)
    advice = ""
    if "chunk" in text:
        advice = (
            "give it equal chunks with chunk(), and drop_encoding() to forget those of the file "
            "that it came from"
        )
    allowed = f"what Zarr can hold ({text})"
    return RequestError([Fault("obj", f"a {type(obj).__name__}", allowed, advice)])


def tasks_of(template: Template, writing: Writing) -> list[Any]:
    """One task for each block, which writes its chunks; all of one graph."""
    token = tokenize(writing.folder)
    # A task by itself, so that a worker receives it once.
    (shared,) = task_graph.make_tasks("save-to", token, _itself, [[writing]])
    each = [[block, path, region, shared] for block, path, region in _blocks(template.lazy)]
    return task_graph.make_tasks("save", token, write_block, each) if each else []


def _blocks(lazy: list[tuple[da.Array, str]]) -> Iterator[tuple[Any, str, tuple[slice, ...]]]:
    """Every block that has something in it, where it belongs."""
    arrays = [array for array, _ in lazy]
    keys = [list(flatten(array.__dask_keys__())) for array in arrays]
    # Together, so that what several variables are made of is computed once.
    graph = HighLevelGraph.merge(*(array.dask for array in arrays))
    work = ensure_dict(optimize(graph, [key for some in keys for key in some]))
    for (array, path), some in zip(lazy, keys, strict=True):
        for key, region in zip(some, slices_from_chunks(array.chunks), strict=True):
            if all(side.stop > side.start for side in region):
                yield Delayed(key, work), path, region


def _itself(writing: Writing) -> Writing:
    return writing


def write_block(block: Any, path: str, region: tuple[slice, ...], writing: Writing) -> list[Part]:
    """Write the chunks of one block, in a task."""
    # A chunk that holds nothing but the fill value gets no file.
    chunks: dict[str, Buffer] = {}
    prefix = f"{path}/" if path else ""
    documents = writing.documents
    document = documents.get(f"{prefix}zarr.json") or documents[f"{prefix}.zarray"]
    # Not opened by its name, which takes as long as a small chunk.
    array = zarr.Array.from_dict(StorePath(MemoryStore(chunks), path), json.loads(document))
    array[region] = block
    return [writing.put(key, data.to_bytes()) for key, data in sorted(chunks.items())]
