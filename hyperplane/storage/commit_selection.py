"""Select the commit protocol of a store."""

from __future__ import annotations

from hyperplane.objectstore.save_target import Target
from hyperplane.objectstore.store_files import StoreFiles
from hyperplane.storage.commit_protocol import CommitProtocol
from hyperplane.storage.manifest_commit import ManifestCommit
from hyperplane.storage.rename_commit import RenameCommit


def commit_protocol_for(target: Target) -> CommitProtocol:
    """Return the commit protocol for an output: renames on local disk, manifests elsewhere."""
    store_files = StoreFiles(target.store)
    return (
        RenameCommit(target, store_files)
        if target.store.local
        else ManifestCommit(target, store_files)
    )
