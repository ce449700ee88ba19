"""Plans that divide very many files among shards by bytes, stored so that all shards agree."""

from __future__ import annotations

import heapq
import io
import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from fsspec.utils import get_protocol
from pyarrow import parquet

from hyperplane.core.errors import Fault, RequestError, check
from hyperplane.core.public_calls import check_call
from hyperplane.core.units import is_iterable
from hyperplane.objectstore.file_sizes import iterate_file_sizes
from hyperplane.objectstore.reachability import monitor_request
from hyperplane.objectstore.redaction import redact_url
from hyperplane.objectstore.save_target import Target, resolve_target
from hyperplane.objectstore.store_files import StoreFiles
from hyperplane.shards.current_shard import resolve_shard

#: Maximum shards, that of the chunks of a step.
_MAX_SHARDS = 100_000
#: Key of the plan's description in the metadata of the Parquet file.
_KEY = b"hyperplane_shard_plan"
_VERSION = 1
#: Files of one chunk of the listing.
_CHUNK = 1 << 16
_SCHEMA = pa.schema([("path", pa.string()), ("size", pa.int64())])
_ADVICE = "use a new file for each run"


@check_call
@dataclass(frozen=True)
class ShardPlan:
    """Summary of a plan that :func:`hyperplane.plan_shards` wrote.

    Parameters
    ----------
    url : str
        The plan, without secrets.
    n : int
        Number of shards.
    files : int
        Number of files.
    size : int
        Bytes of all files.
    largest : int
        Bytes of the largest shard.
    """

    url: str
    n: int
    files: int
    size: int
    largest: int

    @property
    def imbalance(self) -> float:
        """Bytes of the largest shard, divided by the mean of all shards; 1.0 without any bytes."""
        return self.largest * self.n / self.size if self.size else 1.0


@check_call
def plan_shards(
    urls: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    n_machines: int,
    plan: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> ShardPlan:
    """Divide files among shards by bytes, and write which shard has which files.

    The largest files are assigned first, each to the shard that has the fewest bytes. A shard
    exceeds the mean by less than the last, smallest file that it got, so that with many files for
    each shard all have nearly the same bytes; only a file that is larger than the mean is a shard
    alone. :func:`hyperplane.planned_files` returns
    the files of a shard and reads only those. An existing plan is not changed, so that a job that
    is resumed has the shards with which it began.

    Parameters
    ----------
    urls : str, path, or list of these
        Files, globs, folders (all files in them), or URLs that fsspec opens. The plan names those
        of this machine by their absolute paths.
    n_machines : int
        Number of shards, from 1 to 100000.
    plan : str or path
        File or URL of the plan, a Parquet file.
    storage_options : dict, optional
        Options of the fsspec file system. Messages never show them.

    Returns
    -------
    ShardPlan
        Of the new plan, or of the existing one if it divides the same ``urls`` among as many
        shards.

    Raises
    ------
    RequestError
        With every fault, such as missing files, or a plan of other URLs.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name, size in {"a.csv": 5, "b.csv": 3, "c.csv": 2}.items():
    ...     _ = (folder / name).write_text("x" * size)
    >>> plan = plan_shards(folder, 2, folder / "_plan.parquet")
    >>> plan.files, plan.largest, plan.imbalance
    (3, 5, 1.0)
    >>> [Path(file).name for file in planned_files(folder / "_plan.parquet", 2, 1)]
    ['b.csv', 'c.csv']
    """
    count: Any = n_machines
    if (
        isinstance(count, bool)
        or not isinstance(count, (int, np.integer))
        or not (1 <= count <= _MAX_SHARDS)
    ):
        allowed = f"a whole number from 1 to {_MAX_SHARDS}"
        check([Fault("n_machines", repr(count)[:80], allowed)])
    target = resolve_target(plan, storage_options)
    store_files = StoreFiles(target.store)
    if not store_files.is_file(target.path):
        table, bytes_by_shard = _assign(_read_listing(urls, storage_options), int(count))
        with suppress(FileExistsError):  # another process may have written it first
            store_files.put_new(target.path, _serialize(table, bytes_by_shard, urls))
    description = store_files.call(target.path, lambda: _read_description(target))
    check(_find_differences(description, urls, int(count), target))
    sizes = description["bytes"]
    return ShardPlan(target.url, int(count), sum(description["files"]), sum(sizes), max(sizes))


@check_call
def planned_files(
    plan: str | os.PathLike[str],
    n_machines: int | None = None,
    idx: int | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> list[str]:
    """Return the files of a shard of a plan; all shards together have each file once.

    Only the part of the plan with these files is read.

    Parameters
    ----------
    plan : str or path
        File or URL that :func:`hyperplane.plan_shards` wrote.
    n_machines, idx : int, optional
        The number of shards, and the index of this one, from 0; those of :func:`shard` if
        omitted.
    storage_options : dict, optional
        Options of the fsspec file system. Messages never show them.

    Returns
    -------
    list of str
        Absolute paths or URLs, sorted by name; may be empty if there are fewer files than shards.

    Raises
    ------
    RequestError
        With every fault, such as a missing plan, or a plan for another number of shards.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "a.csv").write_text("x")
    1
    >>> plan = plan_shards(folder, 1, folder / "_plan.parquet")
    >>> [Path(file).name for file in planned_files(plan.url)]
    ['a.csv']
    """
    shard, faults = resolve_shard(idx, n_machines, ("idx", "n_machines"))
    check(faults)
    target = resolve_target(plan, storage_options)
    store_files = StoreFiles(target.store)
    if not store_files.is_file(target.path):
        advice = "write it with plan_shards before the shards start"
        check([Fault("plan", target.url, "an existing plan", advice)])

    def read() -> list[str]:
        description = _read_description(target)
        if description["n"] != shard.n:
            allowed = f"{description['n']}, the number of shards of the plan {target.url}"
            check([Fault("n_machines", str(shard.n), allowed)])
        files = description["files"]
        if not files[shard.idx]:
            return []
        group = sum(1 for number in files[: shard.idx] if number)  # shards without files have none
        try:
            with target.store.system.open(target.path, "rb") as raw:
                plan_file = parquet.ParquetFile(raw, page_checksum_verification=True)
                rows = plan_file.read_row_group(group, columns=["path"])
            paths: list[str] = rows.column("path").to_pylist()
            is_whole = _check_value(paths) == description["check"][shard.idx]
        except (pa.ArrowException, KeyError, IndexError, OSError, TypeError, ValueError) as error:
            _raise_if_of_store(error)
            raise _damaged(target) from error
        if not is_whole:
            raise _damaged(target)
        return paths

    return store_files.call(target.path, read)


def _read_listing(urls: Any, options: Mapping[str, Any] | None) -> pa.Table:
    """Return paths and sizes of files, each file once."""
    files = iterate_file_sizes(urls, options)
    tables = []
    while chunk := list(islice(files, _CHUNK)):
        paths, sizes = zip(*chunk, strict=True)
        tables.append(pa.table([pa.array(paths), pa.array(sizes)], schema=_SCHEMA))
    table = pa.concat_tables(tables)
    if isinstance(urls, (str, os.PathLike)) or len(urls) == 1:
        return table
    unique = table.group_by("path").aggregate([("size", "max")])
    return pa.table([unique.column("path"), unique.column("size_max")], schema=_SCHEMA)


def _assign(table: pa.Table, count: int) -> tuple[pa.Table, list[tuple[int, int]]]:
    """Sort files by shard and path; return them, and the number and bytes of each shard's files.

    Longest processing time first: the next largest file goes to the shard with the fewest bytes,
    and of those the one with the fewest files, so that empty files are spread, too.
    """
    order = pc.sort_indices(table, sort_keys=[("size", "descending"), ("path", "ascending")])
    sizes = table.column("size").take(order).to_numpy()
    heap = [(0, 0, shard) for shard in range(count)]
    owners = np.empty(len(sizes), np.int32)
    for number, size in enumerate(sizes.tolist()):
        load, files, shard = heap[0]
        owners[number] = shard
        heapq.heapreplace(heap, (load + size, files + 1, shard))
    totals = [(files, load) for load, files, shard in sorted(heap, key=lambda item: item[2])]
    shards = np.empty(len(sizes), np.int32)
    shards[order.to_numpy()] = owners
    table = table.append_column("shard", pa.array(shards))
    by_shard = pc.sort_indices(table, sort_keys=[("shard", "ascending"), ("path", "ascending")])
    return table.select(_SCHEMA.names).take(by_shard), totals


def _serialize(table: pa.Table, totals: Sequence[tuple[int, int]], urls: Any) -> bytes:
    """Return the plan as Parquet: a row group for each shard with files."""
    paths = table.column("path")
    ends = np.cumsum([files for files, _ in totals])
    check_values = [
        _check_value(paths.slice(end - files, files).to_pylist())
        for end, (files, _) in zip(ends.tolist(), totals, strict=True)
    ]
    description: dict[str, Any] = {
        "version": _VERSION,
        "n": len(totals),
        "urls": _format_urls(urls),
        "files": [files for files, _ in totals],
        "bytes": [size for _, size in totals],
        "check": check_values,
    }
    description["check_all"] = _check_value([json.dumps(description)])
    schema = _SCHEMA.with_metadata({_KEY: json.dumps(description).encode()})
    buffer = io.BytesIO()
    options: dict[str, Any] = {
        "compression": "zstd", "use_dictionary": False, "write_statistics": False,
        "write_page_checksum": True,
    }  # fmt: skip
    with parquet.ParquetWriter(buffer, schema, **options) as writer:
        first = 0
        for files, _ in totals:
            if files:
                part = table.slice(first, files).replace_schema_metadata(schema.metadata)
                writer.write_table(part, row_group_size=files)
                first += files
    return buffer.getvalue()


def _check_value(texts: Sequence[str]) -> int:
    """Return a number that differs if the texts, or their number, are damaged."""
    return zlib.crc32(json.dumps(texts).encode())


def _raise_if_of_store(error: Exception) -> None:
    """Raise an error of a file system again; those of Arrow for damaged content have no number."""
    if isinstance(error, OSError) and error.errno is not None:
        raise error


def _damaged(target: Target) -> RequestError:
    allowed = "a plan that is not damaged; write it again with plan_shards, to a new file name"
    return RequestError([Fault("plan", target.url, allowed)])


def _format_urls(urls: Any) -> list[str]:
    """Return paths of this machine in absolute form, and all else as given."""
    names = urls if is_iterable(urls) and not isinstance(urls, (str, os.PathLike)) else [urls]
    return [
        _make_absolute(os.fsdecode(name)) if isinstance(name, (str, os.PathLike)) else repr(name)
        for name in names
    ]


def _make_absolute(url: str) -> str:
    """Return the path of a file or glob of this machine; relative text may mean another one."""
    return str(fsspec.url_to_fs(url)[1]) if get_protocol(url) in ("file", "local") else url


def _resolve_links(urls: Sequence[str]) -> list[str]:
    """Return paths without links and ``..``, and other URLs, in one order for all orders."""
    return sorted(_resolve_link(url) if url.startswith("/") else url for url in urls)


def _resolve_link(path: str) -> str:
    try:
        return os.path.realpath(path)
    except ValueError:  # no valid name: with a null character or a surrogate
        return path


def _read_description(target: Target) -> dict[str, Any]:
    """Return the description of a plan; raise a RequestError for another file."""
    try:
        with (
            monitor_request(target.store, target.url),
            target.store.system.open(target.path, "rb") as raw,
        ):
            description = json.loads(parquet.read_schema(raw).metadata[_KEY])
        if description["version"] != _VERSION:
            raise ValueError("another version")
        if description.pop("check_all") != _check_value([json.dumps(description)]):
            raise ValueError("another content")
        if not len(description["files"]) == len(description["bytes"]) == description["n"]:
            raise ValueError("another number of shards")
    except (pa.ArrowException, AttributeError, KeyError, OSError, TypeError, ValueError) as error:
        _raise_if_of_store(error)
        allowed = "a plan written by plan_shards of this version, or a new file name"
        raise RequestError([Fault("plan", target.url, allowed, _ADVICE)]) from error
    return dict(description)


def _find_differences(
    description: Mapping[str, Any], urls: Any, count: int, target: Target
) -> Iterator[Fault]:
    """Yield a fault for each argument with another value than when the plan was written."""
    if description["n"] != count:
        allowed = f"{description['n']}, the number of shards of the existing plan {target.url}"
        yield Fault("n_machines", str(count), allowed, _ADVICE)
    if _resolve_links(description["urls"]) != _resolve_links(_format_urls(urls)):
        listed = ", ".join(map(redact_url, description["urls"]))[:200]
        allowed = f"the urls of the existing plan {target.url}, which are {listed}"
        yield Fault("urls", ", ".join(map(redact_url, _format_urls(urls)))[:200], allowed, _ADVICE)
