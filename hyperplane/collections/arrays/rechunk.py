"""``rechunk``: rechunking within a memory limit, through intermediate chunks if needed."""

from __future__ import annotations

import math
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from hyperplane.collections.arrays.propose_chunks import parse_memory_limit
from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.public_calls import check_call
from hyperplane.core.units import format_bytes, whole_number

#: Chunk sizes along each axis, as in ``dask.array.Array.chunks``.
Chunks = tuple[tuple[int, ...], ...]
#: Maximum number of steps: each one copies the whole array.
MAX_STEPS = 6


@check_call
def rechunk(array: Any, chunks: Any, *, memory: str | int = "1GB") -> Any:
    """Rechunk so that no task needs more than a given amount of memory.

    If one step exceeds the limit, the array is rechunked in several steps, as few as possible and
    at most six. If no steps fit and a distributed client is active, Dask's P2P rechunking is used,
    which exchanges data through worker disks.

    Parameters
    ----------
    array : dask.array.Array, xarray.DataArray or xarray.Dataset
        The array; the result is lazy.
    chunks : tuple, int, or dict
        The new chunks, as for ``rechunk`` of Dask or ``chunk`` of xarray, or from
        :func:`propose_chunks`.
    memory : str or int
        Maximum memory of one task in bytes, or as text: ``"1GB"`` is 10^9 bytes. Pass the memory
        of a worker divided by its threads, minus a reserve for Python itself. Results that wait
        between tasks are not included; workers spill them to disk if needed.

    Returns
    -------
    dask.array.Array, xarray.DataArray or xarray.Dataset
        The same type as ``array``.

    Raises
    ------
    RequestError
        If the chunks do not match the array, or cannot be made within the limit.

    Notes
    -----
    The memory of a task is estimated as the bytes of its new chunk and of all old chunks that
    overlap it, because a NumPy view keeps its whole base array in memory. Along each axis, the
    chunk length after step ``i`` of ``n`` is the geometric interpolation
    ``old ** (1 - i / n) * new ** (i / n)``, rounded to a multiple of the smaller of the two.

    Examples
    --------
    >>> import dask.array as da
    >>> maps = da.zeros((1000, 400, 400), chunks=(1, 400, 400))
    >>> series = rechunk(maps, (1000, 20, 20), memory="200MB")
    >>> series.chunksize
    (1000, 20, 20)
    """
    limit, faults = parse_memory_limit(memory)
    try:
        # With an invalid limit, only to find the faults of the other arguments.
        rechunked = _rechunk_any(array, chunks, sys.maxsize if faults else limit)
    except RequestError as error:
        raise RequestError([*error.faults, *faults]) from error.__cause__
    check(faults)
    return rechunked


def _rechunk_any(array: Any, chunks: Any, limit: int) -> Any:
    """Rechunk a Dask array or an object of xarray; raise RequestError for other objects."""
    import dask.array as da

    if isinstance(array, da.Array):
        return _rechunk_array(array, chunks, limit, "array")
    xarray = sys.modules.get("xarray")
    if xarray is not None and isinstance(array, xarray.DataArray | xarray.Dataset):
        chunks_by_dim = _map_chunks_by_dimension(chunks, array)
        if isinstance(array, xarray.DataArray):
            return array.copy(data=_rechunk_variable(array.variable, chunks_by_dim, limit, "array"))
        rechunked = {
            name: variable.copy(
                data=_rechunk_variable(variable, chunks_by_dim, limit, f"variable {name!r}")
            )
            for name, variable in array.variables.items()
            if name not in array.indexes
        }
        return array.assign(rechunked)
    allowed = "a Dask array, or a DataArray or Dataset of xarray"
    raise RequestError([Fault("array", type(array).__name__, allowed)])


def _map_chunks_by_dimension(chunks: Any, array: Any) -> dict[Any, Any]:
    """Return chunks by dimension of an xarray object; a single size applies to all."""
    chunks_by_dim = chunks if isinstance(chunks, dict) else dict.fromkeys(array.dims, chunks)
    unknown = [dim for dim in chunks_by_dim if dim not in array.dims]
    if unknown or isinstance(chunks, list | tuple):
        allowed = "chunk sizes by dimension: " + ", ".join(map(str, array.dims))
        raise RequestError([Fault("chunks", repr(chunks)[:80], allowed)])
    return chunks_by_dim


def _rechunk_variable(variable: Any, chunks_by_dim: dict[Any, Any], limit: int, where: str) -> Any:
    axes = {
        axis: chunks_by_dim[dim] for axis, dim in enumerate(variable.dims) if dim in chunks_by_dim
    }
    if variable.chunks is None:
        sizes = _normalize_chunks(variable.chunk().data, axes)
        return variable.chunk(dict(zip(variable.dims, sizes, strict=True))).data
    return _rechunk_array(variable.data, axes, limit, where)


def _rechunk_array(array: Any, chunks: Any, limit: int, where: str) -> Any:
    """Rechunk a Dask array with the first method that fits into ``limit`` bytes per task."""
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
    sizes = [format_bytes(count_largest_chunk(side) * itemsize) for side in (old, new)]
    given = f"rechunking from {sizes[0]} to {sizes[1]} chunks within {format_bytes(limit)}"
    advice = f"start a cluster: P2P rechunking through worker disks needs {format_bytes(peak)}"
    if peak > limit:
        advice = f"raise memory= to at least {format_bytes(peak)}, or choose smaller chunks"
    raise RequestError([Fault(where, given, "chunks that can be made within memory=", advice)])


def _normalize_chunks(array: Any, chunks: Any) -> Chunks:
    """Return the new chunks as a tuple of sizes along each axis."""
    from dask.array.core import normalize_chunks

    if any(size != size for size in array.shape):
        advice = "call compute_chunk_sizes() first"
        raise RequestError(
            [Fault("array", "unknown chunk sizes", "an array of known chunk sizes", advice)]
        )
    if isinstance(chunks, dict):
        axes = _normalize_axes(chunks, array.ndim)
        chunks = tuple(axes.get(axis, sizes) for axis, sizes in enumerate(array.chunks))
    try:
        rechunked: Chunks = normalize_chunks(
            chunks, array.shape, dtype=array.dtype, previous_chunks=array.chunks
        )
    except (ArithmeticError, TypeError, ValueError) as error:
        allowed = f"chunk sizes for an array of shape {array.shape}"
        given = chunks if isinstance(chunks, list | tuple) else [chunks]
        advice = " ".join(str(error).split())
        if any(isinstance(size, int) and size < 1 and size != -1 for size in given):
            advice = "chunk sizes are at least 1; -1 means the whole axis"
        raise RequestError([Fault("chunks", repr(chunks)[:80], allowed, advice)]) from error
    return rechunked


def _normalize_axes(chunks: dict[Any, Any], count: int) -> dict[int, Any]:
    """Return sizes by axis, with negative axes counted from the end."""
    axes = {}
    for key, size in chunks.items():
        axis = whole_number(key)
        if axis is None or not -count <= axis < count:
            allowed = f"axes 0 to {count - 1}, or -1 to -{count} from the end"
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


def plan_rechunk_steps(old: Chunks, new: Chunks, itemsize: int, limit: int) -> list[Chunks] | None:
    """Return the chunks after each step, so that no task holds more than ``limit`` bytes.

    The last entry is ``new``. None if ``MAX_STEPS`` steps do not fit.

    Examples
    --------
    >>> old, new = ((1,) * 400, (400,)), ((400,), (1,) * 400)
    >>> [count_largest_chunk(s) for s in plan_rechunk_steps(old, new, itemsize=8, limit=2_000_000)]
    [400]
    >>> [count_largest_chunk(s) for s in plan_rechunk_steps(old, new, itemsize=8, limit=200_000)]
    [400, 400]
    >>> plan_rechunk_steps(old, new, itemsize=8, limit=4_000) is None
    True
    """
    for count in range(1, MAX_STEPS + 1):
        intermediate = [_interpolate_chunks(old, new, step / count) for step in range(1, count)]
        steps = [*intermediate, new]
        if all(
            estimate_peak_bytes(before, after, itemsize) <= limit
            for before, after in zip([old, *intermediate], steps, strict=True)
        ):
            return steps
    return None


def _interpolate_chunks(old: Chunks, new: Chunks, part: float) -> Chunks:
    """Return chunks between old and new, by the geometric interpolation of :func:`rechunk`."""
    chunks = []
    for before, after in zip(old, new, strict=True):
        size = sum(before)
        if not size or before == after:
            chunks.append(before)
            continue
        old_length, new_length = max(before), max(after)
        unit = min(old_length, new_length)
        target = old_length ** (1 - part) * new_length**part
        length = unit * max(1, round(target / unit))
        count, rest = divmod(size, min(length, size))
        chunks.append((min(length, size),) * count + ((rest,) if rest else ()))
    return tuple(chunks)


def estimate_peak_bytes(old: Chunks, new: Chunks, itemsize: int) -> int:
    """Return the maximum bytes that one rechunking task holds.

    A task holds its new chunk and all old chunks that overlap it, because a NumPy view keeps its
    whole base array in memory.

    Examples
    --------
    >>> estimate_peak_bytes(((10, 10, 10),), ((15, 15),), itemsize=8)  # 15 from two 10s
    280
    """
    sources = math.prod(
        _measure_longest_overlap(before, after) for before, after in zip(old, new, strict=True)
    )
    return itemsize * (sources + count_largest_chunk(new))


def count_largest_chunk(chunks: Chunks) -> int:
    """Return the number of elements of the largest chunk.

    Examples
    --------
    >>> count_largest_chunk(((10, 5), (3, 4)))
    40
    """
    return math.prod(max(sizes, default=0) for sizes in chunks)


def _measure_longest_overlap(old: Sequence[int], new: Sequence[int]) -> int:
    """Return the maximum total length of the old chunks that overlap one new chunk."""
    edges = [0, *accumulate(old)]
    longest = position = 0
    for size in new:
        first = bisect_right(edges, position) - 1
        last = bisect_left(edges, position + size)
        if size:
            longest = max(longest, edges[last] - edges[first])
        position += size
    return longest
