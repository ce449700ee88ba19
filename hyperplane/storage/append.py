"""Adding parts to others: only to those that are like them, and once for each run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath

from hyperplane.errors import Fault, OutputConflict, check
from hyperplane.storage.commit_protocol import FOREIGN
from hyperplane.storage.formats import PART_SUFFIXES
from hyperplane.storage.manifest import Manifest, ManifestEntry
from hyperplane.storage.request import SaveRequest

#: Says in a manifest which run has appended which parts.
_APPENDED_KEY = "appended"


def find_appended_parts(request: SaveRequest, there: Manifest | None) -> tuple[ManifestEntry, ...]:
    """What the same run has appended before.

    Raises
    ------
    RequestError
        When parts of this kind cannot be appended to what is there.
    """
    if there is None:
        return ()
    check(_incompatibility_faults(request, there))
    names = _appended_runs(there).get(request.run, [])
    return tuple(part for part in there.parts if part.name in names)


def record_append(manifest: Manifest, request: SaveRequest, there: Manifest | None) -> Manifest:
    """A manifest with more parts than that which is there; it says which run appended what.

    Raises
    ------
    OutputConflict
        When the same run has appended before, and other rows.
    """
    had = {part.name for part in there.parts} if there else set()
    runs = _appended_runs(there) if there else {}
    if request.run in runs:
        raise OutputConflict(
            request.target.url,
            f"run {request.run!r} has appended other rows; what it appended stands. For more rows "
            "give a run= of their own",
        )
    if request.run:
        runs[request.run] = [part.name for part in manifest.parts if part.name not in had]
    return replace(manifest, details={**manifest.details, _APPENDED_KEY: runs})


def _appended_runs(manifest: Manifest) -> dict[str, list[str]]:
    return dict(manifest.details.get(_APPENDED_KEY, {}))


def _incompatibility_faults(request: SaveRequest, there: Manifest) -> list[Fault]:
    """What keeps parts from being added to others."""
    endings = {PurePosixPath(part.name).suffix for part in there.parts}
    alike = endings == {PART_SUFFIXES[request.format]}
    if alike and there.kind in (FOREIGN, "bag" if request.kind == "bag" else "dataframe"):
        return []
    asked = f"'append' of {request.kind} as {request.format}"
    allowed = f"what is like that which is there: {there.kind} as {there.format}"
    return [Fault("mode", asked, allowed, "save it elsewhere, or overwrite")]
