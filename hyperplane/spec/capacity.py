"""Cores and memory of one machine that are available to worker processes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MachineCapacity:
    """Cores and memory of one machine that are available to worker processes now.

    Parameters
    ----------
    cores : int
        Cores that this process may use.
    ram : int
        Available bytes of memory.
    clusters : tuple of str
        Names of the open clusters on the machine.
    own : tuple of str
        Names of those that this process has started.
    reserved_ram : int
        Bytes of memory that the open clusters use or have reserved; ``ram`` does not include them.
    """

    cores: int
    ram: int
    clusters: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    reserved_ram: int = 0
