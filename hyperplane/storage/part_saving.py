"""Save a collection as a folder of parts: a task writes each part, one commit publishes all."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from dask.tokenize import tokenize

from hyperplane.core.errors import (
    DataError,
    OutputExists,
    WrongType,
)
from hyperplane.core.progress import compute_with_progress
from hyperplane.formats.base import EncodedFile
from hyperplane.formats.registry import load as load_format
from hyperplane.objectstore.locations import Store
from hyperplane.objectstore.store_files import StoreFiles
from hyperplane.storage.commit_protocol import commit_protocol_for
from hyperplane.storage.manifest import Manifest, ManifestEntry
from hyperplane.storage.object_checks import check_rows_are_stored
from hyperplane.storage.object_kinds import part_suffix
from hyperplane.storage.part_commits import commit_parts, make_result, read_published_parts
from hyperplane.storage.part_schemas import serialize_schema
from hyperplane.storage.replaced_files import check_not_source
from hyperplane.storage.request import SaveRequest
from hyperplane.storage.result import SaveResult
from hyperplane.storage.single_file import exists_error
from hyperplane.storage.staging_folders import staging_folder


@dataclass(frozen=True)
class PartWriteOptions:
    """Options of the tasks that write parts.

    Parameters
    ----------
    store : Store
        Store of the output.
    folder : str
        Path of the staging folder.
    format : str
        Format of the parts.
    protected_url : str
        If not empty, a part that differs from the existing one is an error, which names this URL.
    shard : int or None
        Index of the writing shard.
    typed : bool
        Whether the partitions are those of ``list_typed_partitions``.
    """

    store: Store
    folder: str
    format: str
    protected_url: str = ""
    shard: int | None = None
    typed: bool = False


def save_parts(obj: Any, request: SaveRequest) -> SaveResult:
    """Save a collection as a folder of parts."""
    commits = commit_protocol_for(request.target)
    if request.mode == "overwrite":
        check_not_source(request.target.url, obj)
    published = read_published_parts(request, commits, find_columns(obj))
    if published.kept and published.base.manifest is not None:
        return make_result(request, published.base.manifest, written=0)
    with staging_folder(commits) as staged:
        manifest = write_parts(
            obj,
            request,
            staged,
            existing=published.existing,
            preceding=published.preceding,
            protected=published.protected,
        )
        return commit_parts(request, commits, published, staged, manifest)


def find_columns(obj: Any) -> list[str] | None:
    """Return the names of the columns of a dataframe; None for a bag."""
    return list(obj.columns) if hasattr(obj, "columns") else None


def write_parts(
    obj: Any,
    request: SaveRequest,
    folder: str,
    *,
    existing: Sequence[ManifestEntry],
    preceding: Sequence[ManifestEntry] = (),
    protected: bool = False,
) -> Manifest:
    """Write the parts of a collection to a staging folder, and return their manifest.

    Parameters
    ----------
    folder : str
        Staging folder.
    existing : sequence of ManifestEntry
        Existing parts at the same positions; equal ones are not written again.
    preceding : sequence of ManifestEntry
        Existing parts to which the new ones are appended.
    protected : bool
        Whether a part that differs from the existing one is an error.
    """
    partitions, typed = list_partitions(obj, request.format)
    if protected and len(partitions) != len(existing):
        raise exists_error(request)
    write_options = make_write_options(request, folder, protected=protected, typed=typed)
    task_arguments = [
        [
            partition,
            number + len(preceding),
            write_options,
            existing[number] if number < len(existing) else None,
        ]
        for number, partition in enumerate(partitions)
    ]
    if hasattr(obj, "to_delayed"):
        # Imports dask.dataframe and Polars, which take a second, so only for collections.
        from hyperplane.collections.frames import task_graph

        tasks = task_graph.make_tasks(
            "save", tokenize(request.target.path, folder), write_part, task_arguments
        )
        parts = compute_with_progress(task_graph.fuse_inputs(tasks), f"saving {request.target.url}")
    else:
        parts = [write_part(*arguments) for arguments in task_arguments]
    return make_manifest(request, (*preceding, *parts))


def make_manifest(request: SaveRequest, parts: tuple[ManifestEntry, ...]) -> Manifest:
    """Return the manifest of the parts of a collection."""
    kind = "bag" if request.kind == "bag" else "dataframe"
    return Manifest(request.format, kind, parts)


def make_write_options(
    request: SaveRequest, folder: str, *, protected: bool, typed: bool
) -> PartWriteOptions:
    """Return the options of the tasks that write parts to a staging folder."""
    return PartWriteOptions(
        request.target.store,
        folder,
        request.format,
        request.target.url if protected else "",
        request.shard[0] if request.shard else None,
        typed,
    )


def list_partitions(obj: Any, format_name: str) -> tuple[list[Any], bool]:
    """Return the partitions of a collection, and whether they are typed ones."""
    typed_partitions = _list_typed_partitions(obj, format_name)
    if typed_partitions is not None:
        return typed_partitions, True
    return list(obj.to_delayed()) if hasattr(obj, "to_delayed") else [obj], False


def _list_typed_partitions(obj: Any, format_name: str) -> list[Any] | None:
    """Return the partitions of a dataframe as Polars tables with pandas types.

    None if the format does not encode them, or if Dask computes the partitions.
    """
    if not hasattr(obj, "to_delayed") or not hasattr(
        load_format(format_name), "encode_typed_table"
    ):
        return None
    # Slow import, only for collections.
    from hyperplane.collections.frames.typed_partitions import list_typed_partitions

    return list_typed_partitions(obj)


def write_part(
    partition: Any, number: int, write_options: PartWriteOptions, existing: ManifestEntry | None
) -> ManifestEntry:
    """Write one part in a task, unless an equal one exists."""
    if write_options.typed:
        from hyperplane.collections.frames.typed_partitions import read_typed_partition

        partition = read_typed_partition(partition)  # errors name the file
    with name_part_in_errors(number):
        encoded, schema = _encode_part(partition, write_options)
    sha = hashlib.sha256(encoded.data).hexdigest()
    prefix = "part-" if write_options.shard is None else f"part-{write_options.shard:05d}-"
    # A task may run twice; only the part named by its result is published.
    name = f"{prefix}{number:05d}-{secrets.token_hex(4)}{part_suffix(write_options.format)}"
    part = ManifestEntry(name, len(encoded.data), sha, encoded.rows, write_options.shard, schema)
    if existing is not None and existing.content == part.content:
        return replace(existing, shard=write_options.shard)
    if write_options.protected_url:
        raise OutputExists(
            write_options.protected_url,
            f"part {number} differs from the saved one; pass mode='overwrite' to replace what is "
            "saved, or mode='skip' to keep it",
        )
    StoreFiles(write_options.store).put(f"{write_options.folder}/{name}", encoded.data)
    return part


def _encode_part(partition: Any, write_options: PartWriteOptions) -> tuple[EncodedFile, str]:
    """Return the file of a dataframe or bag partition, and its schema; none for a bag."""
    file_format: Any = load_format(write_options.format)
    if write_options.typed:
        encoded = file_format.encode_typed_table(partition)
        return encoded, serialize_schema(encoded.table, encoded.schema)
    if hasattr(partition, "columns"):
        encoded = file_format.encode_table(partition)
        check_rows_are_stored(partition, encoded.table)
        return encoded, serialize_schema(encoded.table)
    return file_format.encode_records(list(partition)), ""


@contextmanager
def name_part_in_errors(number: int) -> Iterator[None]:
    """Prefix data errors raised in this block with the number of the part.

    Examples
    --------
    >>> from hyperplane.formats.jsonl.write import encode_json_records
    >>> with name_part_in_errors(7):
    ...     encode_json_records([{1, 2}])
    Traceback (most recent call last):
    hyperplane.errors.WrongType: part 7, item 0 (counted from 0): item is a set, {1, 2}; ...
    """
    try:
        yield
    except (WrongType, DataError) as error:
        error.args = (f"part {number}, {error}",)
        raise
