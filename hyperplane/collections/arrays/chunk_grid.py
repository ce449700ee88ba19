"""Stores that hold parts of the same variables: merging them is putting them in a row.

:func:`xarray.merge` extends each part to the whole and compares it with the first. Where no two
stores share a label of the dimension that divides them, there is nothing to compare.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

#: Kinds of types whose values stay what they are when missing ones are added to them.
EXTENDABLE_KINDS = "cfiumMO"


def find_grid_dimension(datasets: Sequence[xr.Dataset]) -> Hashable | None:
    """The dimension that divides variables among data sets, if they are divided by one alone.

    Parameters
    ----------
    datasets : sequence of xarray.Dataset
        More than one.

    Returns
    -------
    hashable or None
        None if they overlap, differ in more, or share no variable that has the dimension.
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
    """Whether all data sets hold the variable, in one form that can be extended."""
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
    """The types of variables once missing values are added along a dimension."""
    types = {}
    for name, variable in dataset.variables.items():
        if dim in variable.dims and name != dim:
            sample = xr.Dataset({"x": (dim, np.zeros(1, variable.dtype))}, coords={dim: [0]})
            types[name] = sample.reindex({dim: [0, 1]})["x"].dtype
    return types


def order_along(datasets: Sequence[xr.Dataset], dim: Hashable) -> tuple[list[int], pd.Index]:
    """The order in which data sets follow each other, and the index that they make together."""
    indexes = [one.indexes[dim] for one in datasets]
    whole = functools.reduce(pd.Index.union, indexes)
    places = [int(whole.get_indexer(one).min()) for one in indexes]
    return sorted(range(len(places)), key=places.__getitem__), whole
