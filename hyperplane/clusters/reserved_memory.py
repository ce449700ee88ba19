"""Memory that open clusters on this machine were promised but do not use yet.

The machine still counts it as free: a worker process allocates its memory only as data arrive.
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
#: Texts in the command line or title of worker processes that Dask has started.
_WORKER = ("multiprocessing.forkserver", "multiprocessing.spawn", "dask worker")


def open_clusters() -> list[records.ClusterRecord]:
    """Return the records of this user's clusters that run or start on this machine."""
    try:
        found = records.read_all(starting=True)
    except OSError:  # the start of a cluster reports it
        return []
    return [record for record in found if platform_of(record.engine) in PLATFORMS]


def unreserved_memory(free: int, fraction: float, clusters: Sequence[records.ClusterRecord]) -> int:
    """Return the bytes that one more cluster can have.

    At least a tenth of what all clusters may have together, so that a program can run while the
    clusters of another one hold everything.

    Parameters
    ----------
    free : int
        Bytes that are free now.
    fraction : float
        Fraction of the memory that all clusters may have together.
    clusters : sequence of ClusterRecord
        The open clusters.
    """
    if not clusters:
        return round(free * fraction)
    promised = sum(gb_to_bytes(record.ram_gb) for record in clusters)
    used = sum(map(_memory_used_by, {record.pid for record in clusters}))
    shared = (free + min(used, promised)) * fraction
    return round(min(free * fraction, max(shared - promised, shared / 10)))


def _memory_used_by(pid: int) -> int:
    """Return the unshared bytes (USS) of the worker processes below a process."""
    total = 0
    with suppress(psutil.Error):
        for child in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.Error):
                command = " ".join(child.cmdline())
                if any(words in command for words in _WORKER):
                    total += child.memory_full_info().uss
    return total
