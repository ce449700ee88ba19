"""What a unit of tasks takes, as simulations need it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class UnitCost:
    """What a unit takes.

    Parameters
    ----------
    kind : int
        Class of the unit.
    priority : int
        Order of its start.
    dependencies : tuple of int
        Numbers of the units that must end before.
    output : float
        Bytes of its results.
    transient : float
        Bytes that its process has in addition while it runs, the results included.
    seconds : float
        Duration.
    adds : mapping of str to float
        Bytes that it adds to each shuffle.
    ends : tuple of str
        Shuffles whose barrier it is.
    takes : tuple of (str, float)
        Shuffle and relative position, 0 to 1, of the partition that it takes out of it.
    heap : float
        Bytes of the transient memory that malloc does not return to the system afterwards.
    waiting : float
        Bytes by which its memory is larger if another partition waits between two of its tasks, if
        it has no inputs.
    block : float
        Bytes of its largest block of memory, if it handles tables.
    copied : float
        Share of its results that copies in other processes have: without the arrays of which the
        results are views.
    inputs : tuple of float
        Bytes of the results of each dependency that it needs; empty if it needs all.
    is_piece : bool
        Whether it takes a piece of a divided table, in a shuffle with tasks.
    is_view : bool
        Whether its result is a part of that of its only dependency, which is not copied: in the
        process that has both it takes no memory, but keeps all of the other one.
    """

    kind: int
    priority: int
    dependencies: tuple[int, ...]
    output: float
    transient: float
    seconds: float
    adds: Mapping[str, float] = field(default_factory=dict)
    ends: tuple[str, ...] = ()
    takes: tuple[tuple[str, float], ...] = ()
    heap: float = 0.0
    waiting: float = 0.0
    block: float = 0.0
    copied: float = 1.0
    inputs: tuple[float, ...] = ()
    is_piece: bool = False
    is_view: bool = False

    def list_inputs(self) -> Iterable[tuple[int, float]]:
        """Return each dependency with the bytes of its results that the unit needs."""
        sizes = self.inputs or (math.inf,) * len(self.dependencies)
        return zip(self.dependencies, sizes, strict=True)
