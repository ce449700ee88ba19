"""Tasks of a save that is computed later: ``save(..., compute=False)``.

The first task reads what is published and makes a folder for the attempt, one task writes each
file, and the last one publishes all files. No process has the attempt from begin to end, so that
tasks can run on several machines, and again after a worker was lost.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Generic, TypeVar

from dask.delayed import Delayed

from hyperplane.core.dask_internals.tasks import List, Task, TaskRef
from hyperplane.core.errors import HyperplaneError, OutputConflict, StorageError
from hyperplane.objectstore.locations import Store
from hyperplane.storage.commit_protocol import CommitProtocol, commit_protocol_for
from hyperplane.storage.manifest import Manifest, ManifestEntry
from hyperplane.storage.output_reports import report_output
from hyperplane.storage.part_commits import ATTEMPTS_KEY
from hyperplane.storage.published_state import PublishedState, conflict_error
from hyperplane.storage.request import SaveRequest
from hyperplane.storage.result import SaveResult
from hyperplane.storage.save_attempts import name_shared_attempt
from hyperplane.storage.staging_folders import check_writable, explain_full_store

#: File in the folder of an attempt, without which a cleanup would not find an empty folder.
_MARKER = "started"


@dataclass(frozen=True)
class SaveStart:
    """What a save has found when it began, which the tasks that write its files receive.

    Parameters
    ----------
    url : str
        The output, without secrets.
    base : PublishedState
        What was published.
    attempt : str
        Folder of the attempt; empty if nothing is written.
    began : float
        When it began, in seconds since 1970.
    """

    url: str
    base: PublishedState
    attempt: str
    began: float

    @property
    def staged(self) -> str:
        """Folder for files that are not published yet."""
        return f"{self.attempt}/data"


@dataclass(frozen=True)
class WrittenFiles:
    """Files that one task has written, or found published with the same content.

    Parameters
    ----------
    entries : tuple of ManifestEntry
        The files.
    attempt, version : str
        Folder of the attempt, and the version that was published when it began: if a worker is
        lost, the first task may run again after others have used its earlier result.
    """

    entries: tuple[ManifestEntry, ...]
    attempt: str
    version: str


S = TypeVar("S", bound=SaveStart)


class OutputTask(ABC):
    """Function of a task that uses the output of a save."""

    @abstractmethod
    def redirect(self, folder: str) -> Any:
        """Return the function of a task that writes to a local folder and reads nothing."""


class SaveStarter(OutputTask, Generic[S]):
    """First task of a save, whose result other tasks need to write files."""

    @abstractmethod
    def __call__(self) -> S:
        """Return what is published, and the folder of a new attempt."""

    @abstractmethod
    def make_sample(self, folder: str) -> S:
        """Return a start with which tasks write to a local folder, as if nothing were published."""

    def redirect(self, folder: str) -> Any:
        """See :class:`OutputTask`."""
        return _ConstantResult(self.make_sample(folder))


@dataclass(frozen=True)
class SavePublisher(OutputTask, Generic[S]):
    """Last task of a save, which publishes the files.

    Parameters
    ----------
    request : SaveRequest
        The save.
    """

    request: SaveRequest

    def __call__(self, written: Sequence[WrittenFiles], start: S) -> SaveResult:
        """Publish the files, remove the folder of the attempt, and return the result."""
        commits = commit_protocol_for(self.request.target)
        attempts = {start.attempt, *(each.attempt for each in written)} - {""}
        try:
            with explain_full_store(self.request.target.url):
                result = self._publish_once(commits, written, start, attempts)
        finally:
            # Leftovers are harmless, and their error would hide that of the block.
            for attempt in sorted(attempts):
                with suppress(StorageError):
                    commits.discard_attempt(attempt)
        report_output(self.request, result, folder=True)
        return replace(result, seconds=max(0.0, time.time() - start.began))

    def _publish_once(
        self,
        commits: CommitProtocol,
        written: Sequence[WrittenFiles],
        start: S,
        attempts: Collection[str],
    ) -> SaveResult:
        """Publish the files, unless another run of this task was faster.

        The other run is that of a worker that was lost afterwards, or is taken for lost. It also
        removes the files that this one needs; tasks that ran again since have written others.
        """
        result = self._find_published(commits, attempts)
        if result is not None:
            return result
        try:
            return self.publish(commits, written, start)
        except (HyperplaneError, OSError):
            result = self._find_published(commits, attempts)
            if result is None:
                raise
            return result

    def _find_published(
        self, commits: CommitProtocol, attempts: Collection[str]
    ) -> SaveResult | None:
        """Return the result of this save if one of its attempts has been published."""
        state = commits.read_state()
        saved = {} if state.manifest is None else state.manifest.details.get(ATTEMPTS_KEY, {})
        names = {PurePosixPath(attempt).name for attempt in attempts} & saved.keys()
        if state.manifest is None or not names:
            return None
        commits.finish_interrupted(state)
        result = make_saved_result(self.request, state.manifest)
        return replace(result, written=max(saved[name] for name in names), published=True)

    @abstractmethod
    def publish(
        self, commits: CommitProtocol, written: Sequence[WrittenFiles], start: S
    ) -> SaveResult:
        """Publish the files."""

    def redirect(self, folder: str) -> Any:
        """See :class:`OutputTask`."""
        del folder
        return _SampleResult(self.request.target.url)


@dataclass(frozen=True)
class _ConstantResult:
    """Function of a task without arguments, with a known result."""

    result: Any

    def __call__(self) -> Any:
        return self.result


@dataclass(frozen=True)
class _SampleResult:
    """Function of a task that returns the result of a save and publishes nothing."""

    url: str

    def __call__(self, written: Sequence[WrittenFiles], start: SaveStart) -> SaveResult:
        del start
        entries = [entry for each in written for entry in each.entries]
        rows = sum(entry.rows or 0 for entry in entries)
        size = sum(entry.size for entry in entries)
        return SaveResult(self.url, len(entries), rows, size, len(entries), published=True)


@dataclass(frozen=True)
class KeptOutput(OutputTask):
    """Only task of a save with mode ``"skip"`` to where something is saved.

    Parameters
    ----------
    request : SaveRequest
        The save.
    """

    request: SaveRequest

    def __call__(self) -> SaveResult:
        """Return the result, for which nothing is computed or written."""
        target = self.request.target
        manifest = commit_protocol_for(target).read_state().manifest
        if manifest is None:
            raise OutputConflict(
                target.url,
                "something was saved there when save was called, and is not any more; call save "
                "again",
            )
        result = make_saved_result(self.request, manifest)
        report_output(self.request, result, folder=True)
        return result

    def redirect(self, folder: str) -> Any:
        """See :class:`OutputTask`."""
        del folder
        return _ConstantResult(SaveResult(self.request.target.url, 0, None, 0))


def make_saved_result(request: SaveRequest, manifest: Manifest) -> SaveResult:
    """Return the result of a save for which nothing is written, as these files are saved."""
    rows = None if request.kind == "array" else manifest.rows
    return SaveResult(request.target.url, len(manifest.parts), rows, manifest.size)


def open_attempt(commits: CommitProtocol, *, writes: bool) -> str:
    """Return the folder of a new attempt, after a test whether the store is writable.

    ``writes`` is whether files may be written to it; otherwise it does not remain.
    """
    attempt = f"{commits.target.metadata_folder}/{name_shared_attempt()}"
    check_writable(commits, attempt)
    if writes:
        commits.store_files.put(f"{attempt}/{_MARKER}", b"")
    else:
        commits.discard_attempt(attempt)
    return attempt


def delay(name: str, token: str, function: Callable[..., Any], *arguments: Any) -> Delayed:
    """Return one task; its arguments are values and tasks of one graph, also in a list."""
    key = f"{name}-{token}"
    graph: dict[Any, Any] = {}
    references: list[Any] = []
    for argument in arguments:
        tasks = argument if isinstance(argument, list) else [argument]
        for task in tasks[:1]:
            graph.update(task.dask)
        made = [TaskRef(task.key) for task in tasks]
        references.append(List(*made) if isinstance(argument, list) else made[0])
    graph[key] = Task(key, function, *references)
    return Delayed(key, graph)


def make_sample_store(folder: str) -> tuple[Store, str]:
    """Return the store of a local folder, and the folder of an attempt in it."""
    return Store("file", "file:///", {}), str(Path(folder, "attempt"))


def gather_entries(
    commits: CommitProtocol, written: Sequence[WrittenFiles], start: SaveStart
) -> list[ManifestEntry]:
    """Return the entries of all files.

    Raises
    ------
    OutputConflict
        If tasks have compared their files with another version than that of the start.
    """
    if any(each.version != start.base.version for each in written):
        raise conflict_error(commits.target)
    return [entry for each in written for entry in each.entries]


def move_strays(
    commits: CommitProtocol,
    written: Sequence[WrittenFiles],
    start: SaveStart,
    new: Sequence[ManifestEntry],
) -> None:
    """Copy new files from folders of other attempts, of a start that ran before, to the own one."""
    names = {entry.name for entry in new}
    strays = [
        (f"{each.attempt}/data/{entry.name}", f"{start.staged}/{entry.name}")
        for each in written
        if each.attempt != start.attempt
        for entry in each.entries
        if entry.name in names
    ]
    commits.store_files.map_concurrently(lambda pair: commits.store_files.copy(*pair), strays)


def record_attempt(manifest: Manifest, start: SaveStart, written: int) -> Manifest:
    """Return a manifest that names the attempt, and has its number of written files."""
    attempts = {PurePosixPath(start.attempt).name: written}
    return replace(manifest, details={**manifest.details, ATTEMPTS_KEY: attempts})
