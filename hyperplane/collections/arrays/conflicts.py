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

from hyperplane.collections.arrays.combine_errors import same_attrs
from hyperplane.collections.arrays.open_stores import THREADS
from hyperplane.collections.arrays.stored_variable import Part
from hyperplane.errors import Fault, RequestError
from hyperplane.units import parse_bytes

#: So much is compared in the client, whose threads can wait for many stores at the same time.
HERE = parse_bytes("64MB")
#: The rules of agreement that are decided here; the others are left to xarray.
RULES = ("broadcast_equals", "equals", "identical", "no_conflicts")


#: What of a store is behind a variable of Dask arrays; None if that was changed since.
Behind = Callable[[xr.Variable], Part | None]


@dataclass
class _Pair:
    """One variable of the first store that holds it and of another one."""

    name: Hashable
    first: int
    other: int
    mine: xr.Variable
    theirs: xr.Variable
    equal: bool = False
    agree: bool = False


def settle(
    datasets: Sequence[xr.Dataset],
    stores: Sequence[str],
    names: Iterable[Hashable],
    compat: str,
    behind: Behind,
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
    if compat not in RULES:
        return list(datasets)
    pairs = [pair for name in names for pair in _pairs(datasets, name, compat)]
    _decide(pairs, compat, behind)
    faults = [_fault(pair, stores, compat) for pair in pairs if not pair.agree]
    if faults:
        raise RequestError(faults)
    settled = list(datasets)
    for pair in pairs:
        if not pair.equal:  # only no_conflicts lets them pass
            mine = settled[pair.first][pair.name].variable
            filled = mine.fillna(datasets[pair.other][pair.name].variable)
            settled[pair.first] = settled[pair.first].assign({str(pair.name): filled})
        settled[pair.other] = settled[pair.other].drop_vars([pair.name])
    return settled


def _pairs(datasets: Sequence[xr.Dataset], name: Hashable, compat: str) -> list[_Pair]:
    """The first store's variable with each other one; nothing if xarray is to compare them."""
    holders = [number for number, one in enumerate(datasets) if name in one.variables]
    first, *others = holders
    mine = datasets[first].variables[name]
    found = []
    for other in others:
        theirs = datasets[other].variables[name]
        if mine.dims != theirs.dims or mine.shape != theirs.shape:
            return []
        if compat == "identical" and not same_attrs(mine.attrs, theirs.attrs):
            return []
        found.append(_Pair(name, first, other, mine, theirs))
    return found


def _compared(mine: xr.Variable, theirs: xr.Variable, compat: str) -> tuple[Any, Any]:
    """Whether they are equal and whether they agree; of Dask arrays, not computed yet."""
    same = mine == theirs
    missing, missing_there = mine.isnull(), theirs.isnull()
    equal = (same | (missing & missing_there)).all().data
    if compat != "no_conflicts":
        return True, equal
    # Where the types differ, filling one from the other finds the type of the result.
    return mine.dtype == theirs.dtype and equal, (same | missing | missing_there).all().data


def _decide(pairs: Sequence[_Pair], compat: str, behind: Behind) -> None:
    """Compare all pairs at once."""
    variables = {id(one): one for pair in pairs for one in (pair.mine, pair.theirs)}
    if sum(one.nbytes for one in variables.values()) <= HERE:
        with ThreadPoolExecutor(THREADS) as readers:
            loaded = readers.map(lambda one: _read(one, behind), variables.values())
            variables = dict(zip(variables, loaded, strict=True))
    asked = [
        _compared(variables[id(pair.mine)], variables[id(pair.theirs)], compat) for pair in pairs
    ]
    (answers,) = compute(asked)
    for pair, (equal, agree) in zip(pairs, answers, strict=True):
        pair.equal, pair.agree = bool(equal), bool(agree)


def _read(variable: xr.Variable, behind: Behind) -> xr.Variable:
    part = behind(variable)
    return variable.compute() if part is None else part.load()


def _fault(pair: _Pair, stores: Sequence[str], compat: str) -> Fault:
    return Fault(
        f"variable {pair.name!r}",
        f"different values in {stores[pair.first]!r} and {stores[pair.other]!r}",
        f"values that agree (compat={compat!r})",
        "compat='override' takes those of the first store",
    )
