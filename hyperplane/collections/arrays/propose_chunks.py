"""``propose_chunks``: chunk sizes for an array, a memory limit and an access pattern."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from hyperplane.collections.arrays.chunk_sizes import choose_chunk_sizes
from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.public_calls import check_call
from hyperplane.core.units import advise_on_size, format_bytes, parse_bytes, whole_number

_ARRAYS = "an array of NumPy, Dask, Zarr or xarray, or a shape together with dtype="


@check_call
def propose_chunks(
    array: Any,
    *,
    dtype: Any = None,
    whole: Any = (),
    memory: str | int = "100MB",
) -> Any:
    """Propose chunk sizes for a memory limit and an access pattern.

    The chunk starts as small as possible and doubles along the axis with the most chunks while it
    fits into ``memory``; then chunks are made equal.

    Parameters
    ----------
    array : array, xarray.DataArray or tuple of int
        An array of NumPy, Dask, Zarr or xarray of any number of dimensions from 1, or its shape.
        If it is stored in chunks, the proposed chunks are multiples of these, if they fit.
    dtype : dtype, optional
        The type of the elements; required with a shape.
    whole : str, int, or list of them
        Axes that are not divided because they are read as a whole: names of dimensions for an
        xarray object, else numbers. ``"time"`` for time series at points, ``["y", "x"]`` for
        maps. By default all axes are divided into similar numbers of chunks.
    memory : str or int
        Maximum size of a chunk in bytes, or as text: ``"100MB"`` is 10^8 bytes. A task holds
        several chunks.

    Returns
    -------
    tuple of int or dict of str to int
        Elements of a chunk along each axis, for :func:`rechunk`; for an xarray object by the
        name of the dimension.

    Raises
    ------
    RequestError
        If an argument is invalid, or no chunk fits into ``memory``.

    Examples
    --------
    >>> propose_chunks((3650, 720, 1440), dtype="float32")  # no preferred axis
    (730, 120, 240)
    >>> propose_chunks((3650, 720, 1440), dtype="float32", whole=0)  # time series at points
    (3650, 60, 111)
    >>> propose_chunks((3650, 720, 1440), dtype="float32", whole=[1, 2])  # maps
    (24, 720, 1440)
    """
    limit, faults = parse_memory_limit(memory)
    whole_axes = list(whole) if isinstance(whole, list | tuple) else [whole]
    try:
        shape, names, dtype, units = _describe_array(array, dtype)
    except RequestError as error:
        raise RequestError([*error.faults, *faults]) from error.__cause__
    itemsize, dtype_faults = _parse_itemsize(dtype)
    check([*dtype_faults, *_find_whole_faults(whole_axes, names, shape), *faults])
    axes = [names.index(axis) if axis in names else int(axis) % len(shape) for axis in whole_axes]
    elements = limit // itemsize
    chunks = choose_chunk_sizes(shape, units, axes, elements)
    if chunks is None:  # ignore the stored chunks, as for time series of data stored as maps
        chunks = choose_chunk_sizes(shape, [1] * len(shape), axes, elements)
    if chunks is None:
        least = itemsize * math.prod(max(1, shape[axis]) for axis in set(axes))
        allowed = (
            f"at least {format_bytes(least)}, the size of the smallest chunk with whole={whole!r}"
        )
        advice = "raise memory=" + (", or remove an axis from whole=" if axes else "")
        raise RequestError([Fault("memory", format_bytes(limit), allowed, advice)])
    return dict(zip(names, chunks, strict=True)) if names else chunks


def parse_memory_limit(memory: Any) -> tuple[int, list[Fault]]:
    """Parse a memory limit, given as text or as a number of bytes, into bytes and faults."""
    size = whole_number(memory)
    if size is None and isinstance(memory, str):
        try:
            size = parse_bytes(memory)
        except ValueError:
            size = None
    if size is None or size <= 0:
        allowed = "a quantity such as '100MB', or a number of bytes"
        return 0, [Fault("memory", repr(memory)[:80], allowed, advise_on_size(str(memory)))]
    return size, []


def _parse_itemsize(dtype: Any) -> tuple[int, list[Fault]]:
    """Parse a dtype into the bytes of an element and faults."""
    try:
        return max(1, np.dtype(dtype).itemsize), []
    except (TypeError, ValueError, SyntaxError):  # SyntaxError: NumPy parses text
        return 1, [Fault("dtype", repr(dtype)[:80], "a NumPy dtype")]


def _describe_array(
    array: Any, dtype: Any
) -> tuple[tuple[int, ...], list[Hashable], Any, list[int]]:
    """Return shape, dimension names (may be empty), dtype and stored chunks."""
    names: list[Hashable] = []
    stored: Any = {}
    if hasattr(array, "shape") and hasattr(array, "dtype"):
        shape = tuple(array.shape)
        dtype = array.dtype if dtype is None else dtype
        if hasattr(array, "dims"):
            names = list(array.dims)
            stored = array.encoding.get("preferred_chunks", {})
        elif hasattr(array, "chunks") and not hasattr(array, "dask"):
            stored = dict(enumerate(array.chunks))
    else:
        shape = tuple(array) if isinstance(array, Sequence) and not isinstance(array, str) else ()
    sizes = [whole_number(size) for size in shape]
    if not shape or any(size is None or size < 0 for size in sizes) or dtype is None:
        raise RequestError([Fault("array", repr(array)[:80], _ARRAYS)])
    lengths = tuple(size for size in sizes if size is not None)
    units = [_get_chunk_unit(stored.get(key, 1)) for key in (names or range(len(lengths)))]
    return lengths, names, dtype, units


def _get_chunk_unit(stored: Any) -> int:
    """Return the size of the stored chunks along an axis; 1 if sizes other than the last differ."""
    if isinstance(stored, tuple):
        return stored[0] if len(set(stored[:-1])) == 1 or len(stored) == 1 else 1
    return max(1, int(stored))


def _find_whole_faults(
    whole_axes: Sequence[Any], names: Sequence[Hashable], shape: Sequence[int]
) -> Iterator[Fault]:
    for axis in whole_axes:
        number = whole_number(axis)
        exists = (
            axis in names if names else number is not None and -len(shape) <= number < len(shape)
        )
        if not exists:
            choices = ", ".join(map(str, names)) if names else f"axes 0 to {len(shape) - 1}"
            yield Fault("whole", repr(axis)[:80], f"one or more of {choices}")
