"""The published state of an output."""

from __future__ import annotations

from dataclasses import dataclass

from hyperplane.core.errors import OutputConflict
from hyperplane.objectstore.save_target import Target
from hyperplane.storage.manifest import Manifest, ManifestEntry

#: Format and kind, in manifests, of files that another program wrote.
FOREIGN = "foreign"


@dataclass(frozen=True)
class PublishedState:
    """The version of an output that readers see.

    Parameters
    ----------
    version : str
        Differs between versions; empty if there is no output.
    manifest : Manifest or None
        The parts of this version.
    """

    version: str = ""
    manifest: Manifest | None = None


def conflict_error(target: Target) -> OutputConflict:
    """Return the error of a save during which another process has saved."""
    return OutputConflict(
        target.url,
        "another process has saved there since this save began; its version remains, and nothing "
        "of this save was published. To replace that version, save again",
    )


def foreign_manifest(sizes: dict[str, int], saved: Manifest | None = None) -> Manifest:
    """Return a manifest of files that another program wrote, or changed after a save.

    ``sizes`` has the bytes of each file by name, and ``saved`` is the manifest of that save. With
    it the details of the result list the files that are missing and those that were added.
    """
    parts = tuple(ManifestEntry(name, size) for name, size in sorted(sizes.items()))
    details = {}
    if saved is not None:
        saved_names = {part.name for part in saved.parts}
        details = {
            "missing": sorted(saved_names - set(sizes)),
            "added": sorted(set(sizes) - saved_names),
        }
    return Manifest(format=FOREIGN, kind=FOREIGN, parts=parts, details=details)
