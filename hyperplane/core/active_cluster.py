"""The default client; threads, processes and memory of its cluster, or of this machine.

An asynchronous client is ignored, because its answers would have to be awaited.
"""

from __future__ import annotations

import sys
from typing import Any

from dask.system import CPU_COUNT

from hyperplane.core.errors import Fault


def get_active_client() -> Any | None:
    """Return the default client; None if there is none or if it is asynchronous."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        client = distributed.default_client()
    except ValueError:
        return None
    return None if client.asynchronous else client


def find_client_faults(client: Any) -> list[Fault]:
    """Return the fault of a client that cannot compute.

    Examples
    --------
    >>> [fault.advice for fault in find_client_faults(None)]
    ['call hyperplane.initialize_cluster() first']
    """
    advice = "call hyperplane.initialize_cluster() first"
    if client is None:
        return [Fault("client", "nothing", "the client of a running cluster", advice)]
    if getattr(client, "asynchronous", False):
        allowed = "a synchronous client; an asynchronous client cannot be used here"
        return [Fault("client", str(client)[:80], allowed, "pass Client(address)")]
    if getattr(client, "status", "") != "running":
        return [Fault("client", str(client)[:80], "a connected client", advice)]
    return []


def count_threads() -> int:
    """Return the number of threads of the cluster, or of this machine without a cluster.

    Examples
    --------
    >>> count_threads() >= 1
    True
    """
    return sum(_get_worker_threads()) or int(CPU_COUNT)


def count_processes() -> int:
    """Return the number of worker processes of the cluster; 1 without a cluster."""
    return len(_get_worker_threads()) or 1


def count_most_processes() -> float:
    """Return the maximum number of worker processes, which is infinite if a cluster adapts so."""
    client = get_active_client()
    adaptive = None if client is None else _get_adaptive(client)
    return count_processes() if adaptive is None else max(count_processes(), adaptive.maximum)


def has_one_process() -> bool:
    """Return whether there is a cluster with one worker process that does not adapt."""
    client = get_active_client()
    if client is None or len(_get_worker_threads()) != 1:
        return False
    return _get_adaptive(client) is None


def get_memory_per_thread() -> int | None:
    """Return the bytes per thread of the smallest worker; None without a cluster or a limit."""
    client = get_active_client()
    if client is None:
        return None
    try:
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
    except (OSError, KeyError):
        return None  # the client has not received anything from its scheduler yet
    shares = [
        worker["memory_limit"] // max(1, worker["nthreads"])
        for worker in workers
        if worker["memory_limit"]
    ]
    return min(shares, default=None)


def _get_adaptive(client: Any) -> Any | None:
    """Return the Adaptive object of the cluster of a client; None if it does not adapt."""
    # It loads distributed, which a client has loaded already.
    from hyperplane.core.dask_internals.clients import get_adaptive

    return get_adaptive(client.cluster)


def _get_worker_threads() -> list[int]:
    """Return the number of threads of each worker; empty without a cluster."""
    client = get_active_client()
    try:
        return [] if client is None else list(client.nthreads().values())
    except OSError:
        return []  # the cluster is closed, the client is not
