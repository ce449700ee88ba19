"""Triggers of checkpoints, under Orca's names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hyperplane.core.argument_checks import describe_value, find_count_faults
from hyperplane.core.errors import Fault, check


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


def find_trigger_faults(trigger: Any) -> list[Fault]:
    """Return the fault of a trigger of checkpoints."""
    if trigger is None or isinstance(trigger, EveryEpoch | SeveralIteration):
        return []
    allowed = "EveryEpoch() or SeveralIteration(interval)"
    return [Fault("checkpoint_trigger", describe_value(trigger), allowed)]
