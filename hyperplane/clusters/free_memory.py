"""Memory of this machine that the workers of a cluster may use beyond their limits."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

import psutil

from hyperplane.clusters import records
from hyperplane.clusters.reserved_memory import memory_used_by, open_clusters
from hyperplane.core.units import bytes_to_gb, gb_to_bytes
from hyperplane.platforms.local import machine

logger = logging.getLogger(__name__)

#: Variable with the bytes of memory that a step of a job has, if it has asked for any.
STEP_MEMORY = "HYPERPLANE_STEP_MEMORY"


def read_allotment(environment: Mapping[str, str]) -> int | None:
    """Return the bytes that a step of a job, or a job of Slurm, may use here; None without limit.

    Slurm states MB of 2^20 bytes. 0 is all memory of the node.

    Examples
    --------
    >>> read_allotment({"SLURM_MEM_PER_CPU": "1000", "SLURM_CPUS_ON_NODE": "2"})
    2097152000
    """
    found = []
    if (step := _read_number(environment, STEP_MEMORY)) > 0:
        found.append(step)
    node = _read_number(environment, "SLURM_MEM_PER_NODE") or _read_number(
        environment, "SLURM_MEM_PER_CPU"
    ) * _read_number(environment, "SLURM_CPUS_ON_NODE")
    if node > 0:
        found.append(node * 2**20)
    return min(found, default=None)


def _read_number(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "")
    return int(text) if text.isdecimal() else 0


@dataclass(frozen=True)
class MachineMemory:
    """Memory of this machine beyond the limits of the workers of one cluster.

    Parameters
    ----------
    cluster : str
        Name of the cluster.
    share : float
        Share of the free memory that they may use.
    """

    cluster: str
    share: float

    @classmethod
    def of(cls, cluster: str, share: float) -> MachineMemory | None:
        """Return the memory for a cluster; None if it has no share."""
        return cls(cluster, share) if share > 0 else None

    def read(self, limits: int, used: int) -> int:
        """Return the bytes that workers may use beyond their original limits.

        That is a share of what would be free if they used these limits, ``limits`` together, and
        other clusters used what they have reserved. They use ``used`` bytes now.
        """
        reserved: dict[int, int] = {}
        for record in open_clusters():
            if record.name != self.cluster:
                reserved[record.pid] = reserved.get(record.pid, 0) + gb_to_bytes(record.ram_gb)
        # Without pages of files and of the forkserver, which are free, or shared by all workers.
        unshared = memory_used_by(os.getpid())
        used = min(used, unshared)
        in_use = {pid: memory_used_by(pid) for pid in reserved} | {os.getpid(): unshared - used}
        unused = sum(max(0, size - in_use[pid]) for pid, size in reserved.items())
        extra = round(self.share * (machine.free_ram() + used - limits - unused))
        allotment = read_allotment(os.environ)
        if allotment is not None:  # that of the program and its other clusters, too
            others = reserved.get(os.getpid(), 0) + psutil.Process().memory_info().rss
            extra = min(extra, allotment - limits - others)
        return max(0, extra)

    def note(self, total: int) -> None:
        """Tell other clusters that the workers may use ``total`` bytes."""
        try:
            for record in records.read_all():
                if record.name == self.cluster and record.pid == os.getpid():
                    records.write(replace(record, ram_gb=bytes_to_gb(total)))
        except OSError as error:  # such as a full disk; the others see what is used
            logger.info("the record of %s still has its first memory: %s", self.cluster, error)
