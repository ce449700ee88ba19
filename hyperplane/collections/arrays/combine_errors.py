"""Why data sets cannot be combined: which two stores, and which variable."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import xarray as xr

from hyperplane.errors import Fault, RequestError

#: What xarray raises when data sets do not go together.
REFUSALS = (ValueError, KeyError, TypeError, IndexError)
#: Ways of combining attributes that can fail.
STRICT_ATTRS = ("identical", "no_conflicts")


def combined_attrs(attrs: Sequence[Mapping[Any, Any]], combine_attrs: Any) -> dict[Any, Any]:
    """Attributes of several data sets as one, as xarray combines them."""
    if isinstance(combine_attrs, str) and combine_attrs != "drop":
        with suppress(ValueError):  # of arrays it is not plain whether they are equal
            if all(one == attrs[0] for one in attrs[1:]):
                return dict(attrs[0])
    merged = xr.merge([xr.Dataset(attrs=one) for one in attrs], combine_attrs=combine_attrs)
    return dict(merged.attrs)


def explained(
    error: Exception, datasets: Sequence[xr.Dataset], stores: Sequence[str], rules: Any
) -> RequestError:
    """The error of xarray in words that name the stores.

    Parameters
    ----------
    error : Exception
        What xarray raised.
    datasets : sequence of xarray.Dataset
        What was to be combined.
    stores : sequence of str
        The names of their stores.
    rules : Rules
        How they were to be combined.
    """
    faults = _attrs(datasets, stores, rules.combine_attrs)
    if not faults and rules.join == "exact":
        faults = _indexes(datasets, stores)
    if not faults:
        faults = _values(datasets, stores, rules)
    if not faults:
        faults = _missing(datasets, stores)
    if not faults:
        text = " ".join(str(error).split())[:300]
        named = ", ".join(repr(store) for store in stores[:2])
        faults = [
            Fault("urls", f"{len(stores)} stores ({named}, ...)", "what xarray combines", text)
        ]
    return RequestError(faults)


def _attrs(datasets: Sequence[xr.Dataset], stores: Sequence[str], how: Any) -> list[Fault]:
    if how not in STRICT_ATTRS:
        return []
    owners: dict[str, list[tuple[int, Mapping[Any, Any]]]] = {"the data set": []}
    for number, one in enumerate(datasets):
        owners["the data set"].append((number, one.attrs))
        for name, variable in one.variables.items():
            owners.setdefault(f"variable {name!r}", []).append((number, variable.attrs))
    faults = []
    for owner, held in owners.items():
        found = _first_clash(held, how)
        if found is not None:
            key, (first, mine), (other, theirs) = found
            asked = f"{mine} in {stores[first]!r}, {theirs} in {stores[other]!r}"
            allowed = f"attributes that agree (combine_attrs={how!r})"
            advice = "combine_attrs='drop_conflicts' leaves out those that differ"
            faults.append(Fault(f"attribute {key!r} of {owner}", asked, allowed, advice))
    return faults


def _first_clash(held: Sequence[tuple[int, Mapping[Any, Any]]], how: str) -> Any:
    """The first attribute that two data sets do not agree about, and what each of them says."""
    for key in dict.fromkeys(key for _, attrs in held for key in attrs):
        said = [
            (number, {key: attrs[key]} if key in attrs else {})
            for number, attrs in held
            if key in attrs or how == "identical"
        ]
        first, mine = said[0]
        for other, theirs in said[1:]:
            if not same_attrs(mine, theirs):
                return key, (first, _word(mine)), (other, _word(theirs))
    return None


def same_attrs(mine: Mapping[Any, Any], theirs: Mapping[Any, Any]) -> bool:
    """Whether attributes are equal, as xarray compares them."""
    return bool(xr.Variable((), 0, mine).identical(xr.Variable((), 0, theirs)))


def _word(said: Mapping[Any, Any]) -> str:
    return repr(next(iter(said.values())))[:60] if said else "nothing"


def _indexes(datasets: Sequence[xr.Dataset], stores: Sequence[str]) -> list[Fault]:
    faults = []
    seen: dict[Hashable, int] = {}
    for number, one in enumerate(datasets):
        for name, index in one.indexes.items():
            first = seen.setdefault(name, number)
            if not index.equals(datasets[first].indexes[name]):
                asked = f"different in {stores[first]!r} and {stores[number]!r}"
                advice = "join='outer' takes all labels"
                faults.append(Fault(f"index {name!r}", asked, "equal (join='exact')", advice))
                break
    return faults


def _values(datasets: Sequence[xr.Dataset], stores: Sequence[str], rules: Any) -> list[Fault]:
    """The first two stores whose variable xarray refuses to merge; these alone are compared."""
    names = dict.fromkeys(name for one in datasets for name in one.variables)
    for name in names:
        holders = [number for number, one in enumerate(datasets) if name in one.variables]
        first = holders[0]
        for other in holders[1:]:
            pair = [datasets[number][[name]] for number in (first, other)]
            try:
                xr.merge(pair, compat=rules.compat, join=rules.join, combine_attrs="drop")
            except REFUSALS:
                shapes = " and ".join(
                    f"{dict(one.sizes)} in {stores[number]!r}"
                    for one, number in zip(pair, (first, other), strict=True)
                )
                allowed = f"variables that agree (compat={rules.compat!r}, join={rules.join!r})"
                return [Fault(f"variable {name!r}", shapes, allowed)]
    return []


def _missing(datasets: Sequence[xr.Dataset], stores: Sequence[str]) -> list[Fault]:
    names = dict.fromkeys(name for one in datasets for name in one.variables)
    faults = []
    for name in names:
        there = [store for store, one in zip(stores, datasets, strict=True) if name in one]
        gone = [store for store, one in zip(stores, datasets, strict=True) if name not in one]
        if gone:
            asked = f"in {there[0]!r}, not in {gone[0]!r}"
            faults.append(Fault(f"variable {name!r}", asked, "in all stores, for this combination"))
    return faults
