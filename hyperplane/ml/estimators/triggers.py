"""Triggers of checkpoints, under Orca's names."""

from __future__ import annotations

from dataclasses import dataclass

from hyperplane.core.argument_checks import find_count_faults
from hyperplane.core.errors import check


@dataclass(frozen=True)
class EveryEpoch:
    """Write a checkpoint after each epoch."""


@dataclass(frozen=True)
class SeveralIteration:
    """Write a checkpoint after each epoch, and after every ``interval`` steps.

    Parameters
    ----------
    interval : int
        Number of steps.
    """

    interval: int

    def __post_init__(self) -> None:
        check(find_count_faults("interval", self.interval))
