"""Save one of several shards; the last one to commit publishes the whole output."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from typing import Any

from hyperplane.core.errors import Fault, OutputConflict, RequestError, StorageError, check
from hyperplane.core.public_calls import check_call
from hyperplane.core.units import plural
from hyperplane.objectstore.locations import Location
from hyperplane.objectstore.save_target import check_options, read_only_faults, resolve_target
from hyperplane.storage.commit_protocol import CommitProtocol, commit_protocol_for
from hyperplane.storage.manifest import Manifest, ManifestEntry, parse_manifest_file
from hyperplane.storage.part_saving import write_parts
from hyperplane.storage.published_state import conflict_error
from hyperplane.storage.replaced_files import check_replaceable
from hyperplane.storage.request import SaveRequest
from hyperplane.storage.result import SaveResult
from hyperplane.storage.single_file import exists_error
from hyperplane.storage.staging_folders import check_writable, verify_listing

_RECORD = re.compile(r"shards-([0-9]+)-([^/]+)/records/([0-9]+)\.json")
#: Key of the columns in the details of a shard's manifest.
_COLUMNS_KEY = "columns"
#: Runs whose folders have another name than the run: the run without a name, whose folder is called
#: ``first``, and a run named ``first``, whose folder has a character that no run's name can have.
_FOLDER_NAMES = {"": "first", "first": "=first"}


def save_shard(obj: Any, request: SaveRequest) -> SaveResult:
    """Save the parts of one shard; readers see the output once all shards are saved."""
    index, count = request.shard or (0, 1)
    commits = commit_protocol_for(request.target)
    base = commits.read_state()
    check_replaceable(request.target.url, base.manifest)
    commits.finish_interrupted(base)
    old = base.manifest
    run = _ShardRun(commits, count, request.run)
    if old is not None and request.mode == "skip":
        return SaveResult(request.target.url, len(old.parts), old.rows, old.size)
    if old is not None and request.mode == "error" and old.shards != count:
        raise exists_error(request)
    published = tuple(part for part in old.parts if part.shard == index) if old else ()
    is_published = old is not None and run.has_published(old)
    committed = None if is_published else run.read_record(index)
    replaces = request.mode == "overwrite"
    if committed is not None and request.mode == "skip":
        complete = run.publish_if_complete(replaces=replaces)
        return _save_result(request, run, committed, 0, complete=complete)
    check_writable(commits, run.folder)
    existing = committed.parts if committed else published
    manifest = write_parts(obj, request, f"{run.folder}/data", existing=existing)
    manifest = replace(manifest, details={**manifest.details, _COLUMNS_KEY: _column_names(obj)})
    known = {part.name for part in existing}
    new = [part for part in manifest.parts if part.name not in known]
    if committed is not None:
        return _finish_repeated(request, run, manifest, committed, new)
    if is_published or (old is not None and request.mode == "error"):
        run.discard_parts(new)
        if not new:
            return _save_result(request, run, manifest, 0, complete=True)
        raise (
            _other_rows_error(request) if is_published and request.run else exists_error(request)
        )
    run.copy_published_parts([part for part in manifest.parts if part.name in known])
    verify_listing(commits.store_files, f"{run.folder}/data", manifest.parts)
    try:
        commits.store_files.put_new(run.record_path(index), manifest.to_json().encode())
    except FileExistsError:
        return _finish_repeated(request, run, manifest, run.read_record(index), new)
    complete = run.publish_if_complete(replaces=replaces)
    return _save_result(request, run, manifest, len(new), complete=complete)


class _ShardRun:
    """The shards of one run that save to the same URL.

    ``published`` is whether this process has published the output of the run.
    """

    def __init__(self, commits: CommitProtocol, count: int, name: str) -> None:
        self.commits, self.count, self.name = commits, count, name
        self.published = False
        folder = f"shards-{count}-{_FOLDER_NAMES.get(name, name)}"
        self.folder = f"{commits.target.metadata_folder}/{folder}"

    def has_published(self, manifest: Manifest) -> bool:
        """Return whether a published manifest is that of this run."""
        return manifest.shards == self.count and manifest.details.get("run", "") == self.name

    def record_path(self, index: int) -> str:
        """Return the path of a shard's manifest."""
        return f"{self.folder}/records/{index:05d}.json"

    def read_record(self, index: int) -> Manifest | None:
        """Return the manifest of a shard; None if it has not committed."""
        store, path = self.commits.target.store, self.record_path(index)
        data = self.commits.store_files.get(path)
        return None if data is None else parse_manifest_file(data, Location(store, path))

    def discard_parts(self, parts: list[ManifestEntry]) -> None:
        """Remove parts that will not be published."""
        self.commits.store_files.remove(f"{self.folder}/data/{part.name}" for part in parts)
        if not self.commits.store_files.list_files(f"{self.folder}/records"):
            self.commits.discard_attempt(self.folder)

    def copy_published_parts(self, parts: list[ManifestEntry]) -> None:
        """Copy published parts to this run's folder, as another run may replace them.

        Raises
        ------
        OutputConflict
            If another process has replaced them since they were compared.
        """
        store_files, path = self.commits.store_files, self.commits.target.path
        try:
            store_files.map_concurrently(
                lambda part: store_files.copy(
                    f"{path}/{part.name}", f"{self.folder}/data/{part.name}"
                ),
                parts,
            )
        except (FileNotFoundError, StorageError) as error:
            if store_files.is_missing(error):
                raise conflict_error(self.commits.target) from error
            raise

    def publish_if_complete(self, *, replaces: bool) -> bool:
        """Publish the output if all shards are committed; return whether it is published.

        Raises
        ------
        OutputConflict
            If another process has saved there meanwhile, and its version is not to be replaced.
        """
        base = self.commits.read_state()
        if base.manifest is not None and self.has_published(base.manifest):
            return True  # another shard has published it
        shards = [self.read_record(index) for index in range(self.count)]
        committed = [shard for shard in shards if shard is not None]
        if len(committed) == self.count:
            if len({(shard.format, shard.kind) for shard in committed}) > 1:
                url = self.commits.target.url
                raise OutputConflict(
                    url, "its shards have different formats; save all with one format"
                )
            if len({tuple(shard.details.get(_COLUMNS_KEY) or ()) for shard in committed}) > 1:
                url = self.commits.target.url
                raise OutputConflict(
                    url, "its shards have different columns; save all with the same, as a new run="
                )
            if base.manifest is not None and not replaces:
                raise conflict_error(self.commits.target)
            parts = tuple(part for shard in committed for part in shard.parts)
            details = {"run": self.name}
            first = committed[0]
            manifest = Manifest(first.format, first.kind, parts, self.count, details)
            try:
                self.commits.publish(manifest, f"{self.folder}/data", base)
                self.published = True
            except OutputConflict:
                if not self._is_published():
                    raise
            except (FileNotFoundError, StorageError):
                if not self._is_published() or self.commits.is_needed(self.folder):
                    raise
        if not self._is_published():
            return False
        # This keeps the folder while the process that published the output copies from it.
        self.commits.discard_attempt(self.folder)
        old = base.manifest
        if old is not None and old.shards:
            # The process that published it may have been killed before it removed its folder.
            previous = _ShardRun(self.commits, old.shards, old.details.get("run", ""))
            self.commits.discard_attempt(previous.folder)
        return True

    def _is_published(self) -> bool:
        """Return whether the published output is that of this run."""
        published = self.commits.read_state().manifest
        return published is not None and self.has_published(published)


def run_of_folder(name: str) -> str:
    """Return the name of a run from that in its folder; empty for the run without a name."""
    return next((run for run, folder in _FOLDER_NAMES.items() if folder == name), name)


def list_incomplete_runs(
    commits: CommitProtocol, published: Manifest | None
) -> dict[tuple[int, str], set[int]]:
    """Return the indices of committed shards by count and name of each unpublished run."""
    folder = commits.target.metadata_folder
    committed: dict[tuple[int, str], set[int]] = {}
    for match in map(_RECORD.fullmatch, commits.store_files.list_files(folder)):
        if match:
            run = (int(match[1]), run_of_folder(match[2]))
            committed.setdefault(run, set()).add(int(match[3]))
    return {
        (count, name): indices
        for (count, name), indices in committed.items()
        if published is None or not _ShardRun(commits, count, name).has_published(published)
    }


def describe_incomplete_runs(commits: CommitProtocol) -> str:
    """Return which shards are missing where no run is complete; empty if none is saved."""
    texts = []
    for (count, name), indices in sorted(list_incomplete_runs(commits, None).items()):
        missing = [str(index) for index in range(count) if index not in indices]
        of_run = f" of run {name!r}" if name else ""
        shown = ", ".join(missing[:10]) + ", ..." * (len(missing) > 10)
        texts.append(
            f"{plural(len(missing), 'shard')}{of_run} of {count} missing ({shown})"
            if missing
            else f"all {count} shards{of_run} saved but not published; save one again to see why"
        )
    return "; ".join(texts)


def _column_names(obj: Any) -> list[str]:
    """Return the column names of a dataframe or table; none for a bag."""
    # Arrow has column_names, and its columns are data; pandas, Polars, and Dask have columns.
    names = obj.column_names if hasattr(obj, "column_names") else getattr(obj, "columns", ())
    return [str(name) for name in names]


def _finish_repeated(
    request: SaveRequest,
    run: _ShardRun,
    manifest: Manifest,
    committed: Manifest | None,
    new: list[ManifestEntry],
) -> SaveResult:
    """Return the result of a shard that is already committed, or raise if its rows differ."""
    run.discard_parts(new)
    if committed is not None and manifest.has_same_content(committed):
        complete = run.publish_if_complete(replaces=request.mode == "overwrite")
        return _save_result(request, run, committed, 0, complete=complete)
    raise _other_rows_error(request)


def _other_rows_error(request: SaveRequest) -> OutputConflict:
    """Return the error of a shard whose committed rows differ."""
    return OutputConflict(
        request.target.url,
        f"shard {request.shard} of this run is already committed with other rows, which remain; "
        "for a new run pass another run=",
    )


def _save_result(
    request: SaveRequest, run: _ShardRun, manifest: Manifest, written: int, *, complete: bool
) -> SaveResult:
    return SaveResult(
        request.target.url,
        len(manifest.parts),
        manifest.rows,
        manifest.size,
        written,
        complete=complete,
        published=run.published,
    )


@check_call
def missing_shards(
    url: str | PathLike[str],
    *,
    run: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> list[int]:
    """Return the indices of shards that have not committed yet.

    Parameters
    ----------
    url : str or path
        The output, as passed to :func:`hyperplane.save`.
    run : str, optional
        Name of the run, ``""`` for the run without a name; required if several are incomplete.
    storage_options : mapping, optional
        Options of the file system.
    **options
        More options of the file system.

    Returns
    -------
    list of int
        In order; empty if the output is complete.

    Raises
    ------
    RequestError
        If several runs are incomplete and ``run`` is omitted.
    StorageError
        If no shard has been saved there.

    Examples
    --------
    >>> import pandas as pd, hyperplane
    >>> rows = pd.DataFrame({"n": [1, 2, 3]})
    >>> result = hyperplane.save(rows, "memory://docs/shards", shard=(1, 3))
    >>> missing_shards("memory://docs/shards")
    [0, 2]
    """
    check_options(url, options, missing_shards)
    target = resolve_target(url, storage_options, options)
    faults = read_only_faults(target)
    given_run: Any = run
    if not isinstance(given_run, str | None):
        faults.append(Fault("run", repr(given_run)[:80], "the name of one run, or None"))
    check(faults)
    commits = commit_protocol_for(target)
    base = commits.read_state().manifest
    incomplete = {
        (count, name): indices
        for (count, name), indices in list_incomplete_runs(commits, base).items()
        if run in (None, name)
    }
    if len(incomplete) > 1:
        names = sorted(f"{name!r} (of {plural(count, 'shard')})" for count, name in incomplete)
        allowed = f"the name of one of the incomplete runs: {', '.join(names)}"
        advice = f"hyperplane storage clean {target.url} --older-than 0 removes incomplete runs"
        raise RequestError([Fault("run", repr(run), allowed, advice)])
    if incomplete:
        (((count, _), indices),) = incomplete.items()
        return sorted(set(range(count)) - indices)
    if base is None or base.shards is None or run not in (None, base.details.get("run")):
        raise StorageError(target.url, "no shard has been saved there; check the URL")
    return []
