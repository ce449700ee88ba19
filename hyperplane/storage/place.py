"""The way of publishing that a store has."""

from __future__ import annotations

from hyperplane.storage.commits import Commits
from hyperplane.storage.numbers import Numbers
from hyperplane.storage.renames import Renames
from hyperplane.storage.shelf import Shelf
from hyperplane.storage.target import Target


def commits_of(target: Target) -> Commits:
    """How to publish at a place."""
    shelf = Shelf(target.store)
    return Renames(target, shelf) if target.store.local else Numbers(target, shelf)
