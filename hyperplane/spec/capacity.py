"""What one machine has to give."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Capacity:
    """What one machine has to give to worker processes now.

    Parameters
    ----------
    cores : int
        Cores that this process may use.
    ram : int
        Bytes of memory that may be given away.
    """

    cores: int
    ram: int
