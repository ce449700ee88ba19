"""How much of this machine steps may take at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from hyperplane import config
from hyperplane.engines import machine
from hyperplane.jobs.definition.models import Step


@dataclass(frozen=True)
class Demand:
    """What one process of a step takes.

    Parameters
    ----------
    cores : float
        Cores.
    memory : float
        Bytes.
    slots : int
        Places among the steps that do not say what they need.
    """

    cores: float = 0.0
    memory: float = 0.0
    slots: int = 0


class Capacity:
    """What is free, over all jobs of a supervisor.

    Parameters
    ----------
    cores : float
        Cores of the machine.
    memory : float
        Its bytes.
    slots : int
        Steps at once that do not say what they need.
    """

    def __init__(self, cores: float, memory: float, slots: int) -> None:
        self.cores, self.memory, self.slots = cores, memory, slots
        self._free = Demand(cores, memory, slots)
        self._changed = asyncio.Condition()

    @classmethod
    def of_this_machine(cls) -> Capacity:
        """What this machine, or the control group around this process, gives."""
        return cls(machine.cores(), machine.free_ram(), config.jobs().steps_at_once)

    def demand(self, step: Step, times_more: float = 1.0) -> Demand:
        """What a step takes; one that asks for more than there is gets the whole machine."""
        asked = step.resources
        cores, gigabytes = asked.cores, asked.ram_gb
        if asked.pool is not None:
            pool = config.get_pool(asked.pool)
            cores = pool.allocatable_cores if cores is None else cores
            gigabytes = pool.allocatable_ram_gb if gigabytes is None else gigabytes
        if cores is None and gigabytes is None:
            return Demand(slots=1)
        memory = (gigabytes or 0.0) * 1e9 * times_more
        return Demand(min(cores or 1.0, self.cores), min(memory, self.memory))

    @asynccontextmanager
    async def taken(self, demand: Demand) -> AsyncIterator[None]:
        """Have what a step needs, for a block; wait for it as long as others have it."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._fits(demand))
            self._give(demand, -1)
        try:
            yield
        finally:
            async with self._changed:
                self._give(demand, 1)
                self._changed.notify_all()

    def _fits(self, demand: Demand) -> bool:
        slack = 1e-9  # sums of fractions of a core
        return (
            demand.cores <= self._free.cores + slack
            and demand.memory <= self._free.memory + slack
            and demand.slots <= self._free.slots
        )

    def _give(self, demand: Demand, sign: int) -> None:
        free = self._free
        self._free = Demand(
            free.cores + sign * demand.cores,
            free.memory + sign * demand.memory,
            free.slots + sign * demand.slots,
        )


def chunks_at_once(step: Step) -> int:
    """How many chunks of a step may run beside each other."""
    if step.max_parallel is not None:
        return step.max_parallel
    if step.resources.cores or step.resources.ram_gb or step.resources.pool:
        return 100_000  # what they take bounds them
    return config.jobs().chunks_at_once or machine.cores()
