"""Save a collection as a folder of parts: a task writes each part, one commit publishes all."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from dask.tokenize import tokenize

from hyperplane.core.errors import (
    DataError,
    Fault,
    OutputConflict,
    OutputExists,
    StorageError,
    WrongType,
    check,
)
from hyperplane.core.progress import compute_with_progress
from hyperplane.formats.base import EncodedFile
from hyperplane.formats.registry import load as load_format
from hyperplane.objectstore.locations import Store
from hyperplane.objectstore.retrying import is_full
from hyperplane.objectstore.store_files import StoreFiles
from hyperplane.storage.commit_protocol import CommitProtocol, commit_protocol_for
from hyperplane.storage.manifest import Manifest, ManifestEntry
from hyperplane.storage.object_checks import check_rows_are_stored
from hyperplane.storage.object_kinds import part_suffix
from hyperplane.storage.part_schemas import serialize_schema
from hyperplane.storage.published_state import FOREIGN
from hyperplane.storage.replaced_files import check_not_source, check_replaceable
from hyperplane.storage.request import SaveRequest
from hyperplane.storage.result import SaveResult
from hyperplane.storage.save_attempts import running_attempt
from hyperplane.storage.single_file import exists_error

#: Seconds until a listing must show written files; some stores are eventually consistent.
LISTING_TIMEOUT = 60.0
#: Key of the manifest details that map each run to the parts it appended.
_APPENDED_KEY = "appended"


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
    base = commits.read_state()
    check_replaceable(request.target.url, base.manifest)
    if request.mode == "overwrite":
        check_not_source(request.target.url, obj)
    commits.finish_interrupted(base)
    if base.manifest is not None and request.mode == "skip":
        return _save_result(request, base.manifest, written=0)
    old = base.manifest.parts if base.manifest else ()
    appends = request.mode == "append"
    added = _find_appended_parts(request, base.manifest) if appends else ()
    if appends and base.manifest is not None and base.manifest.kind != "bag":
        # Imports Polars, which takes time, so only where it is needed.
        from hyperplane.storage.append_checks import check_appended_columns

        check_appended_columns(obj, commits, base.manifest)
    with staging_folder(commits) as staged:
        manifest = write_parts(
            obj,
            request,
            staged,
            existing=added if appends else old,
            preceding=old if appends else (),
            protected=request.mode == "error" and base.manifest is not None,
        )
        if base.manifest is not None and manifest.parts == (*old, *added):
            return _save_result(request, base.manifest, written=0)
        if appends:
            manifest = _record_append(manifest, request, base.manifest)
        existing_names = {part.name for part in old}
        new = [part for part in manifest.parts if part.name not in existing_names]
        verify_listing(commits.store_files, staged, new)
        if appends and base.manifest is not None and manifest.kind != "bag":
            from hyperplane.storage.append_checks import check_appended_types

            check_appended_types(commits, base.manifest, staged, new)
        published = commits.publish(manifest, staged, base)
        return replace(_save_result(request, published, written=len(new)), published=True)


def _find_appended_parts(request: SaveRequest, saved: Manifest | None) -> tuple[ManifestEntry, ...]:
    """Return the parts that an earlier save of the same run appended.

    Raises
    ------
    RequestError
        If parts of this kind cannot be appended to the saved ones.
    """
    if saved is None:
        return ()
    check(_incompatibility_faults(request, saved))
    names = _appended_runs(saved).get(request.run, [])
    return tuple(part for part in saved.parts if part.name in names)


def _record_append(manifest: Manifest, request: SaveRequest, saved: Manifest | None) -> Manifest:
    """Return the manifest with the names of the appended parts in its details, by run.

    Raises
    ------
    OutputConflict
        If an earlier save of the same run appended other rows.
    """
    existing = {part.name for part in saved.parts} if saved else set()
    runs = _appended_runs(saved) if saved else {}
    if request.run in runs:
        raise OutputConflict(
            request.target.url,
            f"run {request.run!r} has already appended other rows, which remain; to append these "
            "rows as well, pass another run=",
        )
    if request.run:
        runs[request.run] = [part.name for part in manifest.parts if part.name not in existing]
    return replace(manifest, details={**manifest.details, _APPENDED_KEY: runs})


def _appended_runs(manifest: Manifest) -> dict[str, list[str]]:
    return dict(manifest.details.get(_APPENDED_KEY, {}))


def _incompatibility_faults(request: SaveRequest, saved: Manifest) -> list[Fault]:
    """Return a fault if the request's kind or format differs from that of the saved parts."""
    suffixes = {PurePosixPath(part.name).suffix for part in saved.parts}
    same_format = suffixes == {part_suffix(request.format)}
    if same_format and saved.kind in (FOREIGN, "bag" if request.kind == "bag" else "dataframe"):
        return []
    shown = f"'append' of {request.kind} as {request.format}"
    allowed = f"the kind and format of the saved parts: {saved.kind} as {saved.format}"
    return [Fault("mode", shown, allowed, "save to another URL, or pass mode='overwrite'")]


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
    typed_partitions = _list_typed_partitions(obj, request.format)
    if typed_partitions is not None:
        partitions = typed_partitions
    else:
        partitions = list(obj.to_delayed()) if hasattr(obj, "to_delayed") else [obj]
    if protected and len(partitions) != len(existing):
        raise exists_error(request)
    write_options = PartWriteOptions(
        request.target.store,
        folder,
        request.format,
        request.target.url if protected else "",
        request.shard[0] if request.shard else None,
        typed_partitions is not None,
    )
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
    kind = "bag" if request.kind == "bag" else "dataframe"
    return Manifest(request.format, kind, (*preceding, *parts))


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


@contextmanager
def staging_folder(commits: CommitProtocol) -> Iterator[str]:
    """Yield the path of a staging folder for one attempt; remove it after the block."""
    with running_attempt() as name:
        folder = f"{commits.target.metadata_folder}/{name}"
        check_writable(commits, folder)
        try:
            yield f"{folder}/data"
        except StorageError as error:
            if not is_full(error):
                raise
            url = commits.target.url
            problem = str(error).removeprefix(f"{error.url}: ")
            # Tasks on workers may go on to write after the folder has been removed.
            advice = f"then hyperplane storage clean {url} removes what the save has left"
            raise StorageError(error.url, f"{problem}; {advice}") from error
        finally:
            # Leftovers are harmless, and their error would hide that of the block.
            with suppress(StorageError):
                commits.discard_attempt(folder)


def check_writable(commits: CommitProtocol, attempt: str) -> None:
    """Write and remove an empty file, to report missing permissions before any computation."""
    probe = f"{attempt}/probe"
    commits.store_files.put(probe, b"")
    commits.store_files.remove([probe])


def verify_listing(store_files: StoreFiles, folder: str, parts: Sequence[ManifestEntry]) -> None:
    """Check that the store lists the written parts; wait for eventually consistent stores.

    Raises
    ------
    StorageError
        If a part is missing or of another size.
    """
    deadline = time.monotonic() + LISTING_TIMEOUT
    while True:
        listing = store_files.list_files(folder)
        missing = [part for part in parts if part.name not in listing]
        if not missing or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    incomplete = [part.name for part in missing]
    incomplete += [
        part.name
        for part in parts
        if part.name in listing and int(listing[part.name]["size"] or 0) != part.size
    ]
    if incomplete:
        examples = ", ".join(incomplete[:3]) + (", ..." if len(incomplete) > 3 else "")
        raise StorageError(
            folder
            if store_files.store.local
            else store_files.store.system.unstrip_protocol(folder),
            f"{len(incomplete)} of {len(parts)} parts are missing or incomplete in the store's "
            f"listing ({examples}); nothing was published, save again",
        )


def _save_result(request: SaveRequest, manifest: Manifest, *, written: int) -> SaveResult:
    return SaveResult(
        request.target.url, len(manifest.parts), manifest.rows, manifest.size, written
    )
