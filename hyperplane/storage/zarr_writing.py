"""Write arrays and data sets as files of a Zarr store, which the zarr library encodes in memory.

This module imports zarr, so other modules import it within functions, after
``need("zarr", "array")``.
"""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
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
from hyperplane.core.errors import Fault, OutputExists, RequestError, WrongType
from hyperplane.core.optional import need
from hyperplane.objectstore.locations import Store
from hyperplane.objectstore.redaction import describe_error
from hyperplane.objectstore.store_files import StoreFiles
from hyperplane.storage.manifest import ManifestEntry
from hyperplane.storage.object_checks import MASKED_ADVICE

_DOCUMENTS = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")
#: Names with which xarray stores an array in a data set if the array's own name cannot be used.
_UNNAMED, _NAMED = "__xarray_dataarray_variable__", "__xarray_dataarray_name__"


@dataclass(frozen=True)
class ZarrTemplate:
    """A Zarr store without the chunks that are still to be computed.

    Parameters
    ----------
    documents : mapping of str to bytes
        Metadata by key.
    chunks : mapping of str to bytes
        Chunks of variables in memory.
    lazy : list of (dask.array.Array, str)
        Arrays to compute, with the path of each in the store.
    time_units : mapping of str to str
        Units of variables of times, by name; those in nanoseconds are omitted.
    """

    documents: Mapping[str, bytes]
    chunks: Mapping[str, bytes]
    lazy: list[tuple[da.Array, str]]
    time_units: Mapping[str, str]


@dataclass(frozen=True)
class ChunkWriter:
    """Write files of a Zarr store, in tasks and in the process that saves.

    Parameters
    ----------
    store : Store
        Store of the output.
    folder : str
        Path of the staging folder.
    documents : mapping of str to bytes
        Metadata by key.
    existing : mapping of str to ManifestEntry
        Published files; equal ones are not written again.
    protected_url : str
        If not empty, a file that differs from the published one is an error, which names this
        URL.
    """

    store: Store
    folder: str
    documents: Mapping[str, bytes]
    existing: Mapping[str, ManifestEntry]
    protected_url: str = ""

    def make_entry(self, name: str, data: bytes) -> ManifestEntry:
        """Return the manifest entry of a file without writing it.

        Raises
        ------
        OutputExists
            If it differs from a protected file.
        """
        part = ManifestEntry(name, len(data), hashlib.sha256(data).hexdigest())
        if self.protected_url and self.existing.get(name) != part:
            raise OutputExists(
                self.protected_url,
                f"{name} differs from the saved file; pass mode='overwrite' to replace what is "
                "saved, or mode='skip' to keep it",
            )
        return part

    def put(self, name: str, data: bytes) -> ManifestEntry:
        """Write a file, unless an equal one is published."""
        part = self.make_entry(name, data)
        if self.existing.get(name) == part:
            return part
        store_files, path = StoreFiles(self.store), f"{self.folder}/{name}"
        try:
            store_files.put_new(path, data)
        except FileExistsError:
            # A task may run twice with different results. The first file remains, so that a late
            # writer cannot make it differ from its checksum.
            existing = store_files.get(path)
            if existing is None:
                raise
            return self.make_entry(name, existing)
        return part


def build_template(obj: Any) -> ZarrTemplate:
    """Return the metadata of an array or data set without computing it.

    Raises
    ------
    RequestError
        If Zarr does not support it.
    """
    files: dict[str, Buffer] = {}
    time_units: dict[str, str] = {}
    try:
        with warnings.catch_warnings():
            # A warning of zarr 3: consolidated metadata is not part of its specification.
            warnings.filterwarnings("ignore", "Consolidated metadata")
            lazy = (
                _write_array_metadata(obj, files)
                if isinstance(obj, da.Array)
                else _write_dataset_metadata(obj, files, time_units)
            )
    except (ValueError, TypeError, NotImplementedError) as error:
        if isinstance(error, RequestError):
            raise
        raise _refusal_error(obj, error) from error
    data = {key: value.to_bytes() for key, value in sorted(files.items())}
    documents = {key: data.pop(key) for key in list(data) if _is_document(key)}
    return ZarrTemplate(documents, data, lazy, time_units)


def _is_document(key: str) -> bool:
    """Return whether a key is that of metadata."""
    return key.rpartition("/")[2] in _DOCUMENTS


def _write_array_metadata(array: da.Array, files: dict[str, Buffer]) -> list[tuple[da.Array, str]]:
    """Write the metadata of an array, and return the array with regular chunks."""
    if any(math.isnan(length) for length in array.shape):
        advice = "call its compute_chunk_sizes() first"
        raise RequestError(
            [Fault("obj", "an array of unknown shape", "an array with known chunk sizes", advice)]
        )
    # Zarr chunks have one size; only the last may be smaller.
    array = array.rechunk(tuple(max(sizes) for sizes in array.chunks))
    chunks = tuple(max(sizes[0], 1) for sizes in array.chunks)
    zarr.create_array(MemoryStore(files), shape=array.shape, chunks=chunks, dtype=array.dtype)
    return [(array, "")]


def _write_dataset_metadata(
    obj: Any, files: dict[str, Buffer], time_units: dict[str, str]
) -> list[tuple[da.Array, str]]:
    """Write the metadata of a data set and of its variables as xarray encodes them."""
    xarray = need("xarray", "array")
    data = _as_dataset(obj) if isinstance(obj, xarray.DataArray) else obj
    for name, variable in data.variables.items():
        if variable.dtype.kind == "M" and (unit := np.datetime_data(variable.dtype)[0]) != "ns":
            time_units[name] = unit
    store = xarray.backends.ZarrStore.open_group(
        MemoryStore(files), mode="w", consolidate_on_close=True
    )
    writer = _VariableWriter()
    data.dump_to_store(store, writer=writer)
    return writer.lazy


def _as_dataset(array: Any) -> Any:
    """Return an xarray array as a data set from which xarray restores it and its name."""
    if array.name is None:
        return array.to_dataset(name=_UNNAMED)
    if array.name in array.coords or array.name in array.dims:
        return array.to_dataset(name=_UNNAMED).assign_attrs({_NAMED: array.name})
    return array.to_dataset()


class _VariableWriter:
    """Receive variables from xarray: write those in memory, and collect lazy ones."""

    def __init__(self) -> None:
        self.lazy: list[tuple[da.Array, str]] = []

    def add(self, source: Any, target: Any, region: Any = None) -> None:
        if isinstance(source, da.Array) and source.size:
            self.lazy.append((source, target.path))
        elif not isinstance(source, da.Array):
            target[region or ...] = source


def _refusal_error(obj: Any, error: Exception) -> RequestError:
    """Return the error of a request from an error of zarr or xarray."""
    text = describe_error(error)
    advice = ""
    if "chunk" in text:
        advice = (
            "make its chunks equal with chunk(), and call drop_encoding() to discard the chunks "
            "of its source file"
        )
    allowed = f"an array or data set that Zarr supports ({text})"
    return RequestError([Fault("obj", f"a {type(obj).__name__}", allowed, advice)])


def build_tasks(template: ZarrTemplate, writer: ChunkWriter) -> list[Any]:
    """Return one task per block that writes its chunks; all tasks share one graph."""
    token = tokenize(writer.folder)
    # A separate task, so that each worker receives the writer only once.
    (shared,) = task_graph.make_tasks("save-to", token, _return_writer, [[writer]])
    return build_block_tasks(template, write_block, shared, token)


def build_block_tasks(
    template: ZarrTemplate, write: Callable[..., Any], shared: Delayed, token: str
) -> list[Any]:
    """Return one task per block, whose arguments are those of :func:`write_block`.

    ``shared`` is a task whose result is the last argument.
    """
    arguments = [
        [block, path, region, shared] for block, path, region in _iterate_blocks(template.lazy)
    ]
    return task_graph.make_tasks("save", token, write, arguments) if arguments else []


def _iterate_blocks(
    lazy: list[tuple[da.Array, str]],
) -> Iterator[tuple[Any, str, tuple[slice, ...]]]:
    """Yield every non-empty block with the path and region of its array."""
    arrays = [array for array, _ in lazy]
    keys = [list(flatten(array.__dask_keys__())) for array in arrays]
    # In one graph, so that intermediate results shared by variables are computed once.
    graph = HighLevelGraph.merge(*(array.dask for array in arrays))
    work = ensure_dict(optimize(graph, [key for array_keys in keys for key in array_keys]))
    for (array, path), array_keys in zip(lazy, keys, strict=True):
        for key, region in zip(array_keys, slices_from_chunks(array.chunks), strict=True):
            if all(side.stop > side.start for side in region):
                yield Delayed(key, work), path, region


def _return_writer(writer: ChunkWriter) -> ChunkWriter:
    """Return the writer, as a task."""
    return writer


def write_block(
    block: Any, path: str, region: tuple[slice, ...], writer: ChunkWriter
) -> list[ManifestEntry]:
    """Write the chunks of one block, in a task.

    Raises
    ------
    WrongType
        If the block is masked, which is known only now if the array does not declare it.
    """
    if isinstance(block, np.ma.MaskedArray):
        name = f"obj[{path!r}]" if path else "obj"
        starts = tuple(side.start for side in region)
        message = f"{name} has a masked block at {starts}, and Zarr has no masks; {MASKED_ADVICE}"
        raise WrongType(name, "a masked array", f"block at {starts}", message)
    # Chunks of only the fill value are not stored.
    chunks: dict[str, Buffer] = {}
    prefix = f"{path}/" if path else ""
    documents = writer.documents
    document = documents.get(f"{prefix}zarr.json") or documents[f"{prefix}.zarray"]
    # Not opened by path, which takes as long as writing a small chunk.
    array = zarr.Array.from_dict(StorePath(MemoryStore(chunks), path), json.loads(document))
    array[region] = block
    return [writer.put(key, data.to_bytes()) for key, data in sorted(chunks.items())]
