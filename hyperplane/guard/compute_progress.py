"""Progress of the tasks of a cluster, which its scheduler sends to the clients that show it.

Schedulers without this package receive this module by value.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from distributed.diagnostics.plugin import SchedulerPlugin
from tornado.ioloop import PeriodicCallback

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import TaskGroup, TaskPrefix

    from hyperplane.guard.graph_structure import Key

logger = logging.getLogger(__name__)

#: Topic on which a client says that it shows progress; the scheduler answers on that of the client.
TOPIC = "hyperplane-progress"
#: Seconds between two messages, at least.
INTERVAL = 0.5
#: Most operations in a message.
MAX_OPERATIONS = 6
#: Share of its time that the scheduler spends on progress, at most.
_MAX_SHARE = 0.01
#: States of a task that still has to be computed.
_ACTIVE = frozenset(("waiting", "queued", "no-worker", "processing"))


def client_topic(client: str) -> str:
    """Return the topic on which a client receives progress, by its id."""
    return f"{TOPIC}-{client}"


class OperationProgress:
    """Progress of the tasks of one operation, which is a task prefix of Dask.

    Parameters
    ----------
    prefix : TaskPrefix
        The prefix; the groups that are added are of it.
    """

    def __init__(self, prefix: TaskPrefix) -> None:
        self.prefix = prefix
        self.done = self.active = self.running = self.bytes = 0
        self.began = float("inf")

    def add(self, group: TaskGroup, done: int) -> None:
        """Add a group of tasks, of which some had ended before the computation began."""
        self.active += _count_active(group)
        self.done += _count_done(group) - done
        self.running += group.states["processing"]
        self.bytes += group.nbytes_total
        if group.start:
            self.began = min(self.began, group.start)


def _count_active(group: TaskGroup) -> int:
    return sum(count for state, count in group.states.items() if state in _ACTIVE)


def _count_done(group: TaskGroup) -> int:
    return sum(group.states.values()) - _count_active(group)


def group_operations(groups: Mapping[TaskGroup, int]) -> list[OperationProgress]:
    """Return the progress of each operation, those that have begun first.

    ``groups`` has the number of tasks of each group that had ended before.
    """
    operations: dict[str, OperationProgress] = {}
    for group, done in groups.items():
        prefix = group.prefix
        if prefix.name not in operations:
            operations[prefix.name] = OperationProgress(prefix)
        operations[prefix.name].add(group, done)
    return sorted(operations.values(), key=lambda each: each.began)


def estimate_seconds_left(
    operations: Iterable[OperationProgress], threads: int, seconds: float
) -> float | None:
    """Return how long the remaining tasks take; None if too few have finished to know.

    The mean duration of an operation's tasks, times those that remain, divided by the number of
    threads. Operations that have not begun take as long as all others did on average.
    """
    operations = list(operations)
    done = sum(each.done for each in operations)
    active = sum(each.active for each in operations)
    if not threads or done < max(threads, 0.02 * (done + active)):
        return None
    left, unknown = 0.0, 0
    for each in operations:
        if each.prefix.duration_average >= 0:
            left += each.active * each.prefix.duration_average / threads
        else:
            unknown += each.active
    return left + unknown * seconds / done


class ComputeProgress(SchedulerPlugin):
    """Scheduler plugin that tells clients how far the tasks of the cluster are.

    It measures nothing before a client has asked for it, and while there is nothing to compute.
    """

    name = "hyperplane-compute-progress"

    def __init__(self) -> None:
        self._clients: set[str] = set()
        #: Groups of the tasks that are computed; not those of Dask's Computation, which lacks a
        #: group that an earlier computation has created.
        self._groups: dict[TaskGroup, int] = {}
        self._timer: Any = None
        self._began = 0.0

    async def start(self, scheduler: Scheduler) -> None:
        """Remember the scheduler."""
        self.scheduler = scheduler

    def log_event(self, topic: str, msg: Any) -> None:
        """Note a client that shows progress."""
        if topic == TOPIC and isinstance(msg, dict) and msg.get("client") in self.scheduler.clients:
            self._clients.add(msg["client"])

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        """Forget a client that has disconnected."""
        del scheduler
        self._clients.discard(client)

    def update_graph(
        self, scheduler: Scheduler, *, client: str, tasks: Iterable[Key], **_: Any
    ) -> None:
        """Add tasks; the first ones begin a computation."""
        if client not in self._clients:
            return
        if scheduler.is_idle:
            self._groups = {}
            self._began = time.monotonic()
        # Those that are to be computed have not left their first state yet.
        states = (scheduler.tasks.get(key) for key in tasks)
        new = Counter(each.group for each in states if each and each.state == "released")
        for group, count in new.items():
            self._groups.setdefault(group, _count_done(group) - count)
        if self._timer is None:
            self._timer = PeriodicCallback(self._send, INTERVAL * 1000)
            self._timer.start()

    async def close(self) -> None:
        """Stop measuring."""
        self._stop()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        self._groups = {}

    def _send(self) -> None:
        began = time.perf_counter()
        scheduler = self.scheduler
        operations = group_operations(self._groups)
        if not self._clients or not any(each.active for each in operations):
            self._stop()
            return
        message = self._measure(operations)
        for client in self._clients:
            scheduler.log_event(client_topic(client), message)
        if self._timer is not None:
            took = time.perf_counter() - began
            self._timer.callback_time = 1000 * max(INTERVAL, took / _MAX_SHARE)

    def _measure(self, operations: list[OperationProgress]) -> dict[str, Any]:
        workers = self.scheduler.workers.values()
        seconds = time.monotonic() - self._began
        spilled = ((each.metrics.get("spilled_bytes") or {}).get("disk", 0) for each in workers)
        # Those that run now, then those that have not ended, then the last ones that have.
        shown = sorted(operations, key=lambda each: (not each.running, not each.active))
        shown = [each for each in operations if each in shown[:MAX_OPERATIONS]]
        return {
            "done": sum(each.done for each in operations),
            "active": sum(each.active for each in operations),
            "left": estimate_seconds_left(operations, self.scheduler.total_nthreads, seconds),
            "workers": len(workers),
            "paused": sum(each.status.name == "paused" for each in workers),
            "memory": sum(each.metrics.get("memory") or 0 for each in workers),
            "limit": sum(each.memory_limit or 0 for each in workers),
            "spilled": sum(spilled),
            "operations": [
                (each.prefix.name, each.done, each.done + each.active, each.bytes) for each in shown
            ],
            "others": len(operations) - len(shown),
        }
