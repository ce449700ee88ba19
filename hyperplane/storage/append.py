"""Append parts to a saved collection: only parts of the same kind, and once per run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath

from hyperplane.core.errors import Fault, OutputConflict, check
from hyperplane.storage.commit_protocol import FOREIGN
from hyperplane.storage.formats import part_suffix
from hyperplane.storage.manifest import Manifest, ManifestEntry
from hyperplane.storage.request import SaveRequest

#: Key of the manifest details that map each run to the parts it appended.
_APPENDED_KEY = "appended"


def find_appended_parts(request: SaveRequest, saved: Manifest | None) -> tuple[ManifestEntry, ...]:
    """Return the parts that the same run appended before.

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


def record_append(manifest: Manifest, request: SaveRequest, saved: Manifest | None) -> Manifest:
    """Return the manifest with the appended parts recorded under the request's run.

    Raises
    ------
    OutputConflict
        If the same run appended other rows before.
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
    endings = {PurePosixPath(part.name).suffix for part in saved.parts}
    same_format = endings == {part_suffix(request.format)}
    if same_format and saved.kind in (FOREIGN, "bag" if request.kind == "bag" else "dataframe"):
        return []
    given = f"'append' of {request.kind} as {request.format}"
    allowed = f"the kind and format of the saved parts: {saved.kind} as {saved.format}"
    return [Fault("mode", given, allowed, "save to another URL, or pass mode='overwrite'")]
