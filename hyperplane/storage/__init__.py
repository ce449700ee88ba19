"""Atomic saving: cleanup, missing shards and results of ``hyperplane.save``."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from hyperplane.storage.cleanup import CleanupReport, clean
from hyperplane.storage.result import SaveResult
from hyperplane.storage.shard_saving import missing_shards

__all__ = ["CleanupReport", "SaveResult", "clean", "missing_shards"]


def __dir__() -> list[str]:
    return list(__all__)


if not TYPE_CHECKING:  # type checkers report unknown names

    def __getattr__(name: str) -> Any:
        if name == "Cleaned":
            text = "hyperplane.storage.Cleaned was renamed; use hyperplane.storage.CleanupReport"
            warnings.warn(text, FutureWarning, stacklevel=2)
            return CleanupReport
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
