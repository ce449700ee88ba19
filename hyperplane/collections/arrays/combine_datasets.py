"""Combine opened stores as xarray does, without loading data in the client.

:func:`xarray.merge` reindexes each store to the full index and compares it with the first one.
If the stores are disjoint blocks of the same variables, that is, if no two of them share a label of
a dimension, :func:`merge` with ``join="outer"`` and ``compat="no_conflicts"`` concatenates them
along it: the result is the same, and only the variables without that dimension are compared.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pandas as pd
import xarray as xr

from hyperplane.collections.arrays.combine_errors import (
    COMBINE_ERRORS,
    combine_attrs_of,
    explain_combine_error,
)
from hyperplane.collections.arrays.concatenated_array import ArraySources
from hyperplane.collections.arrays.conflicts import resolve_conflicts
from hyperplane.collections.arrays.open_stores import OpenedStore

#: Kinds of dtypes whose values survive the promotion that missing values require.
_EXTENDABLE_KINDS = "cfiumMO"


@dataclass(frozen=True)
class CombineOptions:
    """Arguments of :func:`xarray.merge` and :func:`xarray.concat`.

    ``data_vars=None`` means all variables if the dimension is new, else those that have it.
    """

    compat: Any
    join: Any
    combine_attrs: Any
    data_vars: Any
    coords: Any


def merge(opened: Sequence[OpenedStore], options: CombineOptions) -> xr.Dataset:
    """Return the same data set as :func:`xarray.merge` of the stores."""
    datasets = [store.dask_dataset for store in opened]
    sources = ArraySources(opened)
    can_concatenate = (
        options.join == "outer" and options.compat == "no_conflicts" and len(opened) > 1
    )
    dim = _find_block_dimension([store.dataset for store in opened]) if can_concatenate else None
    if dim is not None:
        concatenated = _concatenate_blocks(opened, dim, options, sources)
        if concatenated is not None:
            return concatenated
    with _name_stores_in_errors(opened, options):
        aligned = xr.align(*datasets, join=options.join, copy=False)
    shared = _find_shared_variables(datasets)
    resolved = resolve_conflicts(
        aligned, _list_store_names(opened), shared, options.compat, sources.find_stored
    )
    with _name_stores_in_errors(opened, options):
        merged = xr.merge(
            resolved, compat=options.compat, join=options.join, combine_attrs=options.combine_attrs
        )
        return _restore_attrs(merged, datasets, resolved, options)


def concat(opened: Sequence[OpenedStore], dim: Any, options: CombineOptions) -> xr.Dataset:
    """Return the same data set as :func:`xarray.concat` of the stores."""
    datasets = [store.dask_dataset for store in opened]
    sources = ArraySources(opened)
    name = dim if isinstance(dim, str) else dim.name
    has_dimension = [name in dataset.dims for dataset in datasets]
    data_vars = options.data_vars
    if data_vars is None:
        data_vars = "minimal" if any(has_dimension) else "all"
    with _name_stores_in_errors(opened, options):
        aligned = xr.align(*datasets, join=options.join, exclude=[name], copy=False)
    along = {
        key for dataset in datasets for key, var in dataset.variables.items() if name in var.dims
    }
    static = [
        key
        for key in _find_shared_variables(datasets)
        if key not in along
        and key != name
        and options.coords == "minimal"
        and (key in datasets[0].coords or (data_vars == "minimal" and all(has_dimension)))
    ]
    resolved = resolve_conflicts(
        aligned, _list_store_names(opened), static, options.compat, sources.find_stored
    )
    with _name_stores_in_errors(opened, options):
        joined = xr.concat(
            resolved,
            dim=dim,
            data_vars=data_vars,
            coords=options.coords,
            compat=options.compat,
            join=options.join,
            combine_attrs=options.combine_attrs,
        )
    return sources.concatenate(joined, resolved, name, {})


def combine_nested(
    opened: Sequence[OpenedStore], tree: Any, dims: Sequence[Any], options: CombineOptions
) -> xr.Dataset:
    """Return the same data set as :func:`xarray.combine_nested` of nested lists of stores."""
    datasets = [store.dask_dataset for store in opened]
    remaining = iter(datasets)
    known = {dim for dataset in datasets for dim in dataset.dims}
    data_vars = options.data_vars
    if data_vars is None:
        has_new_dimension = any(dim is not None and dim not in known for dim in dims)
        data_vars = "all" if has_new_dimension else "minimal"

    def build(node: Any) -> Any:
        return [build(part) for part in node] if isinstance(node, list) else next(remaining)

    with _name_stores_in_errors(opened, options):
        combined: xr.Dataset = xr.combine_nested(
            build(tree),
            concat_dim=list(dims),
            compat=options.compat,
            data_vars=data_vars,
            coords=options.coords,
            join=options.join,
            combine_attrs=options.combine_attrs,
        )
    return combined


def combine_by_coords(opened: Sequence[OpenedStore], options: CombineOptions) -> xr.Dataset:
    """Return the same data set as :func:`xarray.combine_by_coords` of the stores."""
    with _name_stores_in_errors(opened, options):
        combined = xr.combine_by_coords(
            [store.dask_dataset for store in opened],
            compat=options.compat,
            data_vars="minimal" if options.data_vars is None else options.data_vars,
            coords=options.coords,
            join=options.join,
            combine_attrs=options.combine_attrs,
        )
    return cast(xr.Dataset, combined)


@contextmanager
def _name_stores_in_errors(
    opened: Sequence[OpenedStore], options: CombineOptions
) -> Iterator[None]:
    """Convert errors of xarray to a RequestError that names the stores."""
    try:
        yield
    except COMBINE_ERRORS as error:
        datasets = [store.dask_dataset for store in opened]
        raise explain_combine_error(error, datasets, _list_store_names(opened), options) from error


def _list_store_names(opened: Sequence[OpenedStore]) -> list[str]:
    return [store.name for store in opened]


def _find_shared_variables(datasets: Sequence[xr.Dataset]) -> list[Hashable]:
    """Return shared variables, without indexes, that are coordinates in all stores or in none."""
    indexes = {name for dataset in datasets for name in dataset.indexes}
    shared = []
    for name in dict.fromkeys(name for dataset in datasets for name in dataset.variables):
        holders = [dataset for dataset in datasets if name in dataset.variables]
        roles = {name in dataset.coords for dataset in holders}
        if len(holders) > 1 and len(roles) == 1 and name not in indexes:
            shared.append(name)
    return shared


def _find_block_dimension(datasets: Sequence[xr.Dataset]) -> Hashable | None:
    """Return the dimension along which the data sets are disjoint blocks of the same variables.

    None if not exactly one index differs, if two data sets share a label, or if the variables with
    the dimension are not the same in all data sets.
    """
    first, *others = datasets
    if any(set(other.indexes) != set(first.indexes) for other in others):
        return None
    different = [
        name
        for name, index in first.indexes.items()
        if any(not index.equals(other.indexes[name]) for other in others)
    ]
    if len(different) != 1:
        return None
    dim: Hashable = different[0]
    indexes = [dataset.indexes[dim] for dataset in datasets]
    if any(index.dtype != indexes[0].dtype or index.empty for index in indexes):
        return None
    if not indexes[0].append(indexes[1:]).is_unique:
        return None
    if any(other.variables[dim].dtype != first.variables[dim].dtype for other in others):
        return None
    block_variables = {
        name
        for dataset in datasets
        for name, variable in dataset.variables.items()
        if dim in variable.dims and name != dim
    }
    if not block_variables or not all(_is_extendable(datasets, name) for name in block_variables):
        return None
    return dim


def _is_extendable(datasets: Sequence[xr.Dataset], name: Hashable) -> bool:
    """Whether all data sets have the variable, with equal dimensions and a promotable dtype."""
    if any(name not in dataset.variables for dataset in datasets):
        return False
    variables = [dataset.variables[name] for dataset in datasets]
    has_one_role = len({name in dataset.coords for dataset in datasets}) == 1
    return has_one_role and all(
        variable.dims == variables[0].dims
        and variable.dtype == variables[0].dtype
        and variable.dtype.kind in _EXTENDABLE_KINDS
        for variable in variables
    )


def _find_extended_dtypes(dataset: xr.Dataset, dim: Hashable) -> dict[Hashable, np.dtype[Any]]:
    """Return the dtypes of the variables after reindexing adds missing values along ``dim``."""
    types = {}
    for name, variable in dataset.variables.items():
        if dim in variable.dims and name != dim:
            sample = xr.Dataset({"x": (dim, np.zeros(1, variable.dtype))}, coords={dim: [0]})
            types[name] = sample.reindex({dim: [0, 1]})["x"].dtype
    return types


def _order_along(datasets: Sequence[xr.Dataset], dim: Hashable) -> tuple[list[int], pd.Index]:
    """Return the positions of the data sets in index order, and the union of their indexes."""
    indexes = [dataset.indexes[dim] for dataset in datasets]
    union = functools.reduce(pd.Index.union, indexes)
    positions = [int(union.get_indexer(index).min()) for index in indexes]
    return sorted(range(len(positions)), key=positions.__getitem__), union


def _concatenate_blocks(
    opened: Sequence[OpenedStore], dim: Hashable, options: CombineOptions, sources: ArraySources
) -> xr.Dataset | None:
    """Concatenate disjoint stores along ``dim``; None if xarray has to compare other variables."""
    datasets = [store.dask_dataset for store in opened]
    static = [
        name
        for name in _find_shared_variables(datasets)
        if not any(
            dim in dataset.variables[name].dims for dataset in datasets if name in dataset.variables
        )
    ]
    resolved = resolve_conflicts(
        datasets, _list_store_names(opened), static, options.compat, sources.find_stored
    )
    if set(static) & set(_find_shared_variables(resolved)):
        return None
    order, union = _order_along([store.dataset for store in opened], dim)
    ordered = [resolved[number] for number in order]
    joined = xr.concat(
        ordered,
        dim=dim,
        data_vars="minimal",
        coords="minimal",
        compat="override",
        join="override",
        combine_attrs="drop",
    )
    types = _find_extended_dtypes(resolved[0], dim)
    joined = sources.concatenate(joined, ordered, dim, types)
    if not joined.indexes[dim].equals(union):
        joined = joined.isel({dim: joined.indexes[dim].get_indexer(union)})
    with _name_stores_in_errors(opened, options):
        return _restore_attrs(joined, datasets, None, options)


def _restore_attrs(
    result: xr.Dataset,
    datasets: Sequence[xr.Dataset],
    resolved: Sequence[xr.Dataset] | None,
    options: CombineOptions,
) -> xr.Dataset:
    """Return the result with the attributes of variables that were dropped from some data sets."""
    result = result.copy(deep=False)
    for name, variable in result.variables.items():
        holders = [dataset for dataset in datasets if name in dataset.variables]
        is_dropped = resolved is None or len(holders) > sum(
            name in dataset.variables for dataset in resolved
        )
        if is_dropped:
            attrs = [dataset.variables[name].attrs for dataset in holders]
            variable.attrs = combine_attrs_of(attrs, options.combine_attrs)
    if resolved is None:
        result.attrs = combine_attrs_of(
            [dataset.attrs for dataset in datasets], options.combine_attrs
        )
    return result
