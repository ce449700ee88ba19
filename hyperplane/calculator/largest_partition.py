"""Size in memory of the largest partition of files or of a collection, without computing any."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dask.delayed import Delayed

from hyperplane.core.units import plural
from hyperplane.formats import registry
from hyperplane.formats.base import SupportsRead
from hyperplane.formats.request import ReadRequest
from hyperplane.formats.text_samples import COMPRESSION_RATIO
from hyperplane.guard.preflight.paths import is_paths
from hyperplane.objectstore import listing
from hyperplane.objectstore.gzip_sizes import read_gzip_size
from hyperplane.objectstore.locations import File

#: Maximum number of gzip files whose last bytes are read: the largest ones.
_MOST_TRAILERS = 16


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
    if _is_dataset(data):  # whose chunks are an error if those of its variables differ
        return _measure_dataset(data)
    if hasattr(data, "chunks") and hasattr(data, "dtype"):
        return _measure_array(data)
    if hasattr(data, "expr"):
        return _measure_frame(data)
    return None, f"the sizes of partitions of a {type(data).__name__} are known only when it runs"


def _measure_files(urls: Any, options: Mapping[str, Any] | None) -> tuple[int | None, str]:
    files = listing.find_files(urls, options)
    file_format = registry.detect_format(files, SupportsRead, urls)
    plan = file_format.plan_partitions(files, ReadRequest(), {})
    gzip_sizes = _read_gzip_sizes(files)
    sizes = [_correct_size(part, gzip_sizes) for part in plan.parts]
    known = [size for size in sizes if size is not None]
    if not known:
        return None, f"the sizes of {plural(len(files), 'file')} are known only when they are read"
    how = f"{plural(len(sizes), 'partition')} of {plural(len(files), 'file')}"
    if any(file.compression and file not in gzip_sizes for file in files):
        how += f"; about, if the files compress {COMPRESSION_RATIO} to 1"
    elif gzip_sizes:
        how += "; by the uncompressed sizes at the ends of the gzip files"
    return max(known), how


def _read_gzip_sizes(files: Sequence[File]) -> dict[File, int]:
    """Return the uncompressed sizes of the largest gzip files, as far as they are known."""
    compressed = [file for file in files if file.compression == "gzip"]
    largest = sorted(compressed, key=lambda file: file.size, reverse=True)[:_MOST_TRAILERS]
    if not largest:
        return {}
    with ThreadPoolExecutor(len(largest)) as pool:
        sizes = list(pool.map(read_gzip_size, largest))
    return {file: size for file, size in zip(largest, sizes, strict=True) if size is not None}


def _correct_size(part: Any, gzip_sizes: Mapping[File, int]) -> int | None:
    """Return the bytes of a partition with the known sizes of its gzip files."""
    size: int | None = part.nbytes
    if size is None or not gzip_sizes:
        return size
    for each in getattr(part, "slices", ()):
        known = gzip_sizes.get(each.file)
        if known is not None:
            # The plan assumes the ratio, and multiplies by the memory that text takes.
            size += round(each.nbytes * (known / (each.file.size * COMPRESSION_RATIO) - 1))
    return size


def _measure_array(data: Any) -> tuple[int | None, str]:
    sizes = [max(lengths, default=0) for lengths in data.chunks]
    if any(math.isnan(size) for size in sizes):
        return None, "the array has chunks of unknown size; call compute_chunk_sizes()"
    return math.prod(sizes) * data.dtype.itemsize, "chunks of an array"


def _is_dataset(data: Any) -> bool:
    return any(
        base.__name__ == "Dataset" and base.__module__.partition(".")[0] == "xarray"
        for base in type(data).__mro__
    )


def _measure_dataset(data: Any) -> tuple[int | None, str]:
    """Measure the variables of a data set of xarray that are Dask arrays."""
    variables = [each for each in data.variables.values() if each.chunks is not None]
    measured = [_measure_array(each) for each in variables]
    if not measured:
        return None, "the data set has no Dask arrays"
    known = [size for size, _ in measured if size is not None]
    if len(known) < len(measured):
        return next(each for each in measured if each[0] is None)
    return max(known), f"chunks of {plural(len(measured), 'variable')}"


def _measure_frame(data: Any) -> tuple[int | None, str]:
    """Measure the sources of a dataframe: files of ``read``, and frames of ``from_pandas``."""
    sizes: list[int] = []
    sources = [node for node in data.expr.walk() if not node.dependencies()]
    for node in sources:
        found = [_measure_parts(node), _measure_pandas(node)]
        known = [size for size in found if size is not None]
        if not known:
            return None, "the sizes of partitions are known only when it runs"
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
    if usage is None or isinstance(frame, Delayed) or not hasattr(node, "npartitions"):
        return None  # a Delayed has any attribute
    # Not deep: text would be read completely.
    used = usage(index=True)
    total = int(used if isinstance(used, int) else used.sum())
    return -(-total // max(1, int(node.npartitions)))
