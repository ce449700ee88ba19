"""Memory that the open clusters on this machine were given and do not use yet.

The free memory of the machine does not show it: a worker process takes what it was given only as
its data come.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import psutil

from hyperplane.engines import records
from hyperplane.units import gb_to_bytes

#: Engines whose worker processes are on this machine.
ENGINES = ("local", "cuda")
#: What is in the command line or title of a worker process that Dask has started.
_WORKER = ("multiprocessing.forkserver", "multiprocessing.spawn", "dask worker")


def open_clusters() -> list[records.ClusterRecord]:
    """The clusters of this user that run or start on this machine, oldest first."""
    try:
        found = records.read_all(starting=True)
    except OSError:  # a start says so
        return []
    return [record for record in found if record.engine in ENGINES]


def unpromised_memory(free: int, fraction: float, clusters: Sequence[records.ClusterRecord]) -> int:
    """Bytes to give to one more cluster.

    Parameters
    ----------
    free : int
        Bytes that are free now.
    fraction : float
        Part of the memory that clusters may have together.
    clusters : sequence of Record
        The open ones.

    Returns
    -------
    int
        What they were not given; a tenth of what all may have at the least, so that a program
        runs while another one holds everything.
    """
    if not clusters:
        return round(free * fraction)
    promised = sum(gb_to_bytes(record.ram_gb) for record in clusters)
    used = sum(map(_used_by, {record.pid for record in clusters}))
    shared = (free + min(used, promised)) * fraction
    return round(min(free * fraction, max(shared - promised, shared / 10)))


def _used_by(pid: int) -> int:
    """Bytes that the worker processes under a process have for themselves."""
    total = 0
    with suppress(psutil.Error):
        for child in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.Error):
                command = " ".join(child.cmdline())
                if any(words in command for words in _WORKER):
                    total += child.memory_full_info().uss
    return total
