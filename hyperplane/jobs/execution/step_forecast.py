"""Forecast of the memory that a step needs, as the job keeps it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Self

from hyperplane.core.units import format_bytes, plural

if TYPE_CHECKING:
    from hyperplane.forecasts.step_memory import StepMemory

#: Most characters of the reason of a failure, in one line.
_LONGEST = 300


@dataclass(frozen=True)
class StepForecast:
    """Forecast of a step, or why there is none.

    Parameters
    ----------
    target : str
        The collection, as the step names it.
    failure : str
        Why there is no forecast; empty if there is one.
    high, ram_per_proc, node, cores, runs, cost
        As of :class:`~hyperplane.forecasts.step_memory.StepMemory`.
    """

    target: str
    failure: str = ""
    high: int = 0
    ram_per_proc: int = 0
    node: Mapping[int, int] = field(default_factory=dict)
    cores: int = 0
    runs: int = 0
    cost: float = 0.0

    def __post_init__(self) -> None:
        # The texts of errors have several lines, and any length.
        object.__setattr__(self, "failure", " ".join(self.failure.split())[:_LONGEST])

    @classmethod
    def of(cls, target: str, memory: StepMemory) -> Self:
        """Return the forecast of a target."""
        return cls(target, **asdict(memory))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a forecast.

        Raises
        ------
        ValueError, TypeError, AttributeError, KeyError
            If the text is no forecast.
        """
        values = json.loads(text)
        node = {int(threads): int(size) for threads, size in values.pop("node").items()}
        return cls(**values, node=node)

    def to_json(self) -> str:
        """Return the forecast as a JSON document."""
        return json.dumps(asdict(self))

    def find_node(self, cores: float) -> int:
        """Return the bytes of all processes on a node with so many cores.

        Examples
        --------
        >>> found = StepForecast("job.py:totals", node={4: 300, 16: 900})
        >>> found.find_node(15), found.find_node(16), found.find_node(1)
        (300, 900, 300)
        """
        fewer = [threads for threads in self.node if threads <= cores]
        return self.node[max(fewer, default=min(self.node))]

    def describe(self, size: int, where: str) -> str:
        """Return what a size is chosen by."""
        runs = f", from {plural(self.runs, 'earlier run')} of the program" if self.runs else ""
        return f"up to {format_bytes(size)} {where} by the forecast of {self.target}{runs}"
