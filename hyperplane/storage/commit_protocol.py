"""Interface that changes the published state of an output in one atomic step.

On local disk the new folder replaces the old one by one rename
(:mod:`~hyperplane.storage.rename_commit`). Object stores have no rename; on them the step is to
create a manifest with the next number, which only one process can do
(:mod:`~hyperplane.storage.manifest_commit`).
"""

from __future__ import annotations

from typing import Protocol

from hyperplane.objectstore.save_target import Target
from hyperplane.objectstore.store_files import StoreFiles
from hyperplane.storage.manifest import Manifest
from hyperplane.storage.manifest_commit import ManifestCommit
from hyperplane.storage.published_state import PublishedState
from hyperplane.storage.rename_commit import RenameCommit


class CommitProtocol(Protocol):
    """Interface that publishes the parts of an output on one kind of store."""

    target: Target
    store_files: StoreFiles

    def read_state(self) -> PublishedState:
        """Return the published state."""
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


def commit_protocol_for(target: Target) -> CommitProtocol:
    """Return the commit protocol for an output: renames on local disk, manifests elsewhere."""
    store_files = StoreFiles(target.store)
    return (
        RenameCommit(target, store_files)
        if target.store.local
        else ManifestCommit(target, store_files)
    )
