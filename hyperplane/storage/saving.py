"""``hyperplane.save``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from typing import Any

from hyperplane.errors import check
from hyperplane.parquet_index import check_index
from hyperplane.public_calls import check_call
from hyperplane.storage.arrays import save_array
from hyperplane.storage.column_levels import flatten_columns
from hyperplane.storage.local_files import save_path
from hyperplane.storage.part_saving import save_parts
from hyperplane.storage.request import Mode, is_shard, parse_request
from hyperplane.storage.result import SaveResult
from hyperplane.storage.shard_saving import save_shard
from hyperplane.storage.single_file import save_file
from hyperplane.storage.target import (
    check_options,
    check_partition_options,
    has_field,
    resolve_target,
)
from hyperplane.stores.templates import fill_template


@check_call(outcome="nothing was saved")
def save(
    obj: Any,
    url: str | PathLike[str],
    *,
    format: str | None = None,  # noqa: A002
    mode: Mode = "error",
    shard: tuple[int, int] | None = None,
    run: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> SaveResult:
    """Save an object so that whoever looks sees all of it, or what was there before.

    Nothing is written when the same is there already, byte for byte: to save twice is to save
    once, and a repeated job changes nothing.

    Parameters
    ----------
    obj : object
        A Dask dataframe or bag becomes a folder with a file for each partition, a Dask array or
        an xarray object a Zarr store; a pandas, Polars or Arrow table, a NumPy array, a dict or
        list, text, bytes, a matplotlib figure or a fitted scikit-learn model becomes one file. A
        ``pathlib.Path`` is the file or folder of this machine of that name. Columns of several
        levels, such as ``("v", "sum")``, get one name, ``v_sum``, with a warning.
    url : str or path
        A path, or any URL of fsspec: ``gs://``, ``s3://``, ``az://``, ``memory://``.
    format : str, optional
        ``"parquet"``, ``"csv"``, ``"tsv"``, ``"jsonl"``, ``"avro"``, ``"json"``, ``"npy"``,
        ``"text"``, ``"skops"``, ``"joblib"``; by the end of the name when not given.
    mode : {"error", "overwrite", "append", "skip"}
        When there is something else: raise, replace it, add parts to it (folders only), or keep
        it and write nothing.
    shard : (int, int), optional
        Which shard ``obj`` is, and of how many, as :func:`hyperplane.shard` says. Each shard
        commits for itself, once; others see the whole when all are there. With ``{}`` or
        ``{idx}`` in ``url``, as in ``output_{}.csv``, each shard saves to its own name instead.
    run : str, optional
        A name of the run. All shards of one run share it, and need it when they replace those of
        another with ``mode="overwrite"``: so that no whole is ever of two runs. With
        ``mode="append"`` a run that is repeated appends its rows once.
    storage_options : mapping, optional
        For the file system.
    **options
        More of them, as ``project=`` and ``token=`` for Google Cloud Storage.

    Returns
    -------
    SaveResult
        Files, rows, bytes and seconds.

    Raises
    ------
    RequestError
        With all that is wrong with the call.
    OutputExists
        When there is something else and ``mode`` is ``"error"``.
    OutputConflict
        When somebody else has saved there meanwhile; what they saved stands.
    StorageError
        When the store refuses, or lists something else than what was written.

    Examples
    --------
    >>> import pandas as pd, hyperplane
    >>> flights = pd.DataFrame({"carrier": ["UA", "AA"], "delay": [12, 30]})
    >>> result = hyperplane.save(flights, "memory://docs/flights.parquet")
    >>> result.files, result.rows
    (1, 2)
    >>> hyperplane.save(flights, "memory://docs/flights.parquet").changed
    False
    """
    began = time.monotonic()
    if is_shard(shard) and run is None and has_field(str(url)):
        url, faults = fill_template(str(url), *shard)
        check(replace(fault, where="url") for fault in faults)
        shard = None  # each has a place of its own
    check_partition_options(options)
    check_options(url, options, save)
    check_index(obj, "obj")
    obj = flatten_columns(obj)
    target = resolve_target(url, storage_options, options)
    request = parse_request(obj, target, format, mode, shard, run)
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
    return replace(result, seconds=time.monotonic() - began)
