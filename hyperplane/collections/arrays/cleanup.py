"""A combined data set that can be written: equal chunks, and no encoding that only a part had."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import xarray as xr

#: How values are packed. It describes all of the result, or none of it.
PACKING = (
    "dtype",
    "scale_factor",
    "add_offset",
    "_FillValue",
    "missing_value",
    "_Unsigned",
    "units",
    "calendar",
)


def tidy(result: xr.Dataset, parts: Sequence[xr.Dataset]) -> xr.Dataset:
    """The same data set in equal chunks, with the encoding that all its parts share.

    Zarr stores equal chunks only. A packing that belongs to one of several stores cannot hold
    the values of the others, so it goes; what is left of the encoding is how values are packed
    and in which chunks they were stored, not how the bytes were compressed.

    Parameters
    ----------
    result : xarray.Dataset
        What the parts were combined to.
    parts : sequence of xarray.Dataset
        The data sets of the stores.

    Returns
    -------
    xarray.Dataset
    """
    result = result.copy(deep=False)
    result.encoding = {}
    uneven: dict[str, xr.Variable] = {}
    for name, variable in result.variables.items():
        held = [one.variables[name] for one in parts if name in one.variables]
        variable.encoding = _encoding(variable, held)
        chunks = {dim: max(sizes) for dim, sizes in variable.chunksizes.items() if not _even(sizes)}
        if chunks:
            uneven[str(name)] = variable.chunk(chunks)
    return result.assign(uneven)


def _even(sizes: Sequence[int]) -> bool:
    """Whether all chunks have one size; the last may be smaller."""
    return len(set(sizes[:-1])) <= 1 and sizes[-1] <= sizes[0]


def _encoding(variable: xr.Variable, held: Sequence[xr.Variable]) -> dict[str, Any]:
    encodings = [one.encoding for one in held]
    kept: dict[str, Any] = {}
    if encodings and _agree(encodings, "preferred_chunks"):
        kept = _some(encodings[0], ("preferred_chunks",))
    types = {one.dtype for one in held}
    if types == {variable.dtype} and all(_agree(encodings, key) for key in PACKING):
        packing = _some(encodings[0], PACKING)
        if not _loses_missing(variable, packing):
            kept.update(packing)
    return kept


def _agree(encodings: Sequence[Mapping[str, Any]], key: str) -> bool:
    first, *others = (repr(one.get(key)) for one in encodings)  # by text: a NaN is itself
    return all(other == first for other in others)


def _some(encoding: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {key: encoding[key] for key in keys if key in encoding}


def _loses_missing(variable: xr.Variable, packing: Mapping[str, Any]) -> bool:
    """Whether missing values, which combining may have added, would be packed as whole numbers."""
    whole = getattr(packing.get("dtype"), "kind", "") in "iu" and variable.dtype.kind not in "iub"
    return whole and "_FillValue" not in packing and "missing_value" not in packing
