"""Parse and check the arguments of ``open_zarr_many``; reads no store, only expands globs."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import dask

from hyperplane.core.argument_checks import find_flag_faults, is_one_of
from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.public_calls import unknown_name
from hyperplane.core.units import is_iterable
from hyperplane.objectstore import listing
from hyperplane.objectstore.missing_packages import advise_installation
from hyperplane.objectstore.reachability import StoreUnreachable
from hyperplane.objectstore.redaction import describe_error, describe_url

if TYPE_CHECKING:
    from hyperplane.collections.arrays.caching_store import CachingStore

_ALLOWED = {
    "combine": ("by_coords", "concat", "merge", "nested"),
    "compat": (
        "broadcast_equals",
        "equals",
        "identical",
        "minimal",
        "no_conflicts",
        "override",
    ),
    "combine_attrs": ("drop", "drop_conflicts", "identical", "no_conflicts", "override"),
    "join": ("exact", "inner", "left", "outer", "override", "right"),
}
#: Names that ``data_vars`` and ``coords`` accept in place of a list of variables.
_VARIABLE_CHOICES = ("minimal", "different", "all")
#: Parameters of xarray.open_dataset that are no options of ``open_zarr_many``.
_RESERVED_OPTIONS = {"filename_or_obj", "engine", "chunks", "cache", "backend_kwargs", "kwargs"}
_ALLOWED_URLS = "a path, URL or glob of Zarr stores, or a list of them"
_CHUNKS_ADVICE = "hyperplane.array.rechunk(data, chunks) changes the chunks of the result"


def find_argument_faults(
    combine: str,
    concat_dim: Any,
    compat: str,
    combine_attrs: Any,
    join: str,
    data_vars: Any,
    coords: Any,
    load: Any,
    group: Any,
    decoding: Mapping[str, Any],
) -> Iterator[Fault]:
    """Yield a fault for each invalid argument; the URLs are checked separately."""
    choices = {"combine": combine, "compat": compat, "combine_attrs": combine_attrs, "join": join}
    for where, value in choices.items():
        if not is_one_of(value, _ALLOWED[where]) and not (
            where == "combine_attrs" and callable(value)
        ):
            yield Fault(where, repr(value)[:80], "one of " + ", ".join(_ALLOWED[where]))
    if is_one_of(combine, ("merge", "by_coords")) and concat_dim is not None:
        advice = "use combine='concat' to concatenate along a dimension"
        yield Fault("concat_dim", repr(concat_dim)[:80], f"nothing for {combine!r}", advice)
    if is_one_of(combine, ("concat", "nested")):
        for dim in concat_dim if isinstance(concat_dim, list) else [concat_dim]:
            # xarray merges the data sets of a level for which the list has None.
            is_merged_level = dim is None and isinstance(concat_dim, list)
            if not is_merged_level and not isinstance(getattr(dim, "name", dim), str):
                allowed = "the name of a dimension, or an index or array that has a name"
                yield Fault("concat_dim", repr(dim)[:80], allowed)
    if is_one_of(combine, ("concat",)) and isinstance(concat_dim, list):
        yield Fault("concat_dim", repr(concat_dim)[:80], "one dimension", "or combine='nested'")
    for where, value in {"data_vars": data_vars, "coords": coords}.items():
        is_name_list = isinstance(value, list | tuple) and all(
            isinstance(name, str) for name in value
        )
        if not is_name_list and not is_one_of(
            value, (*_VARIABLE_CHOICES, *(None,) * (where == "data_vars"))
        ):
            allowed = f"one of {', '.join(_VARIABLE_CHOICES)}, or a list of names"
            yield Fault(where, repr(value)[:80], allowed)
    yield from find_flag_faults(load=load)
    if not isinstance(group, str | None):
        yield Fault("group", repr(group)[:80], "the path of a group in each store, or None")
    decoding_names = _list_open_dataset_options()
    for name in decoding:
        if name not in decoding_names:
            own_names = [
                "group",
                *choices,
                "concat_dim",
                "data_vars",
                "coords",
                "load",
                "storage_options",
            ]
            fault = unknown_name(
                name, decoding[name], [*own_names, *sorted(decoding_names)], "open_zarr_many"
            )
            yield replace(fault, advice=_CHUNKS_ADVICE) if name == "chunks" else fault


def _list_open_dataset_options() -> set[str]:
    import xarray as xr

    return set(inspect.signature(xr.open_dataset).parameters) - _RESERVED_OPTIONS


def list_store_urls(
    urls: Any, combine: str, concat_dim: Any, storage_options: Mapping[str, Any] | None
) -> tuple[list[str], Any, list[Any]]:
    """Return one URL per store and, for ``combine="nested"``, the nested lists and dimensions.

    Empty for an unknown ``combine`` and nested lists, because ``combine`` determines whether lists
    may be nested.
    """
    if not is_one_of(combine, _ALLOWED["combine"]) and _has_nested_list(urls):
        return [], None, []
    if not is_one_of(combine, ("nested",)):
        return expand_urls(urls, storage_options), None, []
    tree, depth, names = flatten_nested_urls(urls)
    dims = concat_dim if isinstance(concat_dim, list) else [concat_dim]
    if depth != len(dims):
        allowed = f"one dimension for each level of lists in urls, which has {depth}"
        raise RequestError([Fault("concat_dim", repr(concat_dim)[:80], allowed)])
    return names, tree, dims


def _has_nested_list(urls: Any) -> bool:
    return isinstance(urls, list | tuple) and any(isinstance(url, list | tuple) for url in urls)


def expand_urls(urls: Any, storage_options: Mapping[str, Any] | None) -> list[str]:
    """Return one URL for each store, with globs expanded in natural order of the names."""
    patterns = [urls] if isinstance(urls, str | os.PathLike) else urls
    if isinstance(patterns, Mapping | bytes) or not is_iterable(patterns):
        raise RequestError([Fault("urls", describe_url(urls), _ALLOWED_URLS)])
    store_urls: list[str] = []
    faults: list[Fault] = []
    for number, pattern in enumerate(patterns):
        where = "urls" if isinstance(urls, str | os.PathLike) else f"urls[{number}]"
        try:
            store_urls += _expand_url(pattern, where, storage_options)
        except RequestError as error:
            faults += error.faults
    if not store_urls and not faults:
        faults = [Fault("urls", describe_url(urls), _ALLOWED_URLS + "; the list is empty")]
    if faults:
        raise RequestError(faults)
    return store_urls


def flatten_nested_urls(urls: Any) -> Any:
    """Return nested URLs as nested lists of text, their depth, and as a flat list.

    Examples
    --------
    >>> flatten_nested_urls([["a", "b"], ["c", "d"]])
    ([['a', 'b'], ['c', 'd']], 2, ['a', 'b', 'c', 'd'])
    """
    if isinstance(urls, str | os.PathLike) or not isinstance(urls, Sequence) or not urls:
        allowed = "a list of paths or URLs, or nested lists of equal depth"
        raise RequestError([Fault("urls", describe_url(urls), allowed)])
    if all(isinstance(url, str | os.PathLike) for url in urls):
        row = [os.fspath(url) for url in urls]
        return row, 1, row
    branches = [flatten_nested_urls(branch) for branch in urls]
    depths = {depth for _, depth, _ in branches}
    if len(depths) > 1:
        raise RequestError([Fault("urls", describe_url(urls), "nested lists of equal depth")])
    tree = [subtree for subtree, _, _ in branches]
    return tree, depths.pop() + 1, [url for _, _, row in branches for url in row]


def _expand_url(pattern: Any, where: str, storage_options: Mapping[str, Any] | None) -> list[str]:
    if not isinstance(pattern, str | os.PathLike) or not os.fspath(pattern):
        raise RequestError([Fault(where, describe_url(pattern), _ALLOWED_URLS)])
    url = os.fspath(pattern)
    if not listing.is_glob(url):
        return [url]
    if "::" in url:
        raise RequestError(
            [
                Fault(
                    where,
                    describe_url(url),
                    "one URL for each store; globs in chained URLs (::) are not supported",
                )
            ]
        )
    try:
        return [entry.address for entry in listing.find_entries(url, storage_options)]
    except RequestError as error:
        raise RequestError([replace(fault, where=where) for fault in error.faults]) from error


def make_stores(
    names: Sequence[str], storage_options: Mapping[str, Any] | None, load: bool
) -> list[CachingStore]:
    """Return a store object for each URL, without reading from it."""
    from hyperplane.collections.arrays.caching_store import (
        MEMORY_STORE_ERROR,
        CachingStore,
        is_in_memory,
        make_store,
    )

    stores, faults = [], []
    for number, url in enumerate(names):
        where = f"urls[{number}]"
        try:
            store = make_store(url, storage_options)
        except (ImportError, ValueError, TypeError, StoreUnreachable) as error:
            faults.append(
                Fault(
                    where,
                    describe_url(url),
                    f"a URL that fsspec can open ({describe_error(error, storage_options, url)})",
                    advise_installation(error, url),
                )
            )
            continue
        if is_in_memory(store) and not load and _has_remote_workers():
            advice = "write them to files or an object store, or read them here with load=True"
            faults.append(
                Fault(
                    where,
                    describe_url(url),
                    f"a store that workers can read: {MEMORY_STORE_ERROR}",
                    advice,
                )
            )
        stores.append(CachingStore(store))
    check(faults)
    return stores


def suggest_similar_store(url: str, storage_options: Mapping[str, Any] | None) -> str:
    """Return advice for a missing store, such as similar paths next to it; may be empty."""
    if listing.is_glob(url):  # other calls have expanded it
        return "combine='nested' expands no globs: write the URL of each store"
    try:
        listing.find_entries(url, storage_options)
    except RequestError as error:
        return error.faults[0].advice
    return ""


def _has_remote_workers() -> bool:
    """Whether the current Dask scheduler computes in other processes."""
    if dask.config.get("scheduler", None) in ("processes", "multiprocessing"):
        return True
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return False
    try:
        client = distributed.default_client()
    except ValueError:
        return False
    return not str(client.scheduler_info(n_workers=0)["address"]).startswith("inproc://")
