"""Variables that several stores hold and that must agree, compared without loading them here.

xarray compares such variables one after the other in the client, and keeps what it loaded. Here
all comparisons are one Dask computation, of which only truth values come back.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import xarray as xr
from dask.base import compute

from hyperplane.collections.arrays.combine_errors import is_same_attrs
from hyperplane.collections.arrays.open_stores import READER_THREADS
from hyperplane.collections.arrays.stored_variable import StoredVariable
from hyperplane.errors import Fault, RequestError
from hyperplane.units import parse_bytes

#: So much is compared in the client, whose threads can wait for many stores at the same time.
MAX_LOCAL_COMPARE = parse_bytes("64MB")
#: The rules of agreement that are decided here; the others are left to xarray.
COMPARED_COMPAT = ("broadcast_equals", "equals", "identical", "no_conflicts")


#: What of a store is behind a variable of Dask arrays; None if that was changed since.
StoredVariableLookup = Callable[[xr.Variable], StoredVariable | None]


@dataclass
class _VariablePair:
    """One variable of the first store that holds it and of another one."""

    name: Hashable
    first: int
    other: int
    mine: xr.Variable
    theirs: xr.Variable
    equal: bool = False
    agree: bool = False


def resolve_conflicts(
    datasets: Sequence[xr.Dataset],
    stores: Sequence[str],
    names: Iterable[Hashable],
    compat: str,
    find_stored: StoredVariableLookup,
) -> list[xr.Dataset]:
    """Aligned data sets, in which a variable that agrees is left in the first one only.

    Parameters
    ----------
    datasets : sequence of xarray.Dataset
        Of Dask arrays, with equal indexes.
    stores : sequence of str
        The names of their stores, for messages.
    names : iterable of hashable
        The variables that have to agree.
    compat : str
        What it is to agree, as in :func:`xarray.merge`.
    behind : callable
        What a variable reads, or None if it was changed since it was opened.

    Returns
    -------
    list of xarray.Dataset
        Variables that cannot be compared so are still in all of them.

    Raises
    ------
    RequestError
        When variables do not agree; each is named with the two stores.
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
        if not pair.equal:  # only no_conflicts lets them pass
            mine = resolved[pair.first][pair.name].variable
            filled = mine.fillna(datasets[pair.other][pair.name].variable)
            resolved[pair.first] = resolved[pair.first].assign({str(pair.name): filled})
        resolved[pair.other] = resolved[pair.other].drop_vars([pair.name])
    return resolved


def _pair_variables(
    datasets: Sequence[xr.Dataset], name: Hashable, compat: str
) -> list[_VariablePair]:
    """The first store's variable with each other one; nothing if xarray is to compare them."""
    holders = [number for number, one in enumerate(datasets) if name in one.variables]
    first, *others = holders
    mine = datasets[first].variables[name]
    pairs = []
    for other in others:
        theirs = datasets[other].variables[name]
        if mine.dims != theirs.dims or mine.shape != theirs.shape:
            return []
        if compat == "identical" and not is_same_attrs(mine.attrs, theirs.attrs):
            return []
        pairs.append(_VariablePair(name, first, other, mine, theirs))
    return pairs


def _compare_lazily(mine: xr.Variable, theirs: xr.Variable, compat: str) -> tuple[Any, Any]:
    """Whether they are equal and whether they agree; of Dask arrays, not computed yet."""
    same = mine == theirs
    missing, missing_there = mine.isnull(), theirs.isnull()
    equal = (same | (missing & missing_there)).all().data
    if compat != "no_conflicts":
        return True, equal
    # Where the types differ, filling one from the other finds the type of the result.
    return mine.dtype == theirs.dtype and equal, (same | missing | missing_there).all().data


def _compare_all(
    pairs: Sequence[_VariablePair], compat: str, find_stored: StoredVariableLookup
) -> None:
    """Compare all pairs at once."""
    variables = {id(one): one for pair in pairs for one in (pair.mine, pair.theirs)}
    if sum(one.nbytes for one in variables.values()) <= MAX_LOCAL_COMPARE:
        with ThreadPoolExecutor(READER_THREADS) as readers:
            loaded = readers.map(lambda one: _load(one, find_stored), variables.values())
            variables = dict(zip(variables, loaded, strict=True))
    comparisons = [
        _compare_lazily(variables[id(pair.mine)], variables[id(pair.theirs)], compat)
        for pair in pairs
    ]
    (results,) = compute(comparisons)
    for pair, (equal, agree) in zip(pairs, results, strict=True):
        pair.equal, pair.agree = bool(equal), bool(agree)


def _load(variable: xr.Variable, find_stored: StoredVariableLookup) -> xr.Variable:
    part = find_stored(variable)
    return variable.compute() if part is None else part.load()


def _make_fault(pair: _VariablePair, stores: Sequence[str], compat: str) -> Fault:
    return Fault(
        f"variable {pair.name!r}",
        f"different values in {stores[pair.first]!r} and {stores[pair.other]!r}",
        f"values that agree (compat={compat!r})",
        "compat='override' takes those of the first store",
    )
