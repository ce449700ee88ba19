"""Many Zarr stores opened at once, each in two round trips where its metadata allows it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import xarray as xr
import zarr

from hyperplane.collections.arrays.arguments import advice_on
from hyperplane.collections.arrays.stored_variable import Part
from hyperplane.collections.arrays.zarr_stores import KeepingStore
from hyperplane.errors import Fault, RequestError
from hyperplane.stores.contact import reach, waiting
from hyperplane.stores.listing import place_of
from hyperplane.stores.secrets import shown, without_secrets

#: Reads that wait for their stores at the same time.
THREADS = 32
#: Chunks of one array: a graph of more takes all memory.
MOST_CHUNKS = 10_000_000


@dataclass(frozen=True)
class Opened:
    """One store that was opened.

    Parameters
    ----------
    name : str
        Its URL, without secrets.
    lazy : xarray.Dataset
        Its variables as xarray reads them; the indexes are loaded.
    data : xarray.Dataset
        The same as Dask arrays, in the chunks of the store.
    parts : dict of str to Part
        What is read, by the name of the Dask array that reads it.
    """

    name: str
    lazy: xr.Dataset
    data: xr.Dataset
    parts: dict[str, Part]


def open_all(
    urls: Sequence[str],
    stores: Sequence[KeepingStore],
    group: str | None,
    options: Mapping[str, Any],
    storage_options: Mapping[str, Any] | None,
) -> list[Opened]:
    """Open the metadata and the indexes of all stores, on threads of this process.

    Parameters
    ----------
    urls : sequence of str
        What the stores are called.
    stores : sequence of KeepingStore
        The stores.
    group : str, optional
        The group inside each of them.
    options : mapping
        How xarray is to decode them.
    storage_options : mapping, optional
        Options for fsspec; no message shows them.

    Raises
    ------
    RequestError
        With one fault for each store that could not be opened.
    """
    threads = min(THREADS, len(stores))
    with ThreadPoolExecutor(threads) as openers, ThreadPoolExecutor(threads) as readers:

        def attempt(number: int) -> Opened | Fault:
            try:
                place = place_of(urls[number], storage_options)
                reach(place, urls[number])
                with waiting(place.store, urls[number]):
                    lazy = _open(stores[number], group, options, readers)
                _check_chunks(lazy)
            except Exception as error:  # noqa: BLE001 - whatever a store or a codec may raise
                why = _reason(error, group)
                if isinstance(error, FileNotFoundError):
                    near = advice_on(urls[number], storage_options)
                    why = f"{why}; {near}" if near else why
                why = without_secrets(why, storage_options, urls[number])
                asked = repr(shown(urls[number]))
                return Fault(f"urls[{number}]", asked, "a Zarr group that can be read", why)
            return _opened(shown(urls[number]), lazy)

        attempts = list(openers.map(attempt, range(len(stores))))
    faults = [one for one in attempts if isinstance(one, Fault)]
    if faults:
        raise RequestError(faults)
    return [one for one in attempts if isinstance(one, Opened)]


def _check_chunks(lazy: xr.Dataset) -> None:
    """Fail where metadata says that an array has more chunks than a graph can hold."""
    for name, variable in lazy.variables.items():
        stored = variable.encoding.get("preferred_chunks", {})
        sizes = [(size, stored.get(dim, size)) for dim, size in variable.sizes.items()]
        # The chunks of Zarr all have one size; where a list is given, it has been made already.
        whole = [(size, chunk) for size, chunk in sizes if isinstance(chunk, int) and chunk > 0]
        count = math.prod(-(-size // chunk) for size, chunk in whole)
        if count > MOST_CHUNKS:
            said = f"array {str(name)!r} has {count} chunks, and at most {MOST_CHUNKS} are read"
            raise ValueError(f"{said}; store it in larger chunks")


def _opened(name: str, lazy: xr.Dataset) -> Opened:
    parts: dict[str, Part] = {}
    variables: dict[str, xr.Variable] = {}
    for key, variable in lazy.variables.items():
        if key not in lazy.indexes:
            part = Part(name, str(key), variable)
            array: Any = part.lazy()
            parts[array.name] = part
            variables[str(key)] = variable.copy(data=array)
    return Opened(name, lazy, lazy.assign(variables), parts)


def _open(
    store: KeepingStore,
    group: str | None,
    options: Mapping[str, Any],
    readers: ThreadPoolExecutor,
) -> xr.Dataset:
    root = zarr.open_group(store, mode="r")
    consolidated = root.metadata.consolidated_metadata is not None
    node = root[group] if group else root
    if not isinstance(node, zarr.Group):
        raise TypeError(f"{group!r} is an array")
    reads = [read for name, array in node.arrays() for read in _first_reads(name, array)]
    list(readers.map(lambda read: read(), reads))
    lazy = xr.open_dataset(
        store,  # type: ignore[arg-type]  # xarray's annotation leaves out stores of zarr
        engine="zarr",
        chunks=None,
        cache=False,
        group=group,
        consolidated=consolidated,
        zarr_format=root.metadata.zarr_format,
        **options,
    )
    store.forget()
    return lazy


def _first_reads(name: str, array: zarr.Array[Any]) -> list[Callable[[], Any]]:
    """The reads that xarray will make of an array to open its group, to be made at once.

    An index is read whole. Of times the first and the last are looked at for their type.
    """
    dims: Any = getattr(array.metadata, "dimension_names", None)
    dims = dims or array.attrs.get("_ARRAY_DIMENSIONS")
    if dims is not None and tuple(dims) == (name,):
        return [partial(array.__getitem__, slice(None))]
    if "since" in str(array.attrs.get("units", "")) and array.size:
        ends = [tuple(0 for _ in array.shape), tuple(size - 1 for size in array.shape)]
        return [partial(array.__getitem__, end) for end in ends]
    return []


def _reason(error: Exception, group: str | None) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, FileNotFoundError):
        return "nothing is there, or nothing that is a Zarr group"
    if isinstance(error, KeyError):
        return f"it holds no {text}" if group is None else f"it has no group {group!r}"
    return f"{type(error).__name__}: {text[:300]}"
