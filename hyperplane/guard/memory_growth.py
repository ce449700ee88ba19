"""Raise the memory limits of workers into memory that is free on their machine.

A worker that is about to be ended for its memory gets a larger limit instead, and goes on: nothing
is lost, and nothing runs again. Its limit grows in steps, as it needs more, and stays.

All limits together never exceed their original sum and a share of the memory that would be free if
the workers used just that sum.

Remote schedulers receive this module pickled by value, so it imports only modules that are sent
with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from hyperplane.core.dask_internals.nannies import find_nanny
from hyperplane.guard import worker_limits
from hyperplane.guard.memory_advice import describe_operation
from hyperplane.guard.server_calls import run_in_server

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import WorkerState

logger = logging.getLogger(__name__)

#: Factor by which a limit grows at least, if there is so much memory. Other workers may need some.
STEP = 1.5
#: Memory that a process has with its new limit, in multiples of what it uses: at least, so that it
#: is not ended at once (at 95 %), and if there is so much, as it may allocate fast.
LEAST_ROOM, ROOM = 1.1, 1.2
#: Memory of an idle worker in multiples of what it uses, or of its largest result.
_IDLE = 2.0
#: Seconds that a worker may take to set its limit, while a task may hold the GIL.
_SECONDS = 60.0
#: Name of Dask's plugin that sends the properties of workers to the cluster object.
_STATUS = "worker-status"


class FreeMemory(Protocol):
    """The memory of the machine beyond the limits of the workers of one cluster."""

    def read(self, limits: int, used: int) -> int:
        """Return the bytes that workers may use beyond their original limits.

        ``limits`` is the sum of these limits, and ``used`` what the workers use now.
        """
        ...

    def note(self, total: int) -> None:
        """Tell other clusters on this machine that the workers may use ``total`` bytes."""
        ...


def find_target(limit: int, used: int, needed: int, most: int) -> int:
    """Return the limit to which one grows, in bytes; 0 if there is no memory for that.

    Parameters
    ----------
    limit, used, needed : int
        Present limit, present memory, and known need; 0 if it is not known.
    most : int
        Largest allowed limit.

    Examples
    --------
    >>> find_target(1000, 950, 0, 6000), find_target(1000, 0, 3000, 6000)
    (1500, 3000)
    >>> find_target(5000, 4800, 0, 6000), find_target(5800, 5600, 0, 6000)
    (6000, 0)
    """
    if most < max(needed, LEAST_ROOM * used, limit + 1):
        return 0
    return min(most, max(needed, int(ROOM * used), int(STEP * limit)))


class MemoryGrowth:
    """The limits of the workers of one machine.

    Parameters
    ----------
    scheduler : Scheduler
        Scheduler of this process.
    source : FreeMemory or None
        Free memory of the machine; None if workers stay within their limits.
    warn : callable, optional
        Receives each warning.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        source: FreeMemory | None,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        self.scheduler, self.source = scheduler, source
        self._warn = warn or logger.warning
        self._warned: set[str] = set()
        #: Limits at first and now, by nanny, and nannies whose worker was removed on purpose.
        self._originals: dict[str, int] = {}
        self._limits: dict[str, int] = {}
        self._gone: set[str] = set()
        self._smallest = 0
        self._work: set[asyncio.Task[Any]] = set()
        for worker in scheduler.workers.values():
            self.add_worker(worker)

    def close(self) -> None:
        """End the calls that are not complete."""
        for work in self._work:
            work.cancel()

    def add_worker(self, worker: WorkerState) -> None:
        """Note the limit of a worker, which its nanny may have started again."""
        if self.source is None or not worker.nanny or not worker.memory_limit:
            return
        self._gone.discard(worker.nanny)
        self._originals.setdefault(worker.nanny, worker.memory_limit)
        limit = self._limits.setdefault(worker.nanny, worker.memory_limit)
        if limit != worker.memory_limit:  # changed while its process was being started
            self._set_limit(worker, limit)
        self._smallest = min(self._originals.values())
        if self._limits != self._originals and self._sum_limits() > self.find_bound():
            self._reclaim(worker)

    def remove_worker(self, nanny: str) -> None:
        """Note that a worker was removed on purpose, as by ``scale``."""
        self._gone.add(nanny)

    @property
    def smallest(self) -> int:
        """The smallest limit that a worker had at first; 0 without workers."""
        return self._smallest

    def find_bound(self) -> int:
        """Return the bytes that all workers together may use; 0 if limits do not grow."""
        if self.source is None:
            return 0
        limits = sum(self._originals[nanny] for nanny in self._originals.keys() - self._gone)
        workers = self.scheduler.workers.values()
        used = sum(each.memory.process for each in workers if each.nanny in self._originals)
        return limits + max(0, self.source.read(limits, used))

    def grow(self, worker: WorkerState, operation: str, peak: int, needed: int = 0) -> bool:
        """Raise the limit of a worker; return whether it has grown.

        Parameters
        ----------
        worker : WorkerState
            The worker.
        operation : str
            Prefix of the task that needs the memory.
        peak : int
            Largest memory of its process in bytes; 0 if the task has not begun.
        needed : int
            Bytes that it needs, if they are known.
        """
        nanny, limit = worker.nanny, worker.memory_limit
        if self.source is None or nanny not in self._limits or limit != self._limits[nanny]:
            return False  # the limit of a worker that has lent its memory, or has that of others
        bound = self.find_bound()
        most = bound - self._sum_limits() + limit
        if most < max(needed, ROOM * peak, STEP * limit):
            most += self._reclaim(worker)
        target = find_target(limit, peak, needed, most)
        if not target:
            return False
        self._limits[nanny] = target
        self._set_limit(worker, target)
        self.source.note(self._sum_limits())
        if operation not in self._warned:
            self._warned.add(operation)
            self._warn(describe_growth(str(worker.name), operation, peak, limit, target, bound))
        return True

    def _sum_limits(self) -> int:
        """Return the present limits of all workers, also of those that start again, in bytes."""
        return sum(self._limits[nanny] for nanny in self._limits.keys() - self._gone)

    def _reclaim(self, needy: WorkerState) -> int:
        """Lower the limits of workers that have grown and run nothing; return the bytes.

        They grow again if they need it.
        """
        before = self._sum_limits()
        workers = list(self.scheduler.workers.values())
        for absent in self._limits.keys() - self._gone - {each.nanny for each in workers}:
            if self._limits[absent] != self._originals[absent]:  # its worker is being started
                self._limits[absent] = self._originals[absent]
                self._set_nanny(absent, self._limits[absent])
        for worker in workers:
            nanny = worker.nanny
            if worker is needy or worker.processing or nanny not in self._limits:
                continue
            used = worker.memory.process
            held = max([used, *(task.get_nbytes() for task in worker.has_what)])
            target = max(self._originals[nanny], int(_IDLE * held))
            if target < worker.memory_limit == self._limits[nanny]:
                self._limits[nanny] = target
                self._set_limit(worker, target)
        return before - self._sum_limits()

    def _set_limit(self, worker: WorkerState, limit: int) -> None:
        """Set the limit as the scheduler and the nanny know it now, and in the worker soon."""
        self.scheduler.total_memory += limit - worker.memory_limit
        worker.memory_limit = limit
        status: Any = self.scheduler.plugins.get(_STATUS)
        if status is not None:  # the cluster object has a copy of the limit, which its text shows
            status.add_worker(self.scheduler, worker.address)
        self._set_nanny(str(worker.nanny), limit)
        self._send(worker.address, limit, False)

    def _set_nanny(self, address: str, limit: int) -> None:
        """Set the limit of a nanny, and of the processes that it starts."""
        nanny = find_nanny(address)
        if nanny is not None:  # before it looks at the memory again
            change: Any = worker_limits.set_memory_limit
            change(limit, True, nanny)
        else:
            self._send(address, limit, True)

    def _send(self, address: str, limit: int, keep: bool) -> None:
        change: Any = worker_limits.set_memory_limit
        call = run_in_server(self.scheduler, address, change, limit, keep, seconds=_SECONDS)
        work = asyncio.ensure_future(call)
        self._work.add(work)
        work.add_done_callback(self._work.discard)


def describe_growth(
    worker: str, operation: str, peak: int, limit: int, target: int, bound: int
) -> str:
    """Return the warning about the first growth for an operation."""
    name = describe_operation(operation) or "results"
    happened = f"peak {_gigabytes(peak)} of {_gigabytes(limit)}" if peak else "inputs"
    return (
        f"worker {worker} would have run out of memory in {name} ({happened}). Its limit is "
        f"{_gigabytes(target)} now, and grows further while it needs more, because this machine "
        f"has free memory: all workers may use {_gigabytes(bound)} until the cluster closes. Then "
        "a line says what they needed, for ram_gb_per_proc of the next start; "
        'engine_options={"oom_free_memory": 0} keeps workers within their limits'
    )


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.2f} GB"
