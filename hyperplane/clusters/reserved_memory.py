"""Memory that is reserved for open clusters on this machine but not allocated yet.

The operating system reports it as free: a worker process allocates memory only when it gets data.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import psutil

from hyperplane.clusters import records
from hyperplane.core.units import gb_to_bytes
from hyperplane.spec.engine_names import platform_of

#: Platforms whose engines run worker processes on this machine.
PLATFORMS = ("local", "cuda")
#: Texts in the command lines or titles of Dask's worker processes and of Spark's executors.
_WORKER_COMMANDS = (
    "multiprocessing.forkserver", "multiprocessing.spawn", "dask worker",
    "CoarseGrainedExecutorBackend",
)  # fmt: skip


def open_clusters() -> list[records.ClusterRecord]:
    """Return the records of this user's clusters that run or start on this machine."""
    try:
        running = records.read_all(starting=True)
    except OSError:  # the start of a cluster reports it
        return []
    return [record for record in running if platform_of(record.engine) in PLATFORMS]


def unreserved_memory(free: int, fraction: float, clusters: Sequence[records.ClusterRecord]) -> int:
    """Return the bytes that one more cluster may reserve, beside the open clusters.

    All clusters together may reserve a ``fraction`` of the memory that is free (``free`` bytes) or
    in use by the open ones. One more may reserve at least a tenth of that, so that a program can
    start a cluster while those of another program have reserved everything, but never more than
    the ``fraction`` of the free memory.
    """
    if not clusters:
        return round(free * fraction)
    reserved = sum(gb_to_bytes(record.ram_gb) for record in clusters)
    used = sum(map(memory_used_by, {record.pid for record in clusters}))
    share = (free + min(used, reserved)) * fraction
    return round(min(free * fraction, max(share - reserved, share / 10)))


def memory_used_by(pid: int) -> int:
    """Return the unshared bytes (USS) of the worker processes below a process."""
    total = 0
    with suppress(psutil.Error):
        for child in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.Error):
                command = " ".join(child.cmdline())
                if any(text in command for text in _WORKER_COMMANDS):
                    total += child.memory_full_info().uss
    return total
