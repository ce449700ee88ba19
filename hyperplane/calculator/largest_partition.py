"""Size in memory of the largest partition of files or of a collection, without computing any."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hyperplane.core.units import plural
from hyperplane.formats import registry
from hyperplane.formats.base import SupportsRead
from hyperplane.formats.request import ReadRequest
from hyperplane.guard.preflight.paths import is_paths
from hyperplane.objectstore import listing


def measure_largest_partition(
    data: Any, options: Mapping[str, Any] | None = None
) -> tuple[int | None, str]:
    """Return the bytes of the largest partition, and of what; None and the reason if unknown.

    Parameters
    ----------
    data : path, list of paths, or Dask collection
        Files are divided as :func:`hyperplane.dataframe.read` divides them by default.
    options : mapping, optional
        Options of the file system.

    Examples
    --------
    >>> import dask.array
    >>> size, how = measure_largest_partition(dask.array.ones((1000, 500), chunks=(500, 500)))
    >>> size
    2000000
    """
    if is_paths(data):
        return _measure_files(data, options)
    if hasattr(data, "chunks") and hasattr(data, "dtype"):
        return _measure_array(data)
    if hasattr(data, "expr"):
        return _measure_frame(data)
    return None, f"the sizes of partitions of a {type(data).__name__} are known only when it runs"


def _measure_files(urls: Any, options: Mapping[str, Any] | None) -> tuple[int | None, str]:
    files = listing.find_files(urls, options)
    file_format = registry.detect_format(files, SupportsRead, urls)
    plan = file_format.plan_partitions(files, ReadRequest(), {})
    sizes = [part.nbytes for part in plan.parts]
    known = [size for size in sizes if size is not None]
    if not known:
        return None, f"the sizes of {plural(len(files), 'file')} are known only when they are read"
    return max(known), f"{plural(len(sizes), 'partition')} of {plural(len(files), 'file')}"


def _measure_array(data: Any) -> tuple[int | None, str]:
    sizes = [max(lengths, default=0) for lengths in data.chunks]
    if any(math.isnan(size) for size in sizes):
        return None, "the array has chunks of unknown size; call compute_chunk_sizes()"
    return math.prod(sizes) * data.dtype.itemsize, "chunks of an array"


def _measure_frame(data: Any) -> tuple[int | None, str]:
    """Measure the sources of a dataframe: files of ``read``, and frames of ``from_pandas``."""
    sizes: list[int] = []
    sources = [node for node in data.expr.walk() if not node.dependencies()]
    for node in sources:
        found = [_measure_parts(node), _measure_pandas(node)]
        known = [size for size in found if size is not None]
        if not known:
            return None, "the sizes of partitions are known only when they are computed"
        sizes += known
    if not sizes:
        return None, "the dataframe has no source"
    return max(sizes), f"{plural(len(sources), 'source')} of the dataframe"


def _measure_parts(node: Any) -> int | None:
    """Return the largest ``nbytes`` of partitions that a source has as a list."""
    sizes: list[int] = []
    for operand in node.operands:
        items = operand[0] if _is_nested(operand) else operand
        if isinstance(items, list | tuple):
            sizes += [
                size for item in items if isinstance(size := getattr(item, "nbytes", None), int)
            ]
    return max(sizes, default=None)


def _is_nested(operand: Any) -> bool:
    return isinstance(operand, list | tuple) and bool(operand) and isinstance(operand[0], list)


def _measure_pandas(node: Any) -> int | None:
    frame = node.operands[0] if node.operands else None
    frame = getattr(frame, "_data", frame)
    usage = getattr(frame, "memory_usage", None)
    if usage is None or not hasattr(node, "npartitions"):
        return None
    # Not deep: text would be read completely.
    used = usage(index=True)
    total = int(used if isinstance(used, int) else used.sum())
    return -(-total // max(1, int(node.npartitions)))
