"""What a call of ``open_zarr_many`` asks for, checked before anything is read."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import dask

from hyperplane.collections.arrays.urls import listed, nested
from hyperplane.collections.flags import find_flag_faults, is_one_of
from hyperplane.errors import Fault, RequestError, check
from hyperplane.public_calls import unknown_name
from hyperplane.stores import listing
from hyperplane.stores.contact import StoreUnreachable
from hyperplane.stores.secrets import given, said

if TYPE_CHECKING:
    from hyperplane.collections.arrays.stores import KeepingStore

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
#: Which variables are put in a row, other than those of a list.
_CHOICES = ("minimal", "different", "all")
#: Options of xarray.open_dataset that this package sets itself.
_OURS = {"filename_or_obj", "engine", "chunks", "cache", "backend_kwargs", "kwargs"}
_STORED = "hyperplane.array.rechunk(data, chunks) changes the chunks of what comes back"


def faults_of(
    combine: str,
    concat_dim: Any,
    compat: str,
    combine_attrs: Any,
    join: str,
    data_vars: Any,
    coords: Any,
    load: Any,
    decoding: Mapping[str, Any],
) -> Iterator[Fault]:
    """Everything that is wrong with the arguments, but for the URLs."""
    words = {"combine": combine, "compat": compat, "combine_attrs": combine_attrs, "join": join}
    for where, asked in words.items():
        if not is_one_of(asked, _ALLOWED[where]) and not (
            where == "combine_attrs" and callable(asked)
        ):
            yield Fault(where, repr(asked)[:80], "one of " + ", ".join(_ALLOWED[where]))
    if is_one_of(combine, ("merge", "by_coords")) and concat_dim is not None:
        advice = "combine='concat' puts stores in a row"
        yield Fault("concat_dim", repr(concat_dim)[:80], f"nothing for {combine!r}", advice)
    if is_one_of(combine, ("concat", "nested")):
        for dim in concat_dim if isinstance(concat_dim, list) else [concat_dim]:
            between = dim is None and isinstance(concat_dim, list)  # xarray merges there
            if not between and not isinstance(getattr(dim, "name", dim), str):
                allowed = "the name of a dimension, or an index or array that has a name"
                yield Fault("concat_dim", repr(dim)[:80], allowed)
    if is_one_of(combine, ("concat",)) and isinstance(concat_dim, list):
        yield Fault("concat_dim", repr(concat_dim)[:80], "one dimension", "or combine='nested'")
    for where, asked in {"data_vars": data_vars, "coords": coords}.items():
        named = isinstance(asked, list | tuple) and all(isinstance(name, str) for name in asked)
        if not named and not is_one_of(asked, (*_CHOICES, *(None,) * (where == "data_vars"))):
            allowed = f"one of {', '.join(_CHOICES)}, or a list of names"
            yield Fault(where, repr(asked)[:80], allowed)
    yield from find_flag_faults(load=load)
    known = _options()
    for name in decoding:
        if name not in known:
            own = ["group", *words, "concat_dim", "data_vars", "coords", "load", "storage_options"]
            fault = unknown_name(name, decoding[name], [*own, *sorted(known)], "open_zarr_many")
            yield replace(fault, advice=_STORED) if name == "chunks" else fault


def _options() -> set[str]:
    import xarray as xr

    return set(inspect.signature(xr.open_dataset).parameters) - _OURS


def named(
    urls: Any, combine: str, concat_dim: Any, storage_options: Mapping[str, Any] | None
) -> tuple[list[str], Any, list[Any]]:
    """One URL for each store; for a grid of stores also its lists and their dimensions."""
    if combine != "nested":
        return listed(urls, storage_options), None, []
    tree, depth, names = nested(urls)
    dims = concat_dim if isinstance(concat_dim, list) else [concat_dim]
    if depth != len(dims):
        allowed = f"one dimension for each level of lists; here are {depth}"
        raise RequestError([Fault("concat_dim", repr(concat_dim)[:80], allowed)])
    return names, tree, dims


def stores_of(
    names: Sequence[str], storage_options: Mapping[str, Any] | None, load: bool
) -> list[KeepingStore]:
    """The stores behind URLs; nothing is read yet."""
    from hyperplane.collections.arrays.stores import ELSEWHERE, KeepingStore, in_memory, store_of

    found, faults = [], []
    for number, url in enumerate(names):
        where = f"urls[{number}]"
        try:
            store = store_of(url, storage_options)
        except (ImportError, ValueError, TypeError, StoreUnreachable) as error:
            faults.append(
                Fault(
                    where,
                    given(url),
                    f"a URL that fsspec can open ({said(error, storage_options, url)})",
                )
            )
            continue
        if in_memory(store) and not load and _workers_are_elsewhere():
            advice = "write them to files or an object store, or read them here with load=True"
            faults.append(
                Fault(where, given(url), f"a place that workers can read: {ELSEWHERE}", advice)
            )
        found.append(KeepingStore(store))
    check(faults)
    return found


def advice_on(url: str, storage_options: Mapping[str, Any] | None) -> str:
    """What is beside a store that is not there, under a name like its own."""
    try:
        listing.named(url, storage_options)
    except RequestError as error:
        return error.faults[0].advice
    return ""


def _workers_are_elsewhere() -> bool:
    """Whether Dask would compute in other processes, as things stand now."""
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
