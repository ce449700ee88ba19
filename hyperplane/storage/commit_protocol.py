"""What others see of a place, and how it changes in one step.

On a local disk the folder of parts takes the place of the old one by one rename
(:mod:`~hyperplane.storage.rename_commit`). On an object store, which has no rename, a numbered
manifest that can be created only once is the step (:mod:`~hyperplane.storage.manifest_commit`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from hyperplane.errors import OutputConflict
from hyperplane.storage.manifest import Manifest, ManifestEntry
from hyperplane.storage.object_store import ObjectStore
from hyperplane.storage.target import Target

#: Stands in the manifest for what another program wrote.
FOREIGN = "foreign"


@dataclass(frozen=True)
class PublishedState:
    """What others see of a place.

    Parameters
    ----------
    version : str
        Changes whenever it does; empty when there is nothing.
    manifest : Manifest or None
        What is there.
    """

    version: str = ""
    manifest: Manifest | None = None


class CommitProtocol(Protocol):
    """How a set of parts is published on one kind of store."""

    target: Target
    object_store: ObjectStore

    def read_state(self) -> PublishedState:
        """What others see now."""
        ...

    def finish_interrupted(self, state: PublishedState) -> None:
        """Finish what somebody who published it, and was killed, has not."""
        ...

    def publish(self, manifest: Manifest, staged: str, base: PublishedState) -> Manifest:
        """Make parts in a folder that only we see what all see.

        Raises
        ------
        OutputConflict
            When what others see is no longer ``base``.
        """
        ...

    def is_needed(self, attempt: str) -> bool:
        """Whether others read what is in the folder of an attempt."""
        ...

    def discard_attempt(self, attempt: str) -> None:
        """Remove the folder of an attempt, if nobody needs what is in it."""
        ...

    def part_paths(self, manifest: Manifest) -> list[str]:
        """The paths of the parts."""
        ...

    def data_folder(self, manifest: Manifest) -> str:
        """The path of a folder that has all of them."""
        ...


def conflict_error(target: Target) -> OutputConflict:
    """The error of one who came second."""
    return OutputConflict(
        target.url,
        "somebody else has saved there since this began; what they saved stands, and nothing of "
        "this was published",
    )


def foreign_manifest(names: dict[str, int], saved: Manifest | None = None) -> Manifest:
    """A manifest of what another program wrote, or changed since it was saved."""
    parts = tuple(ManifestEntry(name, size) for name, size in sorted(names.items()))
    details = {}
    if saved is not None:
        had = {part.name for part in saved.parts}
        details = {"missing": sorted(had - set(names)), "added": sorted(set(names) - had)}
    return Manifest(format=FOREIGN, kind=FOREIGN, parts=parts, details=details)
