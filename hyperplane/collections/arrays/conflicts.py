"""Compare variables that several stores share, without loading large ones in the client.

xarray compares such variables one by one in the client and keeps the loaded values. Here one Dask
computation compares all of them and returns only booleans; if they are small, they are loaded
first.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import xarray as xr
from dask.base import compute

from hyperplane.collections.arrays.combine_errors import are_attrs_equal
from hyperplane.collections.arrays.open_stores import READER_THREADS
from hyperplane.collections.arrays.stored_variable import StoredVariable
from hyperplane.core.errors import Fault, RequestError
from hyperplane.core.units import parse_bytes

#: Up to this many bytes are loaded by threads of the client and compared there.
MAX_LOCAL_COMPARE = parse_bytes("64MB")
#: Values of ``compat`` that are evaluated here; xarray evaluates the others.
COMPARED_COMPAT = ("broadcast_equals", "equals", "identical", "no_conflicts")

#: Returns the stored variable behind a variable; None if it was modified since opening.
StoredVariableLookup = Callable[[xr.Variable], StoredVariable | None]


@dataclass
class _VariablePair:
    """A variable of the first data set that has it, and the same one of another data set."""

    name: Hashable
    #: Positions of the two data sets.
    first: int
    other: int
    variable: xr.Variable
    other_variable: xr.Variable
    #: Whether no missing value of the first variable has to be filled from the other one.
    complete: bool = False
    #: Whether ``compat`` accepts both.
    agree: bool = False


def resolve_conflicts(
    datasets: Sequence[xr.Dataset],
    stores: Sequence[str],
    names: Iterable[Hashable],
    compat: str,
    find_stored: StoredVariableLookup,
) -> list[xr.Dataset]:
    """Return the data sets without the variables that agree with those of an earlier data set.

    ``datasets`` are aligned data sets of Dask arrays, ``stores`` the names of their stores, and
    ``names`` the variables that must agree by ``compat``, as in :func:`xarray.merge`. Variables
    that cannot be compared here stay in all data sets. A RequestError has one fault for each
    variable and pair of stores that differ.
    """
    if compat not in COMPARED_COMPAT:
        return list(datasets)
    pairs = [pair for name in names for pair in _pair_variables(datasets, name, compat)]
    _compare_all(pairs, compat, find_stored)
    faults = [_make_fault(pair, stores, compat) for pair in pairs if not pair.agree]
    if faults:
        raise RequestError(faults)
    resolved = list(datasets)
    for pair in pairs:
        if not pair.complete:  # possible with compat='no_conflicts' only
            variable = resolved[pair.first][pair.name].variable
            filled = variable.fillna(datasets[pair.other][pair.name].variable)
            resolved[pair.first] = resolved[pair.first].assign({str(pair.name): filled})
        resolved[pair.other] = resolved[pair.other].drop_vars([pair.name])
    return resolved


def _pair_variables(
    datasets: Sequence[xr.Dataset], name: Hashable, compat: str
) -> list[_VariablePair]:
    """Pair a variable of the first store with the others; empty if xarray has to compare them."""
    holders = [number for number, dataset in enumerate(datasets) if name in dataset.variables]
    first, *others = holders
    variable = datasets[first].variables[name]
    pairs = []
    for other in others:
        other_variable = datasets[other].variables[name]
        if variable.dims != other_variable.dims or variable.shape != other_variable.shape:
            return []
        if compat == "identical" and not are_attrs_equal(variable.attrs, other_variable.attrs):
            return []
        pairs.append(_VariablePair(name, first, other, variable, other_variable))
    return pairs


def _compare_lazily(
    variable: xr.Variable, other_variable: xr.Variable, compat: str
) -> tuple[Any, Any]:
    """Return lazy booleans for ``complete`` and ``agree`` of a :class:`_VariablePair`."""
    same = variable == other_variable
    missing, other_missing = variable.isnull(), other_variable.isnull()
    equal = (same | (missing & other_missing)).all().data
    if compat != "no_conflicts":
        return True, equal
    # With different dtypes fillna is needed anyway, because it determines the result's dtype.
    return variable.dtype == other_variable.dtype and equal, (
        same | missing | other_missing
    ).all().data


def _compare_all(
    pairs: Sequence[_VariablePair], compat: str, find_stored: StoredVariableLookup
) -> None:
    """Compare all pairs in one computation."""
    variables = {
        id(variable): variable
        for pair in pairs
        for variable in (pair.variable, pair.other_variable)
    }
    if sum(variable.nbytes for variable in variables.values()) <= MAX_LOCAL_COMPARE:
        with ThreadPoolExecutor(READER_THREADS) as readers:
            loaded = readers.map(lambda variable: _load(variable, find_stored), variables.values())
            variables = dict(zip(variables, loaded, strict=True))
    comparisons = [
        _compare_lazily(variables[id(pair.variable)], variables[id(pair.other_variable)], compat)
        for pair in pairs
    ]
    (results,) = compute(comparisons)
    for pair, (complete, agree) in zip(pairs, results, strict=True):
        pair.complete, pair.agree = bool(complete), bool(agree)


def _load(variable: xr.Variable, find_stored: StoredVariableLookup) -> xr.Variable:
    stored = find_stored(variable)
    return variable.compute() if stored is None else stored.load()


def _make_fault(pair: _VariablePair, stores: Sequence[str], compat: str) -> Fault:
    return Fault(
        f"variable {pair.name!r}",
        f"different values in {stores[pair.first]!r} and {stores[pair.other]!r}",
        f"values that agree (compat={compat!r})",
        "compat='override' takes the values of the first store",
    )
