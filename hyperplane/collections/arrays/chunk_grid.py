"""The grid of stores that each hold one block of the same variables along a dimension.

:func:`xarray.merge` reindexes each store to the full index and compares it with the first one.
Where no two stores share a label of that dimension, concatenating them gives the same result
without any comparison.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

#: Kinds of dtypes whose values survive the promotion that missing values require.
EXTENDABLE_KINDS = "cfiumMO"


def find_grid_dimension(datasets: Sequence[xr.Dataset]) -> Hashable | None:
    """Return the one dimension along which the data sets are disjoint blocks, or None.

    None if they overlap, if more than one index differs, or if no shared variable has the
    dimension. Expects at least two data sets.
    """
    first, *others = datasets
    if any(set(one.indexes) != set(first.indexes) for one in others):
        return None
    different = [
        name
        for name, index in first.indexes.items()
        if any(not index.equals(one.indexes[name]) for one in others)
    ]
    if len(different) != 1:
        return None
    dim: Hashable = different[0]
    indexes = [one.indexes[dim] for one in datasets]
    if any(one.dtype != indexes[0].dtype or one.empty for one in indexes):
        return None
    if not indexes[0].append(indexes[1:]).is_unique:
        return None
    if any(one.variables[dim].dtype != first.variables[dim].dtype for one in others):
        return None
    divided = {
        name
        for one in datasets
        for name, variable in one.variables.items()
        if dim in variable.dims and name != dim
    }
    if not divided or not all(_is_extendable(datasets, name) for name in divided):
        return None
    return dim


def _is_extendable(datasets: Sequence[xr.Dataset], name: Hashable) -> bool:
    """Whether all data sets have the variable, with equal dimensions and a promotable dtype."""
    if any(name not in one.variables for one in datasets):
        return False
    variables = [one.variables[name] for one in datasets]
    same_place = len({name in one.coords for one in datasets}) == 1
    return same_place and all(
        one.dims == variables[0].dims
        and one.dtype == variables[0].dtype
        and one.dtype.kind in EXTENDABLE_KINDS
        for one in variables
    )


def find_extended_dtypes(dataset: xr.Dataset, dim: Hashable) -> dict[Hashable, np.dtype[Any]]:
    """Return the dtypes of the variables after reindexing adds missing values along ``dim``."""
    types = {}
    for name, variable in dataset.variables.items():
        if dim in variable.dims and name != dim:
            sample = xr.Dataset({"x": (dim, np.zeros(1, variable.dtype))}, coords={dim: [0]})
            types[name] = sample.reindex({dim: [0, 1]})["x"].dtype
    return types


def order_along(datasets: Sequence[xr.Dataset], dim: Hashable) -> tuple[list[int], pd.Index]:
    """Return the positions of the data sets in index order, and the union of their indexes."""
    indexes = [one.indexes[dim] for one in datasets]
    whole = functools.reduce(pd.Index.union, indexes)
    places = [int(whole.get_indexer(one).min()) for one in indexes]
    return sorted(range(len(places)), key=places.__getitem__), whole
