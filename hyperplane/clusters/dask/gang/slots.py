"""Slots of gangs: threads of workers, reserved on the scheduler for all ranks of a gang at once.

All functions run on the event loop of the scheduler, one after the other, so that no reservation
is ever half complete. Gangs wait in the order of their requests. Reservations of clients that have
disconnected are removed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hyperplane.core.dask_internals.clients import remove_events

#: Name of the table among the scheduler's extensions.
_EXTENSION = "hyperplane-gangs"


@dataclass(frozen=True)
class Slot:
    """A thread of a worker."""

    worker: str
    host: str


@dataclass(frozen=True)
class SlotReport:
    """Reserved slots, in order of rank; empty while the gang waits, for the ``reason``."""

    slots: tuple[Slot, ...]
    threads: int
    reason: str = ""


@dataclass
class _SlotTable:
    """Reservations and waiting gangs; the keys are the ids of gangs."""

    reserved: dict[str, tuple[Slot, ...]] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    clients: dict[str, str] = field(default_factory=dict)

    def remove(self, gang: str) -> None:
        self.reserved.pop(gang, None)
        self.waiting.pop(gang, None)
        self.clients.pop(gang, None)


def reserve_slots(gang: str, client: str, n: int, dask_scheduler: Any = None) -> SlotReport:
    """Reserve n slots for a gang, or none; a gang that gets none keeps its place in the queue."""
    table = _get_table(dask_scheduler)
    for other, owner in list(table.clients.items()):
        if owner not in dask_scheduler.clients:
            table.remove(other)
    table.clients[gang] = client
    table.reserved.pop(gang, None)
    table.waiting.setdefault(gang, n)
    workers = _find_workers(dask_scheduler)
    threads = sum(worker.nthreads for worker in workers)
    # A gang that needs more threads than there are must not keep the others waiting.
    queue = [name for name, size in table.waiting.items() if size <= threads]
    if gang not in queue:
        return SlotReport((), threads, f"the cluster has {threads} threads of the {n} needed")
    if queue[0] != gang:
        return SlotReport((), threads, f"{queue.index(gang)} other gangs wait for slots before it")
    slots = _place(workers, table, n)
    if not slots:
        running = len(table.reserved)
        return SlotReport((), threads, f"other gangs ({running}) use the threads of the cluster")
    del table.waiting[gang]
    table.reserved[gang] = slots
    return SlotReport(slots, threads)


def release_slots(gang: str, dask_scheduler: Any = None) -> None:
    """Release the slots of a gang and its events."""
    _get_table(dask_scheduler).remove(gang)
    remove_events(dask_scheduler, gang)


def _get_table(scheduler: Any) -> _SlotTable:
    table: _SlotTable = scheduler.extensions.setdefault(_EXTENSION, _SlotTable())
    return table


def _find_workers(scheduler: Any) -> list[Any]:
    return [worker for worker in scheduler.workers.values() if worker.status.name == "running"]


def _place(workers: list[Any], table: _SlotTable, n: int) -> tuple[Slot, ...]:
    """Distribute n ranks evenly over workers with free threads; empty if there are too few.

    Ranks of one host are consecutive, and so are those of one worker.
    """
    used = Counter(slot.worker for slots in table.reserved.values() for slot in slots)
    free = {worker.address: worker.nthreads - used[worker.address] for worker in workers}
    counts: Counter[str] = Counter()
    order = {worker.address: len(worker.processing) for worker in workers}
    for _ in range(n):
        choices = [name for name in free if counts[name] < free[name]]
        if not choices:
            return ()
        # The fewest ranks of this gang, then the most free threads, then the fewest tasks.
        counts[min(choices, key=lambda name: (counts[name], -free[name], order[name]))] += 1
    chosen = sorted(
        (worker for worker in workers if counts[worker.address]), key=lambda worker: worker.host
    )
    return tuple(
        Slot(worker.address, worker.host)
        for worker in chosen
        for _ in range(counts[worker.address])
    )
