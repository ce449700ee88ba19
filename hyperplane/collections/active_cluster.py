"""The cluster that is in use: what the active client can say about it at once.

Without a client it is this machine. An asynchronous client would have to be awaited, and counts as
none.
"""

from __future__ import annotations

import sys
from typing import Any

from dask.system import CPU_COUNT


def get_active_client() -> Any | None:
    """The default client, if there is one that answers without being awaited."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        client = distributed.default_client()
    except ValueError:
        return None
    return None if client.asynchronous else client


def count_threads() -> int:
    """Threads of the cluster, or of this machine.

    Examples
    --------
    >>> threads() >= 1
    True
    """
    return sum(_get_worker_threads()) or int(CPU_COUNT)


def count_processes() -> int:
    """Worker processes of the cluster; 1 without one."""
    return len(_get_worker_threads()) or 1


def get_memory_per_thread() -> int | None:
    """Bytes for each thread of the smallest worker; None without a cluster or a limit."""
    client = get_active_client()
    if client is None:
        return None
    try:
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
    except (OSError, KeyError):
        return None  # it has heard nothing from its scheduler
    shares = [
        worker["memory_limit"] // max(1, worker["nthreads"])
        for worker in workers
        if worker["memory_limit"]
    ]
    return min(shares, default=None)


def _get_worker_threads() -> list[int]:
    client = get_active_client()
    try:
        return [] if client is None else list(client.nthreads().values())
    except OSError:
        return []  # the cluster is gone, the client not yet closed
