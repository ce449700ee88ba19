"""Saving that never loses or half-writes: what there is beside ``hyperplane.save`` and ``load``."""

from __future__ import annotations

from hyperplane.storage.cleanup import Cleaned, clean
from hyperplane.storage.result import SaveResult
from hyperplane.storage.shard_saving import missing_shards

__all__ = ["Cleaned", "SaveResult", "clean", "missing_shards"]


def __dir__() -> list[str]:
    return list(__all__)
