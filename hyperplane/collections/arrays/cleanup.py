"""A combined data set that can be written: equal chunks, and no encoding that only a part had."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import xarray as xr

#: How values are packed. It describes all of the result, or none of it.
PACKING_KEYS = (
    "dtype",
    "scale_factor",
    "add_offset",
    "_FillValue",
    "missing_value",
    "_Unsigned",
    "units",
    "calendar",
)


def prepare_for_writing(result: xr.Dataset, parts: Sequence[xr.Dataset]) -> xr.Dataset:
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
        stored = [one.variables[name] for one in parts if name in one.variables]
        variable.encoding = _merge_encodings(variable, stored)
        chunks = {
            dim: max(sizes) for dim, sizes in variable.chunksizes.items() if not _is_even(sizes)
        }
        if chunks:
            uneven[str(name)] = variable.chunk(chunks)
    return result.assign(uneven)


def _is_even(sizes: Sequence[int]) -> bool:
    """Whether all chunks have one size; the last may be smaller."""
    return len(set(sizes[:-1])) <= 1 and sizes[-1] <= sizes[0]


def _merge_encodings(variable: xr.Variable, stored: Sequence[xr.Variable]) -> dict[str, Any]:
    encodings = [one.encoding for one in stored]
    kept: dict[str, Any] = {}
    if encodings and _is_shared(encodings, "preferred_chunks"):
        kept = _select_keys(encodings[0], ("preferred_chunks",))
    types = {one.dtype for one in stored}
    if types == {variable.dtype} and all(_is_shared(encodings, key) for key in PACKING_KEYS):
        packing = _select_keys(encodings[0], PACKING_KEYS)
        if not _would_lose_missing(variable, packing):
            kept.update(packing)
    return kept


def _is_shared(encodings: Sequence[Mapping[str, Any]], key: str) -> bool:
    first, *others = (repr(one.get(key)) for one in encodings)  # by text: a NaN is itself
    return all(other == first for other in others)


def _select_keys(encoding: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {key: encoding[key] for key in keys if key in encoding}


def _would_lose_missing(variable: xr.Variable, packing: Mapping[str, Any]) -> bool:
    """Whether missing values, which combining may have added, would be packed as whole numbers."""
    whole = getattr(packing.get("dtype"), "kind", "") in "iu" and variable.dtype.kind not in "iub"
    return whole and "_FillValue" not in packing and "missing_value" not in packing
