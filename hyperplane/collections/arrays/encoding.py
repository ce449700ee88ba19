"""Chunks and encoding with which Zarr can write a combined data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import xarray as xr

#: Encoding keys that describe how values are packed; kept together or dropped together.
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


def prepare_for_writing(result: xr.Dataset, datasets: Sequence[xr.Dataset]) -> xr.Dataset:
    """Return the combined data set in equal chunks, with the encoding that all stores share.

    Zarr requires equal chunks. The packing of one store may be unable to represent values of
    another, so it is dropped unless all stores agree. Of the other keys of the encoding only the
    preferred chunks are kept.
    """
    result = result.copy(deep=False)
    result.encoding = {}
    uneven: dict[str, xr.Variable] = {}
    for name, variable in result.variables.items():
        stored = [dataset.variables[name] for dataset in datasets if name in dataset.variables]
        variable.encoding = _merge_encodings(variable, stored)
        chunks = {
            dim: max(sizes) for dim, sizes in variable.chunksizes.items() if not _is_even(sizes)
        }
        if chunks:
            uneven[str(name)] = variable.chunk(chunks)
    return result.assign(uneven)


def _is_even(sizes: Sequence[int]) -> bool:
    """Whether all chunks have the same size, except for a smaller last one."""
    return len(set(sizes[:-1])) <= 1 and sizes[-1] <= sizes[0]


def _merge_encodings(variable: xr.Variable, stored: Sequence[xr.Variable]) -> dict[str, Any]:
    encodings = [stored_variable.encoding for stored_variable in stored]
    encoding: dict[str, Any] = {}
    if encodings and _is_shared(encodings, "preferred_chunks"):
        encoding = _select_keys(encodings[0], ("preferred_chunks",))
    types = {stored_variable.dtype for stored_variable in stored}
    if types == {variable.dtype} and all(_is_shared(encodings, key) for key in PACKING_KEYS):
        packing = _select_keys(encodings[0], PACKING_KEYS)
        if not _would_lose_missing(variable, packing):
            encoding.update(packing)
    return encoding


def _is_shared(encodings: Sequence[Mapping[str, Any]], key: str) -> bool:
    # Compared as text, because NaN is not equal to NaN.
    first, *others = (repr(encoding.get(key)) for encoding in encodings)
    return all(other == first for other in others)


def _select_keys(encoding: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {key: encoding[key] for key in keys if key in encoding}


def _would_lose_missing(variable: xr.Variable, packing: Mapping[str, Any]) -> bool:
    """Whether missing values added by combining would be packed as integers and lost."""
    is_integer = (
        getattr(packing.get("dtype"), "kind", "") in "iu" and variable.dtype.kind not in "iub"
    )
    return is_integer and "_FillValue" not in packing and "missing_value" not in packing
