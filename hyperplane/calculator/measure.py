"""Measure data that is given as a quantity, as files or as a collection."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, cast

from hyperplane.core.errors import Fault, RequestError
from hyperplane.core.units import (
    advise_on_size,
    format_bytes,
    gb_to_bytes,
    parse_bytes,
)
from hyperplane.formats import registry, zarr
from hyperplane.formats.base import SizeEstimate, SupportsSize
from hyperplane.formats.parquet.pandas_index import check_index
from hyperplane.objectstore import listing
from hyperplane.objectstore.file_names import DAMAGE_ERRORS
from hyperplane.objectstore.locations import File
from hyperplane.objectstore.redaction import describe_error, redact_url

#: Maximum partitions of a Dask dataframe that are computed to estimate its size.
SAMPLED_PARTITIONS = 3
#: Limit of sizes in GB: an exabyte.
LARGEST_GB = 10**9
#: Errors of unreadable files. RecursionError: JSON may be nested too deeply for Python's decoder.
_UNREADABLE: tuple[type[Exception], ...] = (*DAMAGE_ERRORS, RecursionError)


@dataclass(frozen=True)
class DataSize:
    """Bytes of uncompressed data, and a text on how they were determined."""

    size: int
    how: str


def measure(data: Any) -> DataSize:
    """Determine the size of data.

    ``data`` is ``"100GB"``; a number of GB; ``(100_000_000_000, "B")``; a path, glob or fsspec URL,
    or a list of these; or a Dask, pandas, NumPy or xarray collection. A RequestError is raised for
    other values, negative sizes and unreadable files.

    Examples
    --------
    >>> measure("100GB").size, measure(0.5).size, measure((2000, "MB")).size
    (100000000000, 500000000, 2000000000)
    """
    if isinstance(data, bool) or data is None:
        raise _data_error(data)
    if isinstance(data, str):
        text, is_plain = data, data.isascii() and "_" not in data
        with suppress(ValueError):
            data = float(data)  # a number of GB as text
        if isinstance(data, float) and not is_plain:  # such as "16_16", the name of a pool
            raise _data_error(text)
    if isinstance(data, str):
        try:
            size = parse_bytes(data)
        except ValueError:
            return _measure_paths(data)
        return _to_size(size, repr(data))
    if isinstance(data, os.PathLike):
        return _measure_paths(os.fspath(data))
    if isinstance(data, Real):
        if not -LARGEST_GB < cast(float, data) < LARGEST_GB:
            raise _data_error(data)
        return _to_size(gb_to_bytes(float(data)), f"{float(data):g} GB")
    if isinstance(data, tuple) and not (_are_paths(data) and not _is_quantity(data)):
        return _measure_pair(data)
    if isinstance(data, (list, tuple)) and _are_paths(data):
        return _measure_paths([os.fspath(path) for path in data])
    return _measure_collection(data)


def _data_error(data: object) -> RequestError:
    *names, last = registry.list_formats(SupportsSize)[0]
    allowed = (
        "a size such as '100GB', a number of GB, (bytes, 'B'), a path, glob or URL of "
        f"{', '.join(names)} or {last} data or a list of these, or a Dask, "
        "pandas, NumPy or xarray collection"
    )
    advice = ""
    if hasattr(type(data), "__dask_graph__"):
        advice = "hyperplane.forecast measures any object of Dask"
    return RequestError([Fault("data", repr(data)[:80], allowed, advice)])


def _to_size(size: int, text: str) -> DataSize:
    if size <= 0:
        raise RequestError([Fault("data", text, "a size above 0")])
    return DataSize(size, "as given")


def _measure_pair(data: Sequence[Any]) -> DataSize:
    try:
        number, unit = data
        if not isinstance(unit, str):
            raise _data_error(data)
        return _to_size(parse_bytes(f"{number}{unit}"), f"{number} {unit}")
    except ValueError as error:
        if isinstance(error, RequestError):
            raise
        raise _data_error(data) from None


def _are_paths(data: Sequence[Any]) -> bool:
    """Return whether a sequence has items and all are text or paths."""
    return bool(data) and all(isinstance(item, (str, os.PathLike)) for item in data)


def _is_quantity(data: Sequence[Any]) -> bool:
    """Return whether a tuple is a number and a unit, both as text."""
    with suppress(ValueError, TypeError):
        number, unit = data
        return parse_bytes(f"{number}{unit}") is not None
    return False


def _measure_paths(urls: str | Sequence[str]) -> DataSize:
    # fsspec resolves blank text to the current directory.
    if not all(url.strip() for url in ([urls] if isinstance(urls, str) else urls)):
        raise _data_error(urls)
    size, how = measure_files(urls)
    return DataSize(max(1, size), how)


def measure_files(urls: str | Sequence[str]) -> SizeEstimate:
    """Return the uncompressed bytes of files, and how they were measured.

    Raises
    ------
    RequestError
        If there are no files, none of a supported format, or files that cannot be read.
    """
    try:
        stores, files = _find_files([urls] if isinstance(urls, str) else urls)
        file_format = registry.detect_format(files, SupportsSize, urls) if files else None
    except RequestError as error:
        advice = advise_on_size(urls) if isinstance(urls, str) else ""
        if advice:  # rather a size with an error than a path
            allowed = "an existing path, or a size such as '100GB'"
            fault = Fault("data", repr(urls)[:80], allowed, advice)
            raise RequestError([fault]) from None
        sizes = "a size such as '100GB', or "
        faults = [replace(f, where="data", allowed=sizes + f.allowed) for f in error.faults]
        raise RequestError(faults) from None
    try:
        return file_format.estimate_size(files) if file_format else zarr.measure_stores(stores)
    except _UNREADABLE as error:
        allowed = f"readable files ({describe_error(error)})"
        redacted = redact_url(urls) if isinstance(urls, str) else list(map(redact_url, urls))
        raise RequestError([Fault("data", repr(redacted)[:200], allowed)]) from error


def _find_files(urls: Sequence[str]) -> tuple[list[str], list[File]]:
    """Return the URLs of Zarr stores, or else the files, that URLs name."""
    stores_by_url = {url: zarr.find_stores(url) for url in urls}
    others = [url for url in urls if not stores_by_url[url]]
    stores = list(dict.fromkeys(store for each in stores_by_url.values() for store in each))
    if stores and others:
        value = f"{redact_url(stores[0])!r}, which is Zarr, and {redact_url(others[0])!r}"
        raise RequestError([Fault("urls", value, "data of one format")])
    return stores, listing.find_files(others) if others else []


def _measure_collection(data: Any) -> DataSize:
    """Measure a collection; its package is already imported, since the object exists."""
    check_index(data, "data")
    for package, kind, measure_size in _COLLECTIONS:
        module = sys.modules.get(package)
        if module is not None and isinstance(data, getattr(module, kind)):
            size = measure_size(data)
            return DataSize(max(1, size), f"{kind} of {package}, {format_bytes(size)}")
    raise _data_error(data)


def _measure_pandas_frame(data: Any) -> int:
    return int(data.memory_usage(deep=True, index=True).sum())


def _measure_pandas_series(data: Any) -> int:
    return int(data.memory_usage(deep=True))


def _read_nbytes(data: Any) -> int:
    if math.isnan(data.nbytes):
        advice = "call compute_chunk_sizes() first"
        raise RequestError([Fault("data", "an array of unknown shape", "known chunks", advice)])
    return int(data.nbytes)


def _measure_dask_frame(data: Any) -> int:
    """Estimate the size from a few computed partitions, spread over the collection."""
    count = data.npartitions
    steps = min(count, SAMPLED_PARTITIONS)
    chosen = {round(step * (count - 1) / max(1, steps - 1)) for step in range(steps)}
    sizes = [_measure_partition(data.partitions[index].compute()) for index in chosen]
    return int(sum(sizes) * count // len(sizes))


def _measure_partition(part: Any) -> int:
    usage = part.memory_usage(deep=True)
    return int(usage if isinstance(usage, int) else usage.sum())


def _measure_dask_bag(data: Any) -> int:
    from dask.sizeof import sizeof

    count = data.npartitions
    if not count:
        return 0
    first = data.map(sizeof).to_delayed()[0].compute()
    return int(sum(first) * count)


_COLLECTIONS: tuple[tuple[str, str, Callable[[Any], int]], ...] = (
    ("pandas", "DataFrame", _measure_pandas_frame),
    ("pandas", "Series", _measure_pandas_series),
    ("pandas", "Index", _measure_pandas_series),
    ("numpy", "ndarray", _read_nbytes),
    ("xarray", "Dataset", _read_nbytes),
    ("xarray", "DataArray", _read_nbytes),
    ("dask.array", "Array", _read_nbytes),
    ("dask.dataframe", "DataFrame", _measure_dask_frame),
    ("dask.dataframe", "Series", _measure_dask_frame),
    ("dask.bag", "Bag", _measure_dask_bag),
)
