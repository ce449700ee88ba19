"""Begin and end of a save of parts: the parts it is compared with, and their publication."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from hyperplane.core.errors import Fault, OutputConflict, check
from hyperplane.storage.commit_protocol import CommitProtocol
from hyperplane.storage.manifest import Manifest, ManifestEntry
from hyperplane.storage.object_kinds import part_suffix
from hyperplane.storage.published_state import FOREIGN, PublishedState
from hyperplane.storage.replaced_files import check_replaceable
from hyperplane.storage.request import SaveRequest
from hyperplane.storage.result import SaveResult
from hyperplane.storage.staging_folders import verify_listing

#: Key of the manifest details that map each run to the parts it appended.
_APPENDED_KEY = "appended"
#: Key of the manifest details that map attempts of saves that are computed later to the number of
#: files that each has written.
ATTEMPTS_KEY = "attempts"


@dataclass(frozen=True)
class PublishedParts:
    """The published parts with which those of a save are compared.

    Parameters
    ----------
    base : PublishedState
        What is published.
    kept : bool
        Whether the mode is ``"skip"`` and something is published, so that nothing is saved.
    existing : tuple of ManifestEntry
        Existing parts at the same positions; equal ones are not written again.
    preceding : tuple of ManifestEntry
        Existing parts to which the new ones are appended.
    protected : bool
        Whether a part that differs from the existing one is an error.
    """

    base: PublishedState
    kept: bool = False
    existing: tuple[ManifestEntry, ...] = ()
    preceding: tuple[ManifestEntry, ...] = ()
    protected: bool = False


def read_published_parts(
    request: SaveRequest,
    commits: CommitProtocol,
    columns: Sequence[str] | None,
    *,
    complete: bool = True,
) -> PublishedParts:
    """Return the published parts, after the checks that need no rows.

    Parameters
    ----------
    columns : sequence of str or None
        Columns of a dataframe; None for a bag.
    complete : bool
        Whether an interrupted commit is completed; otherwise nothing is written.
    """
    base = commits.read_state()
    check_replaceable(request.target.url, base.manifest)
    if complete:
        commits.finish_interrupted(base)
    saved = base.manifest
    if saved is None:
        return PublishedParts(base)
    if request.mode == "skip":
        return PublishedParts(base, kept=True)
    if request.mode != "append":
        return PublishedParts(base, existing=saved.parts, protected=request.mode == "error")
    check(_incompatibility_faults(request, saved))
    names = _appended_runs(saved).get(request.run, [])
    added = tuple(part for part in saved.parts if part.name in names)
    if saved.kind != "bag" and columns is not None:
        # Imports Polars, which takes time, so only where it is needed.
        from hyperplane.storage.append_checks import check_appended_columns

        check_appended_columns(columns, commits, saved)
    return PublishedParts(base, existing=added, preceding=saved.parts)


def commit_parts(
    request: SaveRequest,
    commits: CommitProtocol,
    published: PublishedParts,
    staged: str,
    manifest: Manifest,
) -> SaveResult:
    """Publish the parts in a staging folder, unless the same ones are published already.

    Raises
    ------
    OutputConflict
        If something else has been published since ``published`` was read, an earlier save of the
        same run appended other rows, or appended rows have no common type with the saved ones.
    StorageError
        If the store does not list all parts.
    """
    base, appends = published.base, request.mode == "append"
    old = base.manifest.parts if base.manifest else ()
    unchanged = (*old, *published.existing) if appends else old
    if base.manifest is not None and manifest.parts == unchanged:
        return make_result(request, base.manifest, written=0)
    if appends:
        manifest = _record_append(manifest, request, base.manifest)
    new = find_new_parts(manifest, published)
    verify_listing(commits.store_files, staged, new)
    if appends and base.manifest is not None and manifest.kind != "bag":
        from hyperplane.storage.append_checks import check_appended_types

        check_appended_types(commits, base.manifest, staged, new)
    result = make_result(request, commits.publish(manifest, staged, base), written=len(new))
    return replace(result, published=True)


def find_new_parts(manifest: Manifest, published: PublishedParts) -> list[ManifestEntry]:
    """Return the parts of a manifest that were not published when the save began."""
    old = published.base.manifest
    names = {part.name for part in old.parts} if old else set()
    return [part for part in manifest.parts if part.name not in names]


def make_result(request: SaveRequest, manifest: Manifest, *, written: int) -> SaveResult:
    """Return the result of a save whose parts are those of a manifest."""
    return SaveResult(
        request.target.url, len(manifest.parts), manifest.rows, manifest.size, written
    )


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
    details = {**manifest.details, _APPENDED_KEY: runs}
    # Their last tasks may run again after this save.
    attempts = saved.details.get(ATTEMPTS_KEY, {}) if saved else {}
    if attempts:
        details[ATTEMPTS_KEY] = {**attempts, **details.get(ATTEMPTS_KEY, {})}
    return replace(manifest, details=details)


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
