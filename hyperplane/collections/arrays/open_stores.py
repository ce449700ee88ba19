"""Open many Zarr stores in parallel, each with two round trips if its metadata allows it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import xarray as xr
import zarr

from hyperplane.collections.arrays.arguments import suggest_similar_store
from hyperplane.collections.arrays.caching_store import CachingStore
from hyperplane.collections.arrays.stored_variable import StoredVariable
from hyperplane.core.errors import Fault, RequestError
from hyperplane.objectstore.listing import resolve_location
from hyperplane.objectstore.reachability import monitor_request, probe_store
from hyperplane.objectstore.redaction import redact_text, redact_url

#: Maximum number of concurrent reads.
READER_THREADS = 32
#: Maximum number of chunks of one array, because a larger task graph exhausts memory.
MAX_CHUNKS = 10_000_000


@dataclass(frozen=True)
class OpenedStore:
    """A Zarr store whose metadata and indexes are loaded."""

    #: URL without secrets.
    name: str
    #: Variables as xarray's lazily indexed arrays.
    dataset: xr.Dataset
    #: The same variables as Dask arrays, in the chunks of the store.
    dask_dataset: xr.Dataset
    #: Stored variables by the names of their Dask arrays.
    stored_variables: dict[str, StoredVariable]


def open_stores(
    urls: Sequence[str],
    stores: Sequence[CachingStore],
    group: str | None,
    options: Mapping[str, Any],
    storage_options: Mapping[str, Any] | None,
) -> list[OpenedStore]:
    """Read the metadata and indexes of all stores with threads of this process.

    ``options`` are the decoding options of :func:`xarray.open_dataset`. A RequestError has one
    fault for each store that cannot be opened.
    """
    threads = min(READER_THREADS, len(stores))
    with ThreadPoolExecutor(threads) as openers, ThreadPoolExecutor(threads) as readers:

        def open_store(number: int) -> OpenedStore | Fault:
            try:
                location = resolve_location(urls[number], storage_options)
                probe_store(location, urls[number])
                with monitor_request(location.store, urls[number]):
                    dataset = _open_dataset(stores[number], group, options, readers)
                _check_chunk_count(dataset)
            except Exception as error:  # noqa: BLE001 - stores and codecs raise any type
                reason = _describe_error(error, group)
                if isinstance(error, FileNotFoundError):
                    similar = suggest_similar_store(urls[number], storage_options)
                    reason = f"{reason}; {similar}" if similar else reason
                reason = redact_text(reason, storage_options, urls[number])
                given = repr(redact_url(urls[number]))
                return Fault(f"urls[{number}]", given, "a Zarr group that can be read", reason)
            return _make_opened_store(redact_url(urls[number]), dataset)

        results = list(openers.map(open_store, range(len(stores))))
    faults = [result for result in results if isinstance(result, Fault)]
    if faults:
        raise RequestError(faults)
    return [result for result in results if isinstance(result, OpenedStore)]


def _check_chunk_count(dataset: xr.Dataset) -> None:
    """Raise ValueError if an array has more chunks than a task graph can hold."""
    for name, variable in dataset.variables.items():
        stored = variable.encoding.get("preferred_chunks", {})
        sizes = [(size, stored.get(dim, size)) for dim, size in variable.sizes.items()]
        # A tuple has the size of each chunk; it is in memory already, so it is not too long.
        regular = [(size, chunk) for size, chunk in sizes if isinstance(chunk, int) and chunk > 0]
        count = math.prod(-(-size // chunk) for size, chunk in regular)
        if count > MAX_CHUNKS:
            problem = f"array {str(name)!r} has {count} chunks; at most {MAX_CHUNKS} are supported"
            raise ValueError(f"{problem}; store it in larger chunks")


def _make_opened_store(name: str, dataset: xr.Dataset) -> OpenedStore:
    stored_variables: dict[str, StoredVariable] = {}
    variables: dict[str, xr.Variable] = {}
    for key, variable in dataset.variables.items():
        if key not in dataset.indexes:
            source = StoredVariable(name, str(key), variable)
            array: Any = source.to_dask()
            stored_variables[array.name] = source
            variables[str(key)] = variable.copy(data=array)
    return OpenedStore(name, dataset, dataset.assign(variables), stored_variables)


def _open_dataset(
    store: CachingStore,
    group: str | None,
    options: Mapping[str, Any],
    readers: ThreadPoolExecutor,
) -> xr.Dataset:
    root = zarr.open_group(store, mode="r")
    consolidated = root.metadata.consolidated_metadata is not None
    node = root[group] if group else root
    if not isinstance(node, zarr.Group):
        raise TypeError(f"group={group!r} is an array")
    reads = [read for name, array in node.arrays() for read in _list_initial_reads(name, array)]
    list(readers.map(lambda read: read(), reads))
    dataset = xr.open_dataset(
        store,  # type: ignore[arg-type]  # xarray's annotation leaves out stores of zarr
        engine="zarr",
        chunks=None,
        cache=False,
        group=group,
        consolidated=consolidated,
        zarr_format=root.metadata.zarr_format,
        **options,
    )
    store.stop_caching()
    return dataset


def _list_initial_reads(name: str, array: zarr.Array[Any]) -> list[Callable[[], Any]]:
    """Return the reads that xarray makes of an array to open its group, to run in parallel.

    xarray reads an index completely, and the first and last value of a time variable to choose
    its dtype.
    """
    dims: Any = getattr(array.metadata, "dimension_names", None)
    dims = dims or array.attrs.get("_ARRAY_DIMENSIONS")
    if dims is not None and tuple(dims) == (name,):
        return [partial(array.__getitem__, slice(None))]
    if "since" in str(array.attrs.get("units", "")) and array.size:
        ends = [tuple(0 for _ in array.shape), tuple(size - 1 for size in array.shape)]
        return [partial(array.__getitem__, end) for end in ends]
    return []


def _describe_error(error: Exception, group: str | None) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, FileNotFoundError):
        return "no Zarr group exists there"
    if isinstance(error, KeyError):
        return f"it has no {text}" if group is None else f"it has no group {group!r}"
    return f"{type(error).__name__}: {text[:300]}"
