"""Tasks that save an array as a Zarr store; see :mod:`~hyperplane.storage.save_tasks`.

This module imports zarr, so other modules import it within functions, after
``need("zarr", "array")``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

from dask.delayed import Delayed

from hyperplane.storage import zarr_writing
from hyperplane.storage.arrays import (
    PublishedFiles,
    commit_files,
    compare_sizes,
    find_array_kind,
    find_new_files,
    make_manifest,
    make_result,
    make_writer,
    read_published_files,
)
from hyperplane.storage.commit_protocol import CommitProtocol, commit_protocol_for
from hyperplane.storage.published_state import FOREIGN, PublishedState
from hyperplane.storage.request import SaveRequest
from hyperplane.storage.result import SaveResult
from hyperplane.storage.save_tasks import (
    KeptOutput,
    SavePublisher,
    SaveStart,
    SaveStarter,
    WrittenFiles,
    delay,
    gather_entries,
    make_sample_store,
    move_strays,
    open_attempt,
    record_attempt,
)
from hyperplane.storage.single_file import exists_error
from hyperplane.storage.staging_folders import explain_full_store
from hyperplane.storage.zarr_writing import ChunkWriter


@dataclass(frozen=True)
class ArrayStart(SaveStart):
    """What a save of an array has found when it began.

    Parameters
    ----------
    published : PublishedFiles
        The published files.
    writer : ChunkWriter
        Writes files to the staging folder.
    """

    published: PublishedFiles
    writer: ChunkWriter


@dataclass(frozen=True)
class ArrayStarter(SaveStarter[ArrayStart]):
    """First task of a save of an array.

    Parameters
    ----------
    request : SaveRequest
        The save.
    documents : mapping of str to bytes
        Metadata by key.
    """

    request: SaveRequest
    documents: Mapping[str, bytes]

    def __call__(self) -> ArrayStart:
        """Return what is published, and the folder of a new attempt."""
        began, target = time.time(), self.request.target
        commits = commit_protocol_for(target)
        published = compare_sizes(read_published_files(self.request, commits), commits)
        attempt = ""
        if not published.kept:
            attempt = open_attempt(commits, writes=not published.protected)
        writer = make_writer(target, f"{attempt}/data", self.documents, published)
        return ArrayStart(target.url, published.base, attempt, began, published, writer)

    def make_sample(self, folder: str) -> ArrayStart:
        """See :class:`SaveStarter`."""
        store, attempt = make_sample_store(folder)
        base = PublishedState()
        writer = ChunkWriter(store, f"{attempt}/data", self.documents, {})
        url = self.request.target.url
        return ArrayStart(url, base, attempt, 0.0, PublishedFiles(base), writer)


@dataclass(frozen=True)
class ArrayPublisher(SavePublisher[ArrayStart]):
    """Last task of a save of an array, which also writes its metadata.

    Parameters
    ----------
    request : SaveRequest
        The save.
    kind : str
        Kind of the object.
    chunks : mapping of str to bytes
        Chunks of variables in memory.
    time_units : mapping of str to str
        Units of variables of times.
    """

    kind: str
    chunks: Mapping[str, bytes]
    time_units: Mapping[str, str]

    def publish(
        self, commits: CommitProtocol, written: Sequence[WrittenFiles], start: ArrayStart
    ) -> SaveResult:
        """See :class:`SavePublisher`."""
        published = start.published
        if published.kept and start.base.manifest is not None:
            return make_result(self.request, start.base.manifest)
        entries = gather_entries(commits, written, start)
        put, writer = commits.store_files.map_concurrently, start.writer
        entries += put(lambda item: writer.put(*item), list(self.chunks.items()))
        entries += put(lambda item: writer.put(*item), list(writer.documents.items()))
        manifest = make_manifest(entries, self.kind, self.time_units)
        new = find_new_files(manifest, published)
        manifest = record_attempt(manifest, start, len(new))
        move_strays(commits, written, start, new)
        return commit_files(self.request, commits, published, start.staged, manifest)


def delay_array(obj: Any, request: SaveRequest) -> Delayed:
    """Return the save of an array as a Zarr store, after the checks that need no values."""
    template, token = zarr_writing.build_template(obj), token_hex(16)
    published = _read_now(request)
    if published.kept:
        return delay("save-kept", token, KeptOutput(request))
    manifest = published.base.manifest
    if published.protected and manifest is not None and manifest.kind == FOREIGN:
        raise exists_error(request)
    make_writer(request.target, "", template.documents, published)  # checks the metadata
    start = delay("save-start", token, ArrayStarter(request, template.documents))
    tasks = zarr_writing.build_block_tasks(template, write_started_block, start, token)
    publisher = ArrayPublisher(
        request, find_array_kind(obj), dict(template.chunks), dict(template.time_units)
    )
    return delay("save-publish", token, publisher, tasks, start)


def _read_now(request: SaveRequest) -> PublishedFiles:
    """Return the published files when ``save`` is called; nothing is written."""
    # The state of an output that does not exist would restore an interrupted save.
    if request.target.store.local and not os.path.lexists(request.target.path):
        return PublishedFiles(PublishedState())
    return read_published_files(request, commit_protocol_for(request.target), complete=False)


def write_started_block(
    block: Any, path: str, region: tuple[slice, ...], start: ArrayStart
) -> WrittenFiles:
    """Write the chunks of one block in a task, unless equal ones exist."""
    if start.published.kept:
        return WrittenFiles((), "", start.base.version)
    with explain_full_store(start.url):
        entries = zarr_writing.write_block(block, path, region, start.writer)
    return WrittenFiles(tuple(entries), start.attempt, start.base.version)
