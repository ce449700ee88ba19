"""The way of publishing that a store has."""

from __future__ import annotations

from hyperplane.storage.commit_protocol import CommitProtocol
from hyperplane.storage.manifest_commit import ManifestCommit
from hyperplane.storage.object_store import ObjectStore
from hyperplane.storage.rename_commit import RenameCommit
from hyperplane.storage.target import Target


def commit_protocol_for(target: Target) -> CommitProtocol:
    """How to publish at a place."""
    object_store = ObjectStore(target.store)
    return (
        RenameCommit(target, object_store)
        if target.store.local
        else ManifestCommit(target, object_store)
    )
