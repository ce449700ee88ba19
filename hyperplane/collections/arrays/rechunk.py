"""Rechunking within a limit of memory, by way of intermediate chunks where that is needed."""

from __future__ import annotations

import sys
from typing import Any

from hyperplane.collections.arrays.propose_chunks import parse_memory_limit
from hyperplane.collections.arrays.rechunk_steps import (
    Chunks,
    count_largest_chunk,
    plan_rechunk_steps,
)
from hyperplane.errors import Fault, RequestError
from hyperplane.public_calls import check_call
from hyperplane.units import format_bytes, whole_number


@check_call
def rechunk(array: Any, chunks: Any, *, memory: str | int = "1GB") -> Any:
    """Rechunk without a task that holds more than a limit of memory.

    A task holds its new chunk and all chunks that it takes parts of. If that is too much, the
    array goes through intermediate chunks, as few as will do. If no such way fits and a
    distributed client is active, workers exchange the parts through their disks.

    Parameters
    ----------
    array : dask.array.Array, xarray.DataArray or xarray.Dataset
        What is rechunked; lazily, nothing is computed.
    chunks : tuple, int, or dict
        The chunks, as for ``rechunk`` of Dask and ``chunk`` of xarray, and as
        :func:`propose_chunks` returns them.
    memory : str or int
        The most that one task may hold, as ``"1GB"`` or bytes: the memory of a worker divided by
        its threads, less some room. Data that waits for its turn between tasks is not part of
        it; workers write that to disk when they have to.

    Returns
    -------
    dask.array.Array, xarray.DataArray or xarray.Dataset
        Of the type that was given.

    Raises
    ------
    RequestError
        When the chunks do not suit the array, or there is no way within the limit.

    Examples
    --------
    >>> import dask.array as da
    >>> maps = da.zeros((1000, 400, 400), chunks=(1, 400, 400))
    >>> series = rechunk(maps, (1000, 20, 20), memory="200MB")
    >>> series.chunksize
    (1000, 20, 20)
    """
    limit = parse_memory_limit(memory)
    import dask.array as da

    if isinstance(array, da.Array):
        return _rechunk_array(array, chunks, limit, "array")
    xarray = sys.modules.get("xarray")
    if xarray is not None and isinstance(array, xarray.DataArray | xarray.Dataset):
        wanted = _chunks_by_dimension(chunks, array)
        if isinstance(array, xarray.DataArray):
            return array.copy(data=_rechunk_variable(array.variable, wanted, limit, "array"))
        rechunked = {
            name: variable.copy(
                data=_rechunk_variable(variable, wanted, limit, f"variable {name!r}")
            )
            for name, variable in array.variables.items()
            if name not in array.indexes
        }
        return array.assign(rechunked)
    allowed = "a Dask array, or a DataArray or Dataset of xarray"
    raise RequestError([Fault("array", type(array).__name__, allowed)])


def _chunks_by_dimension(chunks: Any, array: Any) -> dict[Any, Any]:
    """Chunks for the dimensions of an xarray object; one size is for all of them."""
    wanted = chunks if isinstance(chunks, dict) else dict.fromkeys(array.dims, chunks)
    unknown = [dim for dim in wanted if dim not in array.dims]
    if unknown or isinstance(chunks, list | tuple):
        allowed = "sizes by the name of dimensions: " + ", ".join(map(str, array.dims))
        raise RequestError([Fault("chunks", repr(chunks)[:80], allowed)])
    return wanted


def _rechunk_variable(variable: Any, wanted: dict[Any, Any], limit: int, where: str) -> Any:
    own = {dim: wanted[dim] for dim in variable.dims if dim in wanted}
    axes = {variable.dims.index(dim): size for dim, size in own.items()}
    if variable.chunks is None:
        sizes = _normalize_chunks(variable.chunk().data, axes)
        return variable.chunk(dict(zip(variable.dims, sizes, strict=True))).data
    return _rechunk_array(variable.data, axes, limit, where)


def _rechunk_array(array: Any, chunks: Any, limit: int, where: str) -> Any:
    """A Dask array in new chunks, by the first way that fits."""
    old: Chunks = array.chunks
    new = _normalize_chunks(array, chunks)
    itemsize = array.dtype.itemsize
    if new == old:
        return array
    steps = plan_rechunk_steps(old, new, itemsize, limit)
    if steps is not None:
        for step in steps:
            array = array.rechunk(step, method="tasks", threshold=sys.maxsize)
        return array
    peak = (count_largest_chunk(old) + 2 * count_largest_chunk(new)) * itemsize
    if peak <= limit and _has_client():
        return array.rechunk(new, method="p2p")
    sizes = [format_bytes(count_largest_chunk(one) * itemsize) for one in (old, new)]
    given = f"chunks of {sizes[0]} made to chunks of {sizes[1]} within {format_bytes(limit)}"
    advice = f"with workers that have disks it takes {format_bytes(peak)}: start a cluster first"
    if peak > limit:
        advice = f"raise memory= to {format_bytes(peak)} at least, or ask for smaller chunks"
    raise RequestError([Fault(where, given, "what has a way within memory=", advice)])


def _normalize_chunks(array: Any, chunks: Any) -> Chunks:
    """The new chunks as sizes along each axis."""
    from dask.array.core import normalize_chunks

    if any(size != size for size in array.shape):
        advice = "call compute_chunk_sizes() first"
        raise RequestError([Fault("array", "of unknown shape", "known sizes of chunks", advice)])
    if isinstance(chunks, dict):
        axes = _normalize_axes(chunks, array.ndim)
        chunks = tuple(axes.get(axis, sizes) for axis, sizes in enumerate(array.chunks))
    try:
        rechunked: Chunks = normalize_chunks(
            chunks, array.shape, dtype=array.dtype, previous_chunks=array.chunks
        )
    except (ArithmeticError, TypeError, ValueError) as error:
        allowed = f"sizes for an array of shape {array.shape}"
        given = chunks if isinstance(chunks, list | tuple) else [chunks]
        advice = " ".join(str(error).split())
        if any(isinstance(size, int) and size < 1 and size != -1 for size in given):
            advice = "sizes are from 1; -1 stands for a whole axis"
        raise RequestError([Fault("chunks", repr(chunks)[:80], allowed, advice)]) from error
    return rechunked


def _normalize_axes(chunks: dict[Any, Any], count: int) -> dict[int, Any]:
    """Sizes by axis, those counted from the end too."""
    axes = {}
    for given, size in chunks.items():
        axis = whole_number(given)
        if axis is None or not -count <= axis < count:
            allowed = f"axes 0 to {count - 1}, or from the end -1 to -{count}"
            raise RequestError([Fault("chunks", repr(chunks)[:80], allowed)])
        axes[axis % count] = size
    return axes


def _has_client() -> bool:
    """Whether a distributed client is active."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return False
    try:
        distributed.default_client()
    except ValueError:
        return False
    return True
