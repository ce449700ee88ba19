"""Save objects: ``hyperplane.save``.

File formats of tables are classes in ``hyperplane/formats``, those of other objects are in
``object_kinds`` and ``object_encoding``; CONTRIBUTING.md, *Add a file format*, has the steps.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any, Literal, overload

from dask.delayed import Delayed

from hyperplane.core.errors import Fault, check
from hyperplane.core.optional import need
from hyperplane.core.public_calls import check_call, warn_caller
from hyperplane.formats.parquet.pandas_index import check_index
from hyperplane.objectstore.path_templates import fill_template
from hyperplane.objectstore.save_target import (
    check_options,
    check_partition_options,
    has_field,
    resolve_target,
)
from hyperplane.storage.arrays import save_array
from hyperplane.storage.file_tasks import delay_file
from hyperplane.storage.local_files import save_path
from hyperplane.storage.output_reports import report_output
from hyperplane.storage.part_saving import save_parts
from hyperplane.storage.part_tasks import delay_parts
from hyperplane.storage.request import Mode, SaveRequest, is_shard, parse_request
from hyperplane.storage.result import SaveResult
from hyperplane.storage.shard_saving import save_shard
from hyperplane.storage.single_file import save_file


@overload
def save(
    obj: Any,
    url: str | PathLike[str],
    *,
    format: str | None = ...,
    mode: Mode = ...,
    shard: tuple[int, int] | None = ...,
    run: str | None = ...,
    compute: Literal[True] = ...,
    storage_options: Mapping[str, Any] | None = ...,
    **options: Any,
) -> SaveResult: ...
@overload
def save(
    obj: Any,
    url: str | PathLike[str],
    *,
    format: str | None = ...,
    mode: Mode = ...,
    shard: tuple[int, int] | None = ...,
    run: str | None = ...,
    compute: bool,
    storage_options: Mapping[str, Any] | None = ...,
    **options: Any,
) -> SaveResult | Delayed: ...
@check_call(outcome="nothing was saved")
def save(
    obj: Any,
    url: str | PathLike[str],
    *,
    format: str | None = None,  # noqa: A002
    mode: Mode = "error",
    shard: tuple[int, int] | None = None,
    run: str | None = None,
    compute: bool = True,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> SaveResult | Delayed:
    """Save an object atomically: readers see either all of it or the previous version.

    If the same content is already saved, byte for byte, nothing is written, so that a repeated
    job changes nothing.

    Parameters
    ----------
    obj : object
        A Dask dataframe or bag is saved as a folder with a file for each partition, a Dask array
        or an xarray object as a Zarr store. A pandas, Polars or Arrow table, a NumPy array, a
        dict or list, text, bytes, a matplotlib figure or a fitted scikit-learn model is saved as
        one file. For a ``pathlib.Path``, the local file or folder of that name is copied. Columns
        of several levels, such as ``("v", "sum")``, get one name, ``v_sum``, with a warning.
    url : str or path
        A path, or any URL of fsspec: ``gs://``, ``s3://``, ``az://``, ``memory://``.
    format : str, optional
        Name of the format, such as ``"parquet"`` or ``"json"``; by the suffix of the URL if
        omitted. For an unknown name the error lists the formats for the type of ``obj``.
    mode : {"error", "overwrite", "append", "skip"}
        Action if something else is saved there: raise an error, replace it, add parts to it
        (folders only), or keep it and write nothing.
    shard : (int, int), optional
        Index of this shard, from 0, and number of shards, as :func:`hyperplane.shard` returns
        them. Each shard commits once; readers see the output when all shards are saved.
        With ``{}`` or ``{idx}`` in ``url``, as in ``output_{}.csv``, each shard saves to a
        separate file instead.
    run : str, optional
        Name of the run, the same for all its shards. It is required for shards with
        ``mode="overwrite"``, so that no output mixes shards of two runs. With ``mode="append"`` a
        repeated run appends its rows only once.
    compute : bool
        Whether the object is saved now. With False nothing is written until the result is
        computed; errors that are known before are raised by this call. Not for shards and paths.
    storage_options : mapping, optional
        Options of the file system.
    **options
        More options of the file system, such as ``project=`` and ``token=`` for Google Cloud
        Storage.

    Returns
    -------
    SaveResult or dask.delayed.Delayed
        Number of files, rows, bytes, and seconds; with ``compute=False`` a Delayed object whose
        value this is. :func:`hyperplane.forecast` forecasts it and writes nothing to ``url``.

    Raises
    ------
    RequestError
        With every fault of the call.
    OutputExists
        If something else is saved there and ``mode`` is ``"error"``.
    OutputConflict
        If another process has saved there meanwhile, whose version remains; if the same shard or
        run has already saved other rows; or if rows to append have no common type with the saved
        ones.
    StorageError
        If the store refuses a request, or does not list all written files.

    Examples
    --------
    >>> import pandas as pd, hyperplane
    >>> flights = pd.DataFrame({"carrier": ["UA", "AA"], "delay": [12, 30]})
    >>> result = hyperplane.save(flights, "memory://docs/flights.parquet")
    >>> result.files, result.rows
    (1, 2)
    >>> hyperplane.save(flights, "memory://docs/flights.parquet").changed
    False
    >>> later = hyperplane.save(flights, "memory://docs/later.parquet", compute=False)
    >>> later.compute().rows
    2
    """
    began = time.monotonic()
    if is_shard(shard) and has_field(str(url)):
        url, template_faults = fill_template(str(url), *shard)
        faults = [replace(fault, where="url") for fault in template_faults]
        if run is not None:
            allowed = "None if url is a template, as each shard then saves to a separate file"
            faults.append(Fault("run", repr(run)[:80], allowed))
        check(faults)
        shard = None  # each shard saves to a separate URL
    check_partition_options(options)
    check_options(url, options, save)
    check_index(obj, "obj")
    obj = flatten_columns(obj)
    target = resolve_target(url, storage_options, options)
    request = parse_request(obj, target, format, mode, shard, run, compute)
    if not compute:
        return _delay_save(obj, request)
    if request.kind == "array":
        result = save_array(obj, request)
    elif request.kind == "path":
        result = save_path(obj, request)
    elif request.shard is not None:
        result = save_shard(obj, request)
    elif request.in_parts:
        result = save_parts(obj, request)
    else:
        result = save_file(obj, request)
    is_folder = request.kind == "path" and obj.expanduser().is_dir()
    report_output(request, result, folder=is_folder or request.in_folder)
    return replace(result, seconds=time.monotonic() - began)


def _delay_save(obj: Any, request: SaveRequest) -> Delayed:
    """Return the save as a Delayed object."""
    if request.kind == "array":
        need("zarr", "array")
        from hyperplane.storage.array_tasks import delay_array

        return delay_array(obj, request)
    return delay_parts(obj, request) if request.in_parts else delay_file(obj, request)


def flatten_columns(obj: Any) -> Any:
    """Return a dataframe with its column levels joined by ``_``; any other object unchanged.

    Empty levels are left out. Only Parquet could store several levels, and Dask, Polars, and
    Arrow would read other names from it.

    Examples
    --------
    >>> import warnings
    >>> import pandas as pd
    >>> columns = pd.MultiIndex.from_tuples([("t", ""), ("v", "sum"), ("v", "mean")])
    >>> with warnings.catch_warnings(action="ignore"):
    ...     list(flatten_columns(pd.DataFrame([[1, 2, 3]], columns=columns)).columns)
    ['t', 'v_sum', 'v_mean']
    """
    columns: Any = getattr(obj, "columns", None)
    levels = getattr(columns, "nlevels", 1)
    if not isinstance(levels, int) or levels < 2:  # a Delayed has any attribute
        return obj
    names = [_flatten_name(name) for name in columns]
    changed = [(old, new) for old, new in zip(columns, names, strict=True) if new not in old]
    if changed:
        examples = ", ".join(f"{old!r} as {new!r}" for old, new in changed[:2])
        more = f" and {len(changed) - 2} more" if len(changed) > 2 else ""
        warn_caller(f"columns of several levels are saved with joined names: {examples}{more}")
    result = obj.copy(deep=False) if type(obj).__module__.startswith("pandas") else obj.copy()
    result.columns = names
    return result


def _flatten_name(name: Sequence[Hashable]) -> str:
    """Return the levels of a column's name as one string."""
    return "_".join(text for text in map(str, name) if text)
