"""How much of this machine steps may take at once."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from hyperplane import config
from hyperplane.engines import machine
from hyperplane.jobs.definition.models import Step

#: Where the devices of GPUs are; in a container only those that it may use.
_DEVICE_FOLDER = Path("/dev")


class Demand(NamedTuple):
    """What one process of a step takes, in whole numbers, so that sums are exact.

    Parameters
    ----------
    millicores : int
        Thousandths of a core.
    memory : int
        Bytes.
    slots : int
        Places among the steps that do not say what they need.
    gpus : int
        GPUs.
    """

    millicores: int = 0
    memory: int = 0
    slots: int = 0
    gpus: int = 0


class _WaitingRequest(NamedTuple):
    """A step that waits for what it needs."""

    ticket: int
    demand: Demand
    turn: asyncio.Future[None]


class Capacity:
    """What is free, over all jobs of a supervisor; first come, first served.

    Parameters
    ----------
    cores : float
        Cores of the machine.
    memory : float
        Its bytes.
    slots : int
        Steps at once that do not say what they need.
    gpus : int
        Its GPUs. Where none can be counted it is one: steps that ask for them take turns.

    Examples
    --------
    >>> capacity = Capacity(cores=4, memory=8e9, slots=16)
    >>> step = Step(name="a", kind="command", argv=("true",), resources={"cores": 1.5})
    >>> capacity.demand(step), capacity.chunks_at_once(step)
    (Demand(millicores=1500, memory=0, slots=0, gpus=0), 2)
    """

    def __init__(self, cores: float, memory: float, slots: int, gpus: int = 1) -> None:
        self._all = self._free = Demand(round(cores * 1000), int(memory), slots, gpus)
        # One line for each combination of what is needed: who waits for a place among the
        # unmeasured steps holds up nobody who waits for memory.
        self._lines: dict[tuple[bool, ...], deque[_WaitingRequest]] = defaultdict(deque)
        self._tickets = 0

    @classmethod
    def detect(cls) -> Capacity:
        """What this machine, or the control group around this process, gives."""
        slots = config.jobs().steps_at_once
        return cls(machine.cores(), machine.free_ram(), slots, max(1, _count_gpus()))

    def demand(self, step: Step, memory_factor: float = 1.0) -> Demand:
        """What a step takes; one that asks for more than there is takes the whole machine.

        Parameters
        ----------
        step : Step
            The step.
        memory_factor : float
            By which its memory has grown since it ran out of it.
        """
        asked = step.resources
        cores, gigabytes, gpus = asked.cores, asked.ram_gb, asked.gpus
        if asked.pool is not None:
            pool = config.get_pool(asked.pool)
            cores = pool.allocatable_cores if cores is None else cores
            gigabytes = pool.allocatable_ram_gb if gigabytes is None else gigabytes
            gpus = gpus or pool.gpus
        gpus = min(gpus, self._all.gpus)
        if cores is None and gigabytes is None:
            return Demand(slots=1, gpus=gpus)
        millicores = max(1, round((1.0 if cores is None else cores) * 1000))
        memory = int((gigabytes or 0.0) * 1e9 * memory_factor)
        if millicores > self._all.millicores or memory > self._all.memory:
            return self._all._replace(gpus=gpus)  # with all slots nothing else can begin
        return Demand(millicores, memory, gpus=gpus)

    def chunks_at_once(self, step: Step, usual: int | None = None) -> int:
        """How many chunks of a step may run beside each other; at least one.

        Parameters
        ----------
        step : Step
            The step.
        usual : int, optional
            How many there are of a step that does not say; as this configuration has it unless
            given.
        """
        demand = self.demand(step)
        fit = min(there // one for there, one in zip(self._all, demand, strict=True) if one)
        most = step.max_parallel
        if most is None and demand.slots:
            most = usual or config.jobs().chunks_at_once or machine.cores()
        return max(1, fit if most is None else min(fit, most))

    @asynccontextmanager
    async def reserve(self, demand: Demand) -> AsyncIterator[None]:
        """Have what a step needs, for a block; wait for it as long as others have it."""
        turn = asyncio.get_running_loop().create_future()
        self._tickets += 1
        self._lines[_needed_kinds(demand)].append(_WaitingRequest(self._tickets, demand, turn))
        self._serve()
        try:
            await turn
            yield
        finally:
            if not turn.cancelled():
                self._give(demand, 1)
            self._serve()  # others may have waited behind one that gave up, too

    def _serve(self) -> None:
        """Give their turn to all that fit, and that take nothing an earlier one waits for."""
        while (first := self._next()) is not None:
            self._give(first.demand, -1)
            first.turn.set_result(None)

    def _next(self) -> _WaitingRequest | None:
        heads = []
        for needs, line in list(self._lines.items()):
            while line and line[0].turn.cancelled():
                line.popleft()
            if line:
                heads.append((line[0].ticket, needs, line))
            else:
                del self._lines[needs]
        wanted: set[int] = set()
        for _, needs, line in sorted(heads):
            kinds = {kind for kind, needed in enumerate(needs) if needed}
            if not kinds & wanted and self._fits(line[0].demand):
                return line.popleft()
            wanted |= kinds
        return None

    def _fits(self, demand: Demand) -> bool:
        return all(one <= free for one, free in zip(demand, self._free, strict=True))

    def _give(self, demand: Demand, sign: int) -> None:
        both = zip(self._free, demand, strict=True)
        self._free = Demand(*(free + sign * one for free, one in both))


def _needed_kinds(demand: Demand) -> tuple[bool, ...]:
    return tuple(one > 0 for one in demand)


def _count_gpus() -> int:
    """GPUs whose devices there are."""
    try:
        return sum(bool(re.fullmatch("nvidia[0-9]+", one.name)) for one in _DEVICE_FOLDER.iterdir())
    except OSError:
        return 0
