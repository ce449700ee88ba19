"""Let the time limit of a start of local nodes pass as soon as the first worker has started."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from hyperplane.clusters.local_nodes import cluster


def expire_after_first_worker(monkeypatch: pytest.MonkeyPatch, limit: float) -> None:
    """Set the clock of clusters of local nodes forward by ``limit`` after the first worker."""
    late, handle = [], cluster.LocalNodeCluster.handle

    def handle_and_expire(self: Any, event: dict[str, Any]) -> None:
        handle(self, event)
        if event["event"] == "worker":
            late.append(limit)

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + sum(late))
    monkeypatch.setattr(cluster, "time", clock)
    monkeypatch.setattr(cluster.LocalNodeCluster, "handle", handle_and_expire)
