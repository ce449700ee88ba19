"""Errors that name the two stores and the variable for which combining fails."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import xarray as xr

from hyperplane.core.errors import Fault, RequestError
from hyperplane.core.units import plural

#: Exceptions that xarray raises for data sets that it cannot combine.
COMBINE_ERRORS = (ValueError, KeyError, TypeError, IndexError)
#: Values of ``combine_attrs`` with which combining can fail.
STRICT_ATTRS = ("identical", "no_conflicts")


def combine_attrs_of(attrs: Sequence[Mapping[Any, Any]], combine_attrs: Any) -> dict[Any, Any]:
    """Return the combined attributes, as xarray combines them."""
    if isinstance(combine_attrs, str) and combine_attrs != "drop":
        with suppress(ValueError):  # array-valued attributes have no single truth value
            if all(other == attrs[0] for other in attrs[1:]):
                return dict(attrs[0])
    datasets = [xr.Dataset(attrs=attrs_of_dataset) for attrs_of_dataset in attrs]
    merged = xr.merge(datasets, combine_attrs=combine_attrs)
    return dict(merged.attrs)


def explain_combine_error(
    error: Exception, datasets: Sequence[xr.Dataset], stores: Sequence[str], options: Any
) -> RequestError:
    """Return a RequestError that names the stores for which xarray raised ``error``."""
    faults = _find_attr_conflicts(datasets, stores, options.combine_attrs)
    if not faults and options.join == "exact":
        faults = _find_index_conflicts(datasets, stores)
    if not faults:
        faults = _find_value_conflicts(datasets, stores, options)
    if not faults:
        faults = _find_missing_variables(datasets, stores)
    if not faults:
        named = ", ".join([*map(repr, stores[:2]), *["..."] * (len(stores) > 2)])
        given = f"{plural(len(stores), 'store')} ({named})"
        faults = [Fault("urls", given, "data sets that xarray can combine", _shorten_error(error))]
    return RequestError(faults)


def _shorten_error(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _find_attr_conflicts(
    datasets: Sequence[xr.Dataset], stores: Sequence[str], how: Any
) -> list[Fault]:
    if how not in STRICT_ATTRS:
        return []
    owners: dict[str, list[tuple[int, Mapping[Any, Any]]]] = {"the data set": []}
    for number, dataset in enumerate(datasets):
        owners["the data set"].append((number, dataset.attrs))
        for name, variable in dataset.variables.items():
            owners.setdefault(f"variable {name!r}", []).append((number, variable.attrs))
    faults = []
    for owner, attrs_by_store in owners.items():
        conflict = _find_first_conflict(attrs_by_store, how)
        if conflict is not None:
            key, (first, first_attr), (other, other_attr) = conflict
            given = f"{first_attr} in {stores[first]!r}, {other_attr} in {stores[other]!r}"
            allowed = f"attributes that agree (combine_attrs={how!r})"
            advice = "combine_attrs='drop_conflicts' drops those that differ"
            faults.append(Fault(f"attribute {key!r} of {owner}", given, allowed, advice))
    return faults


def _find_first_conflict(attrs_by_store: Sequence[tuple[int, Mapping[Any, Any]]], how: str) -> Any:
    """Return the first conflicting attribute, two stores and their values; None if all agree."""
    for key in dict.fromkeys(key for _, attrs in attrs_by_store for key in attrs):
        attrs_of_stores = [
            (number, {key: attrs[key]} if key in attrs else {})
            for number, attrs in attrs_by_store
            if key in attrs or how == "identical"
        ]
        first, first_attr = attrs_of_stores[0]
        for other, other_attr in attrs_of_stores[1:]:
            if not are_attrs_equal(first_attr, other_attr):
                return key, (first, _format_attr(first_attr)), (other, _format_attr(other_attr))
    return None


def are_attrs_equal(attrs: Mapping[Any, Any], other_attrs: Mapping[Any, Any]) -> bool:
    """Whether attributes are equal by the rules of xarray."""
    return bool(xr.Variable((), 0, attrs).identical(xr.Variable((), 0, other_attrs)))


def _format_attr(attr: Mapping[Any, Any]) -> str:
    return repr(next(iter(attr.values())))[:60] if attr else "nothing"


def _find_index_conflicts(datasets: Sequence[xr.Dataset], stores: Sequence[str]) -> list[Fault]:
    faults = []
    seen: dict[Hashable, int] = {}
    for number, dataset in enumerate(datasets):
        for name, index in dataset.indexes.items():
            first = seen.setdefault(name, number)
            if not index.equals(datasets[first].indexes[name]):
                stores_named = f"{stores[first]!r} and {stores[number]!r}"
                differs = f"differs between {stores_named}, and join='exact' needs equal indexes"
                advice = "join='outer' keeps all labels"
                faults.append(Fault(f"index {name!r}", "", differs, advice))
                break
    return faults


def _find_value_conflicts(
    datasets: Sequence[xr.Dataset], stores: Sequence[str], options: Any
) -> list[Fault]:
    """Return a fault for the first variable and pair of stores that xarray refuses to merge."""
    names = dict.fromkeys(name for dataset in datasets for name in dataset.variables)
    for name in names:
        holders = [number for number, dataset in enumerate(datasets) if name in dataset.variables]
        first = holders[0]
        for other in holders[1:]:
            pair = [datasets[number][[name]] for number in (first, other)]
            try:
                xr.merge(pair, compat=options.compat, join=options.join, combine_attrs="drop")
            except COMBINE_ERRORS as error:
                given = " and ".join(
                    f"{dict(dataset.sizes)} in {stores[number]!r}"
                    for dataset, number in zip(pair, (first, other), strict=True)
                )
                allowed = f"variables that agree (compat={options.compat!r}, join={options.join!r})"
                return [Fault(f"variable {name!r}", given, allowed, _shorten_error(error))]
    return []


def _find_missing_variables(datasets: Sequence[xr.Dataset], stores: Sequence[str]) -> list[Fault]:
    names = dict.fromkeys(name for dataset in datasets for name in dataset.variables)
    faults = []
    for name in names:
        present = [
            store for store, dataset in zip(stores, datasets, strict=True) if name in dataset
        ]
        absent = [
            store for store, dataset in zip(stores, datasets, strict=True) if name not in dataset
        ]
        if absent:
            given = f"in {present[0]!r}, not in {absent[0]!r}"
            faults.append(
                Fault(
                    f"variable {name!r}",
                    given,
                    "a variable of every store, which this combination requires",
                )
            )
    return faults
