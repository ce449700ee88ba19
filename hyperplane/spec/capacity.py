"""What one machine has to give."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MachineCapacity:
    """What one machine has to give to worker processes now.

    Parameters
    ----------
    cores : int
        Cores that this process may use.
    ram : int
        Bytes of memory that may be given away.
    clusters : tuple of str
        Names of the open clusters that have the rest of its memory.
    own : tuple of str
        Those of them that this process has started.
    promised : int
        Bytes that these were given.
    """

    cores: int
    ram: int
    clusters: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    promised: int = 0
