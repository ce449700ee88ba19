"""The memory that a thread of the active cluster has."""

from __future__ import annotations

import sys


def memory_per_thread() -> int | None:
    """Bytes for each thread of the smallest worker of the active client; None without one."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        workers = distributed.default_client().scheduler_info()["workers"].values()
    except (ValueError, OSError, KeyError):
        return None  # no client, or one that has heard nothing from its scheduler
    shares = [
        worker["memory_limit"] // max(1, worker["nthreads"])
        for worker in workers
        if worker["memory_limit"]
    ]
    return min(shares, default=None)
