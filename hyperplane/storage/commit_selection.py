"""The way of publishing that a store has."""

from __future__ import annotations

from hyperplane.storage.commit_protocol import Commits
from hyperplane.storage.manifest_commit import Numbers
from hyperplane.storage.object_store import Shelf
from hyperplane.storage.rename_commit import Renames
from hyperplane.storage.target import Target


def commits_of(target: Target) -> Commits:
    """How to publish at a place."""
    shelf = Shelf(target.store)
    return Renames(target, shelf) if target.store.local else Numbers(target, shelf)
