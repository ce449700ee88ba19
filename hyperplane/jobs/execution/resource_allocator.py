"""Allocation of this machine's cores, memory and GPUs to concurrent steps."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from hyperplane import config
from hyperplane.jobs.definition.step import Step
from hyperplane.platforms.local import machine
from hyperplane.platforms.local.gpus import count_device_files


class Demand(NamedTuple):
    """Resources that one process of a step takes, as integers so that sums are exact.

    Parameters
    ----------
    millicores : int
        Thousandths of a core.
    memory : int
        Bytes.
    slots : int
        Slots, for a step that sets no resources.
    gpus : int
        GPUs.
    """

    millicores: int = 0
    memory: int = 0
    slots: int = 0
    gpus: int = 0


class _WaitingRequest(NamedTuple):
    """Request of a step that waits for its resources."""

    ticket: int
    demand: Demand
    granted: asyncio.Future[None]


def find_step_memory(step: Step, memory_factor: float = 1.0) -> int | None:
    """Return the bytes of memory that a process of a step asks for; None if it asks for none.

    ``memory_factor`` multiplies them, after earlier attempts ran out of memory.
    """
    gigabytes = step.resources.ram_gb
    if step.resources.pool is not None and gigabytes is None:
        gigabytes = config.get_pool(step.resources.pool).allocatable_ram_gb
    return None if gigabytes is None else int(gigabytes * 1e9 * memory_factor)


class ResourceAllocator:
    """Free resources shared by all jobs of a supervisor, granted in order of request.

    Parameters
    ----------
    cores : float
        Cores of the machine.
    memory : float
        Bytes of memory.
    slots : int
        Maximum number of concurrent steps that set no resources.
    gpus : int
        GPUs. 1 if none can be counted: steps that need GPUs then run one at a time.

    Examples
    --------
    >>> capacity = ResourceAllocator(cores=4, memory=8e9, slots=16)
    >>> step = Step(name="a", kind="command", argv=("true",), resources={"cores": 1.5})
    >>> capacity.demand(step), capacity.chunks_at_once(step)
    (Demand(millicores=1500, memory=0, slots=0, gpus=0), 2)
    """

    def __init__(self, cores: float, memory: float, slots: int, gpus: int = 1) -> None:
        self._total = self._free = Demand(round(cores * 1000), int(memory), slots, gpus)
        # One queue per combination of resources: a step that waits for a slot does not hold up a
        # step that waits for memory.
        self._queues: dict[tuple[bool, ...], deque[_WaitingRequest]] = defaultdict(deque)
        self._tickets = 0

    @classmethod
    def detect(cls) -> ResourceAllocator:
        """Return the capacity of this machine, or of the control group of this process."""
        slots = config.jobs().steps_at_once
        return cls(machine.cores(), machine.free_ram(), slots, max(1, count_device_files()))

    def demand(self, step: Step, memory_factor: float = 1.0) -> Demand:
        """Return the resources that a step takes, with all its ranks; at most the whole machine.

        ``memory_factor`` multiplies its memory, after earlier attempts ran out of memory.
        """
        resources = step.resources
        cores, gpus = resources.cores, resources.gpus
        memory = find_step_memory(step, memory_factor)
        if resources.pool is not None:
            pool = config.get_pool(resources.pool)
            cores = pool.allocatable_cores if cores is None else cores
            gpus = gpus or pool.gpus
        ranks = max(1, step.gang_size)
        gpus = min(gpus * ranks, self._total.gpus)
        if cores is None and memory is None:
            return Demand(slots=min(ranks, self._total.slots), gpus=gpus)
        millicores = max(1, round((1.0 if cores is None else cores) * 1000)) * ranks
        memory = (memory or 0) * ranks
        if millicores > self._total.millicores or memory > self._total.memory:
            return self._total._replace(gpus=gpus)  # takes all slots, too: nothing else can start
        return Demand(millicores, memory, gpus=gpus)

    def chunks_at_once(self, step: Step, usual: int | None = None) -> int:
        """Return how many chunks of a step may run concurrently; at least 1.

        ``usual`` is the maximum for steps without ``max_parallel``, cores and memory; by default
        that of the configuration.
        """
        demand = self.demand(step)
        fit = min(
            total // needed for total, needed in zip(self._total, demand, strict=True) if needed
        )
        most = step.max_parallel
        if most is None and demand.slots:
            most = usual or config.jobs().chunks_at_once or machine.cores()
        return max(1, fit if most is None else min(fit, most))

    @asynccontextmanager
    async def reserve(self, demand: Demand) -> AsyncIterator[None]:
        """Reserve resources for a block; wait until they are free."""
        granted = asyncio.get_running_loop().create_future()
        self._tickets += 1
        self._queues[_needed_kinds(demand)].append(_WaitingRequest(self._tickets, demand, granted))
        self._grant_requests()
        try:
            await granted
            yield
        finally:
            if not granted.cancelled():
                self._adjust_free(demand, 1)
            self._grant_requests()  # others may have waited behind a cancelled request

    def _grant_requests(self) -> None:
        """Grant all requests that fit and need no resource that an earlier one waits for."""
        while (first := self._pop_next_request()) is not None:
            self._adjust_free(first.demand, -1)
            first.granted.set_result(None)

    def _pop_next_request(self) -> _WaitingRequest | None:
        queue_heads = []
        for needs, queue in list(self._queues.items()):
            while queue and queue[0].granted.cancelled():
                queue.popleft()
            if queue:
                queue_heads.append((queue[0].ticket, needs, queue))
            else:
                del self._queues[needs]
        awaited_kinds: set[int] = set()
        for _, needs, queue in sorted(queue_heads):
            kinds = {kind for kind, needed in enumerate(needs) if needed}
            if not kinds & awaited_kinds and self._fits(queue[0].demand):
                return queue.popleft()
            awaited_kinds |= kinds
        return None

    def _fits(self, demand: Demand) -> bool:
        return all(amount <= free for amount, free in zip(demand, self._free, strict=True))

    def _adjust_free(self, demand: Demand, sign: int) -> None:
        both = zip(self._free, demand, strict=True)
        self._free = Demand(*(free + sign * amount for free, amount in both))


def _needed_kinds(demand: Demand) -> tuple[bool, ...]:
    return tuple(amount > 0 for amount in demand)
