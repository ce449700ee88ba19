"""The published state of an output, and the interface that changes it in one atomic step.

On local disk the new folder replaces the old one by one rename
(:mod:`~hyperplane.storage.rename_commit`). Object stores have no rename; there the step is the
creation of a numbered manifest, which only one process can create
(:mod:`~hyperplane.storage.manifest_commit`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from hyperplane.core.errors import OutputConflict
from hyperplane.objectstore.save_target import Target
from hyperplane.objectstore.store_files import StoreFiles
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


class CommitProtocol(Protocol):
    """How the parts of an output are published on one kind of store."""

    target: Target
    store_files: StoreFiles

    def read_state(self) -> PublishedState:
        """Return what readers see now."""
        ...

    def finish_interrupted(self, state: PublishedState) -> None:
        """Complete a commit whose process was killed after it had published."""
        ...

    def publish(self, manifest: Manifest, staged: str, base: PublishedState) -> Manifest:
        """Make the parts in a staging folder visible to readers.

        Raises
        ------
        OutputConflict
            If the published state is no longer ``base``.
        """
        ...

    def is_needed(self, attempt: str) -> bool:
        """Return whether readers may still read parts in the folder of an attempt."""
        ...

    def discard_attempt(self, attempt: str) -> None:
        """Remove the folder of an attempt, unless it is needed."""
        ...

    def part_paths(self, manifest: Manifest) -> list[str]:
        """Return the paths of the parts."""
        ...

    def data_folder(self, manifest: Manifest) -> str:
        """Return the path of a folder that contains all parts."""
        ...


def conflict_error(target: Target) -> OutputConflict:
    """Return the error of a save that another one preceded."""
    return OutputConflict(
        target.url,
        "another process has saved there since this save began; its version remains, and nothing "
        "of this save was published",
    )


def foreign_manifest(names: dict[str, int], saved: Manifest | None = None) -> Manifest:
    """Return a manifest of files that another program wrote, or changed since they were saved."""
    parts = tuple(ManifestEntry(name, size) for name, size in sorted(names.items()))
    details = {}
    if saved is not None:
        saved_names = {part.name for part in saved.parts}
        details = {
            "missing": sorted(saved_names - set(names)),
            "added": sorted(set(names) - saved_names),
        }
    return Manifest(format=FOREIGN, kind=FOREIGN, parts=parts, details=details)
