"""Cores and memory of this machine that one more cluster may use."""

from __future__ import annotations

import os

from hyperplane.clusters.reserved_memory import open_clusters, unreserved_memory
from hyperplane.core.units import gb_to_bytes
from hyperplane.platforms.local import machine
from hyperplane.spec.capacity import MachineCapacity


def read_capacity(reserve_fraction: float) -> MachineCapacity:
    """Return the usable cores, and the memory that one more cluster may reserve.

    ``reserve_fraction`` of the free memory is left to other processes.
    """
    clusters = open_clusters()
    return MachineCapacity(
        machine.cores(),
        unreserved_memory(machine.free_ram(), 1 - reserve_fraction, clusters),
        clusters=tuple(record.name for record in clusters),
        own=tuple(record.name for record in clusters if record.pid == os.getpid()),
        # Clusters that are started with local_fit="exact" may ask for more than there is.
        reserved_ram=min(
            sum(gb_to_bytes(record.ram_gb) for record in clusters), machine.total_ram()
        ),
    )
