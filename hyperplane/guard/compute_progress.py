"""Progress of the tasks of a cluster, which its scheduler sends to the clients that show it.

Schedulers without this package receive this module by value.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from distributed.diagnostics.plugin import SchedulerPlugin
from tornado.ioloop import PeriodicCallback

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import TaskGroup, TaskPrefix

    from hyperplane.guard.graph_structure import Key

#: Topic on which a client says that it shows progress; the scheduler answers on that of the client.
TOPIC = "hyperplane-progress"
#: Handler of the scheduler that returns the last figures of a client.
HANDLER = "hyperplane_progress"
#: Seconds between two messages, at least.
INTERVAL = 0.5
#: Most operations in a message.
MAX_OPERATIONS = 6
#: Most clients that are remembered; one that has lost its connection may return.
_MAX_CLIENTS = 1000
#: Most groups that are looked through for each graph, and seconds after which they are in any case:
#: a program may submit thousands of tasks, each as one graph with one group.
_MAX_GROUPS, _GRAPH_SECONDS = 200, 1.0
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
    operations: Iterable[OperationProgress], threads: int, seconds: float, overhead: float = 0.0
) -> float | None:
    """Return how long the remaining tasks take; None if too few have finished to know.

    The mean duration of an operation's tasks divided by the number of threads, and ``overhead``,
    times those that remain. Operations that have not begun take as long as all others did on
    average.
    """
    operations = list(operations)
    done = sum(each.done for each in operations)
    active = sum(each.active for each in operations)
    if not threads or done < max(threads, 0.02 * (done + active)):
        return None
    left, unknown = 0.0, 0
    for each in operations:
        if each.prefix.duration_average >= 0:
            left += each.active * (each.prefix.duration_average / threads + overhead)
        else:
            unknown += each.active
    return left + unknown * seconds / done


class ClientProgress:
    """Tasks of the graphs that one client waits for.

    Graphs that come while others are computed are added to them.
    """

    def __init__(self) -> None:
        #: Groups of the tasks, with the number of those that had ended before. Not the groups of
        #: Dask's Computation, which lacks those that an earlier computation has created.
        self.groups: dict[TaskGroup, int] = {}
        self.began = self._newest = 0.0
        self.done = self.active = 0
        #: When tasks were first seen to have ended, and how many of each operation.
        self._first: tuple[float, dict[str, int]] | None = None

    def add_graph(self, scheduler: Scheduler, tasks: Iterable[Key]) -> None:
        """Add the tasks of a graph that are to be computed."""
        now = time.monotonic()
        is_old = now - self._newest > _GRAPH_SECONDS
        if is_old or len(self.groups) <= _MAX_GROUPS:
            active = [group for group in self.groups if _count_active(group)]
            if is_old or not active:  # of earlier calls, the tasks that still run remain
                self.groups = {group: _count_done(group) for group in active}
                self.began = now
                self._first = None
        self._newest = now
        # Those that are to be computed have not left their first state yet.
        states = (scheduler.tasks.get(key) for key in tasks)
        new = Counter(each.group for each in states if each and each.state == "released")
        for group, count in new.items():
            self.groups.setdefault(group, _count_done(group) - count)

    def count(self) -> list[OperationProgress]:
        """Count the tasks, and return the progress of each operation."""
        operations = group_operations(self.groups)
        self.done = sum(each.done for each in operations)
        self.active = sum(each.active for each in operations)
        return operations

    def measure_overhead(
        self, operations: Sequence[OperationProgress], threads: int, now: float
    ) -> float:
        """Return the seconds for each task that the durations of the tasks do not explain.

        That is the work of the scheduler and the network, which is most of the time of short tasks,
        and the time of threads that have nothing to do.
        """
        if self._first is None and any(each.done for each in operations):
            self._first = now, {each.prefix.name: each.done for each in operations}
        at, before = self._first or (now, {})
        ended, explained, current = 0, 0.0, 0.0
        for each in operations:
            new = max(0, each.done - before.get(each.prefix.name, 0))
            duration = max(0.0, each.prefix.duration_average)
            ended += new
            explained += new * duration / max(1, threads)
            if each.running:  # part of which has passed
                current = max(current, duration)
        return max(0.0, now - at - explained - current) / max(1, ended)


class ComputeProgress(SchedulerPlugin):
    """Scheduler plugin that tells clients how far their tasks are.

    It measures nothing before a client has asked for it, and while there is nothing to compute.
    """

    name = "hyperplane-compute-progress"

    def __init__(self) -> None:
        self._clients: dict[str, ClientProgress] = {}
        self._timer: Any = None

    async def start(self, scheduler: Scheduler) -> None:
        """Remember the scheduler, and register the handler of the last figures."""
        self.scheduler = scheduler
        scheduler.handlers[HANDLER] = self.last_figures

    def log_event(self, topic: str, msg: Any) -> None:
        """Note a client that shows progress."""
        if topic == TOPIC and isinstance(msg, dict) and msg.get("client") in self.scheduler.clients:
            self._clients.setdefault(msg["client"], ClientProgress())
            if len(self._clients) > _MAX_CLIENTS:
                del self._clients[next(iter(self._clients))]

    def update_graph(
        self, scheduler: Scheduler, *, client: str, tasks: Iterable[Key], **_: Any
    ) -> None:
        """Add tasks; the first ones begin a computation."""
        progress = self._clients.get(client)
        if progress is None:
            return
        progress.add_graph(scheduler, tasks)
        if self._timer is None:
            self._timer = PeriodicCallback(self._send_all, INTERVAL * 1000)
            self._timer.start()

    def last_figures(self, client: str) -> dict[str, int]:
        """Return the numbers of tasks of a client that have ended and that have not."""
        progress = self._clients[client]
        progress.count()
        return {"done": progress.done, "active": progress.active}

    async def close(self) -> None:
        """Stop measuring."""
        self._stop()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None

    def _send_all(self) -> None:
        began = time.perf_counter()
        messages: dict[str, list[dict[str, Any]]] = {}
        for client, progress in self._clients.items():
            if client not in self.scheduler.client_comms or not progress.groups:
                continue
            operations = progress.count()
            if progress.active:
                event = (time.time(), self._measure(progress, operations))
                message = {"op": "event", "topic": client_topic(client), "event": event}
                messages[client] = [message]
        if not messages:
            self._stop()
            return
        # Not Scheduler.log_event, which would keep a thousand of them for each client.
        self.scheduler.send_all(messages, {})
        took = time.perf_counter() - began
        self._timer.callback_time = 1000 * max(INTERVAL, took / _MAX_SHARE)

    def _measure(
        self, progress: ClientProgress, operations: list[OperationProgress]
    ) -> dict[str, Any]:
        workers, threads = self.scheduler.workers.values(), self.scheduler.total_nthreads
        now = time.monotonic()
        overhead = progress.measure_overhead(operations, threads, now)
        spilled = ((each.metrics.get("spilled_bytes") or {}).get("disk", 0) for each in workers)
        # Those that run now, then those that have not ended, then the last ones that have.
        shown = sorted(operations, key=lambda each: (not each.running, not each.active))
        shown = [each for each in operations if each in shown[:MAX_OPERATIONS]]
        return {
            "done": progress.done,
            "active": progress.active,
            "left": estimate_seconds_left(operations, threads, now - progress.began, overhead),
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
