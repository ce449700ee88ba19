"""Tasks that save a collection as a folder of parts; see :mod:`~hyperplane.storage.save_tasks`."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import Any

from dask.delayed import Delayed

from hyperplane.storage.commit_protocol import CommitProtocol, commit_protocol_for
from hyperplane.storage.part_commits import (
    PublishedParts,
    commit_parts,
    find_new_parts,
    make_result,
    read_published_parts,
)
from hyperplane.storage.part_saving import (
    PartWriteOptions,
    find_columns,
    list_partitions,
    make_manifest,
    make_write_options,
    write_part,
)
from hyperplane.storage.published_state import FOREIGN, PublishedState
from hyperplane.storage.replaced_files import check_not_source
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


@dataclass(frozen=True)
class PartStart(SaveStart):
    """What a save of parts has found when it began.

    Parameters
    ----------
    published : PublishedParts
        The published parts.
    options : PartWriteOptions
        Options of the tasks that write parts.
    """

    published: PublishedParts
    options: PartWriteOptions


@dataclass(frozen=True)
class PartStarter(SaveStarter[PartStart]):
    """First task of a save of parts.

    Parameters
    ----------
    request : SaveRequest
        The save.
    count : int
        Number of partitions.
    columns : tuple of str or None
        Columns of a dataframe; None for a bag.
    typed : bool
        Whether the partitions are those of ``list_typed_partitions``.
    """

    request: SaveRequest
    count: int
    columns: tuple[str, ...] | None
    typed: bool

    def __call__(self) -> PartStart:
        """Return what is published, and the folder of a new attempt."""
        began = time.time()
        commits = commit_protocol_for(self.request.target)
        published = read_published_parts(self.request, commits, self.columns)
        attempt = ""
        if not published.kept:
            check_part_count(self.request, published, self.count)
            attempt = open_attempt(commits, writes=not published.protected)
        url = self.request.target.url
        options = make_write_options(
            self.request, f"{attempt}/data", protected=published.protected, typed=self.typed
        )
        return PartStart(url, published.base, attempt, began, published, options)

    def make_sample(self, folder: str) -> PartStart:
        """See :class:`SaveStarter`."""
        store, attempt = make_sample_store(folder)
        options = make_write_options(self.request, attempt, protected=False, typed=self.typed)
        options = replace(options, store=store)
        base = PublishedState()
        return PartStart(self.request.target.url, base, attempt, 0.0, PublishedParts(base), options)


@dataclass(frozen=True)
class PartPublisher(SavePublisher[PartStart]):
    """Last task of a save of parts."""

    def publish(
        self, commits: CommitProtocol, written: Sequence[WrittenFiles], start: PartStart
    ) -> SaveResult:
        """See :class:`SavePublisher`."""
        published = start.published
        if published.kept and start.base.manifest is not None:
            return make_result(self.request, start.base.manifest, written=0)
        entries = gather_entries(commits, written, start)
        manifest = make_manifest(self.request, (*published.preceding, *entries))
        new = find_new_parts(manifest, published)
        manifest = record_attempt(manifest, start, len(new))
        move_strays(commits, written, start, new)
        return commit_parts(self.request, commits, published, start.staged, manifest)


def delay_parts(obj: Any, request: SaveRequest) -> Delayed:
    """Return the save of a collection as a folder of parts, after the checks that need no rows."""
    if request.mode == "overwrite":
        check_not_source(request.target.url, obj)
    names, token = find_columns(obj), token_hex(16)
    columns = None if names is None else tuple(names)
    partitions, typed = list_partitions(obj, request.format)
    published = _read_now(request, columns)
    if published.kept:
        return delay("save-kept", token, KeptOutput(request))
    check_part_count(request, published, len(partitions))
    # Imports dask.dataframe and Polars, which take a second.
    from hyperplane.collections.frames import task_graph

    start = delay("save-start", token, PartStarter(request, len(partitions), columns, typed))
    arguments = [[partition, number, start] for number, partition in enumerate(partitions)]
    tasks = task_graph.make_tasks("save", token, write_started_part, arguments)
    fused = task_graph.fuse_inputs(tasks, shared=(start.key,))
    return delay("save-publish", token, PartPublisher(request), fused, start)


def _read_now(request: SaveRequest, columns: tuple[str, ...] | None) -> PublishedParts:
    """Return the published parts when ``save`` is called; nothing is written."""
    # The state of an output that does not exist would restore an interrupted save.
    if request.target.store.local and not os.path.lexists(request.target.path):
        return PublishedParts(PublishedState())
    commits = commit_protocol_for(request.target)
    return read_published_parts(request, commits, columns, complete=False)


def check_part_count(request: SaveRequest, published: PublishedParts, count: int) -> None:
    """Raise OutputExists if as many parts cannot all be equal to protected ones."""
    manifest = published.base.manifest
    if not published.protected or manifest is None:
        return
    if count != len(published.existing) or manifest.kind == FOREIGN:
        raise exists_error(request)


def write_started_part(partition: Any, number: int, start: PartStart) -> WrittenFiles:
    """Write one part in a task, unless an equal one exists."""
    published = start.published
    if published.kept:
        return WrittenFiles((), "", start.base.version)
    existing = published.existing[number] if number < len(published.existing) else None
    with explain_full_store(start.url):
        entry = write_part(partition, number + len(published.preceding), start.options, existing)
    return WrittenFiles((entry,), start.attempt, start.base.version)
