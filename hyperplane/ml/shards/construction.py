"""Shards from arrays of this process, and from pickles."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cloudpickle
from dask.delayed import Delayed

from hyperplane.core.active_cluster import count_threads, get_active_client
from hyperplane.core.argument_checks import find_count_faults
from hyperplane.core.errors import Fault, HyperplaneError, OutputExists, ReadError, check
from hyperplane.ml.shards import tasks
from hyperplane.ml.shards.nested_arrays import (
    count_rows,
    find_array_faults,
    slice_rows,
    split_bounds,
)
from hyperplane.objectstore.save_target import Target, location_faults, resolve_target
from hyperplane.objectstore.store_files import StoreFiles

#: Maximum number of shards; each is a task.
MAX_SHARDS = 1_000_000
#: Written last, with the number of shards; Spark's name of such a file.
_COMPLETE = "_SUCCESS"


def partition(data: Any, num_shards: int | None) -> list[Delayed]:
    """Split arrays, and send each shard to a worker."""
    array_faults = find_array_faults(data)
    count_faults = [] if num_shards is None else find_count_faults("num_shards", num_shards)
    faults = [*array_faults, *count_faults]
    count = None if count_faults else num_shards
    rows = 0 if array_faults else count_rows(data)
    if not faults and rows == 0:
        faults.append(Fault("data", "arrays without rows", "at least one row"))
    elif count is not None and not array_faults and rows < count:
        allowed = f"the {rows} rows of data are smaller than the total number of shards, {count}"
        faults.append(Fault("num_shards", "", allowed, f"use at most {rows}"))
    check(faults)
    bounds = split_bounds(rows, count or min(rows, count_threads()))
    client = get_active_client()
    if client is None:
        keys = [f"shard-{uuid.uuid4().hex}" for _ in bounds]
        return [
            Delayed(key, {key: slice_rows(data, *pair)})
            for key, pair in zip(keys, bounds, strict=True)
        ]
    workers = sorted(client.nthreads())
    parts = []
    for number, pair in enumerate(bounds):
        # One at a time, so that this process holds one serialized shard in addition to the data.
        worker = workers[number * len(workers) // len(bounds)]
        shard = [slice_rows(data, *pair)]
        parts.append(tasks.as_part(client.scatter(shard, workers=[worker], hash=False)[0]))
    return parts


def save_pickle(parts: Sequence[Delayed], path: Any, options: Mapping[str, Any] | None) -> None:
    """Let workers write a file for each shard, and then the number of shards."""
    target = resolve_target(path, options)
    check(location_faults(target))
    files = StoreFiles(target.store)
    is_other = target.store.local and not Path(target.path).is_dir() and Path(target.path).exists()
    if is_other or files.is_file(target.path) or files.list_files(target.path):
        raise OutputExists(target.url, "it exists and is not empty; choose another path")
    written = tasks.compute(
        [
            tasks.call(_write_shard, "save_pickle", part, target, number)
            for number, part in enumerate(parts)
        ]
    )
    files.put(f"{target.path}/{_COMPLETE}", str(len(written)).encode())


def load_pickle(path: Any, options: Mapping[str, Any] | None) -> list[Delayed]:
    """Return a lazy object for each file of a folder."""
    target = resolve_target(path, options)
    files = StoreFiles(target.store)
    count = files.get(f"{target.path}/{_COMPLETE}")
    if count is None or not count.isdigit() or not 0 < int(count) <= MAX_SHARDS:
        exists = bool(files.list_files(target.path))
        reason = "it has no file _SUCCESS" if exists else "it does not exist"
        if count is not None:
            reason = "its file _SUCCESS has no valid number of shards"
        allowed = f"a folder that save_pickle has completely written; {reason}"
        check([Fault("path", repr(target.url), allowed)])
    return [
        tasks.call(_read_shard, "load_pickle", target, number) for number in range(int(count or 0))
    ]


def _name_file(target: Target, number: int) -> str:
    return f"{target.path}/part-{number:05}.pickle"


def _write_shard(shard: Any, target: Target, number: int) -> int:
    try:
        data = cloudpickle.dumps(shard)
    except Exception as error:
        which = f"save_pickle: shard {number}, of type {type(shard).__name__}"
        reason = " ".join(str(error).split())[:300]
        raise HyperplaneError(f"{which}, cannot be pickled: {reason}") from error
    StoreFiles(target.store).put(_name_file(target, number), data)
    return len(data)


def _read_shard(target: Target, number: int) -> Any:
    data = StoreFiles(target.store).get(_name_file(target, number))
    if data is None:
        raise ReadError(f"{target.url}/part-{number:05}.pickle", "the file does not exist")
    try:
        return pickle.loads(data)  # noqa: S301 - files that the user trusts, as documented
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise ReadError(f"{target.url}/part-{number:05}.pickle", reason) from error
