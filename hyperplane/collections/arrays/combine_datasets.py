"""Merging and concatenating what was opened: xarray's results, without the client loading data."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import xarray as xr

from hyperplane.collections.arrays.chunk_grid import extended_types, in_a_row, tile_dimension
from hyperplane.collections.arrays.combine_errors import REFUSALS, combined_attrs, explained
from hyperplane.collections.arrays.concatenated_array import Pieces
from hyperplane.collections.arrays.conflicts import settle
from hyperplane.collections.arrays.open_stores import Opened


@dataclass(frozen=True)
class Rules:
    """How data sets are combined, in the words of :func:`xarray.merge` and :func:`xarray.concat`.

    Parameters
    ----------
    compat, join, combine_attrs, data_vars, coords
        As there. None for ``data_vars``: all if the dimension is new, else those that have it.
    """

    compat: Any
    join: Any
    combine_attrs: Any
    data_vars: Any
    coords: Any


def merge(opened: Sequence[Opened], rules: Rules) -> xr.Dataset:
    """What :func:`xarray.merge` makes of the data sets of several stores."""
    datasets = [one.data for one in opened]
    pieces = Pieces(opened)
    outer = rules.join == "outer" and rules.compat == "no_conflicts" and len(opened) > 1
    dim = tile_dimension([one.lazy for one in opened]) if outer else None
    if dim is not None:
        row = _row(opened, dim, rules, pieces)
        if row is not None:
            return row
    with _refusals_named(opened, rules):
        aligned = xr.align(*datasets, join=rules.join, copy=False)
    shared = _shared(datasets)
    settled = settle(aligned, _names(opened), shared, rules.compat, pieces.behind)
    with _refusals_named(opened, rules):
        merged = xr.merge(
            settled, compat=rules.compat, join=rules.join, combine_attrs=rules.combine_attrs
        )
        return _with_attrs(merged, datasets, settled, rules)


def concat(opened: Sequence[Opened], dim: Any, rules: Rules) -> xr.Dataset:
    """What :func:`xarray.concat` makes of the data sets of several stores."""
    datasets = [one.data for one in opened]
    pieces = Pieces(opened)
    name = dim if isinstance(dim, str) else dim.name
    there = [name in one.dims for one in datasets]
    data_vars = rules.data_vars
    if data_vars is None:
        data_vars = "minimal" if any(there) else "all"
    with _refusals_named(opened, rules):
        aligned = xr.align(*datasets, join=rules.join, exclude=[name], copy=False)
    along = {key for one in datasets for key, var in one.variables.items() if name in var.dims}
    static = [
        key
        for key in _shared(datasets)
        if key not in along
        and key != name
        and rules.coords == "minimal"
        and (key in datasets[0].coords or (data_vars == "minimal" and all(there)))
    ]
    settled = settle(aligned, _names(opened), static, rules.compat, pieces.behind)
    with _refusals_named(opened, rules):
        joined = xr.concat(
            settled,
            dim=dim,
            data_vars=data_vars,
            coords=rules.coords,
            compat=rules.compat,
            join=rules.join,
            combine_attrs=rules.combine_attrs,
        )
    return pieces.join(joined, settled, name, {})


def nested(opened: Sequence[Opened], tree: Any, dims: Sequence[Any], rules: Rules) -> xr.Dataset:
    """What :func:`xarray.combine_nested` makes of the data sets of a grid of stores."""
    datasets = [one.data for one in opened]
    found = iter(datasets)
    known = {dim for one in datasets for dim in one.dims}
    data_vars = rules.data_vars
    if data_vars is None:
        new = any(dim is not None and dim not in known for dim in dims)
        data_vars = "all" if new else "minimal"

    def grown(node: Any) -> Any:
        return [grown(part) for part in node] if isinstance(node, list) else next(found)

    with _refusals_named(opened, rules):
        combined: xr.Dataset = xr.combine_nested(
            grown(tree),
            concat_dim=list(dims),
            compat=rules.compat,
            data_vars=data_vars,
            coords=rules.coords,
            join=rules.join,
            combine_attrs=rules.combine_attrs,
        )
    return combined


def by_coords(opened: Sequence[Opened], rules: Rules) -> xr.Dataset:
    """What :func:`xarray.combine_by_coords` makes of the data sets of several stores."""
    with _refusals_named(opened, rules):
        combined = xr.combine_by_coords(
            [one.data for one in opened],
            compat=rules.compat,
            data_vars="minimal" if rules.data_vars is None else rules.data_vars,
            coords=rules.coords,
            join=rules.join,
            combine_attrs=rules.combine_attrs,
        )
    return cast(xr.Dataset, combined)


@contextmanager
def _refusals_named(opened: Sequence[Opened], rules: Rules) -> Iterator[None]:
    """What xarray refuses, said with the names of the stores."""
    try:
        yield
    except REFUSALS as error:
        datasets = [one.data for one in opened]
        raise explained(error, datasets, _names(opened), rules) from error


def _names(opened: Sequence[Opened]) -> list[str]:
    return [one.name for one in opened]


def _shared(datasets: Sequence[xr.Dataset]) -> list[Hashable]:
    """Variables of several data sets that are no index in any, and coordinates in all or none."""
    indexes = {name for one in datasets for name in one.indexes}
    found = []
    for name in dict.fromkeys(name for one in datasets for name in one.variables):
        holders = [one for one in datasets if name in one.variables]
        places = {name in one.coords for one in holders}
        if len(holders) > 1 and len(places) == 1 and name not in indexes:
            found.append(name)
    return found


def _row(
    opened: Sequence[Opened], dim: Hashable, rules: Rules, pieces: Pieces
) -> xr.Dataset | None:
    """Data sets that are divided along a dimension, in a row; None if they need comparing."""
    datasets = [one.data for one in opened]
    static = [
        name
        for name in _shared(datasets)
        if not any(dim in one.variables[name].dims for one in datasets if name in one.variables)
    ]
    settled = settle(datasets, _names(opened), static, rules.compat, pieces.behind)
    if set(static) & set(_shared(settled)):
        return None
    order, whole = in_a_row([one.lazy for one in opened], dim)
    row = [settled[number] for number in order]
    joined = xr.concat(
        row,
        dim=dim,
        data_vars="minimal",
        coords="minimal",
        compat="override",
        join="override",
        combine_attrs="drop",
    )
    types = extended_types(settled[0], dim)
    joined = pieces.join(joined, row, dim, types)
    if not joined.indexes[dim].equals(whole):
        joined = joined.isel({dim: joined.indexes[dim].get_indexer(whole)})
    with _refusals_named(opened, rules):
        return _with_attrs(joined, datasets, None, rules)


def _with_attrs(
    result: xr.Dataset,
    datasets: Sequence[xr.Dataset],
    settled: Sequence[xr.Dataset] | None,
    rules: Rules,
) -> xr.Dataset:
    """The result with attributes combined, of variables that were left out of some data sets."""
    result = result.copy(deep=False)
    for name, variable in result.variables.items():
        holders = [one for one in datasets if name in one.variables]
        if settled is None or sum(name in one.variables for one in settled) < len(holders):
            attrs = [one.variables[name].attrs for one in holders]
            variable.attrs = combined_attrs(attrs, rules.combine_attrs)
    if settled is None:
        result.attrs = combined_attrs([one.attrs for one in datasets], rules.combine_attrs)
    return result
