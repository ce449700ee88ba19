"""End a shuffle whose workers were lost too often.

Dask starts a shuffle again whenever a worker that takes part in it is lost. It counts deaths for
the tasks that ran on the worker, but not for a shuffle, whose data are in all its workers: such a
shuffle is started again without a limit. This plugin applies ``distributed.scheduler.
allowed-failures``, Dask's limit for a task, to shuffles too.

Remote schedulers receive this module pickled by value, so it imports only modules that are sent
with it.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from distributed.diagnostics.plugin import SchedulerPlugin

from hyperplane.guard.failing_tasks import (
    ErrorRecipe,
    explain_memory,
    fail_tasks,
    find_reported,
)
from hyperplane.guard.memory_causes import find_shuffled_size

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import TaskState

logger = logging.getLogger(__name__)


class ShuffleRestartLimit(SchedulerPlugin):
    """Scheduler plugin that ends a shuffle after too many lost workers."""

    name = "hyperplane-shuffle-restarts"

    def __init__(self) -> None:
        self.losses: Counter[Any] = Counter()
        self._workers: dict[Any, list[str]] = {}
        #: Workers of all runs of a shuffle. One may be lost for the rows of a run that has ended,
        #: before the next run begins.
        self._participants: dict[Any, set[str]] = {}
        self._size = "1/16 of the memory for each thread"

    async def start(self, scheduler: Scheduler) -> None:
        """Remember the scheduler."""
        self.scheduler = scheduler

    def _active_shuffles(self) -> dict[Any, Any]:
        extension: Any = self.scheduler.extensions.get("shuffle")
        return dict(extension.active_shuffles) if extension is not None else {}

    def log_event(self, topic: str, msg: Any) -> None:
        """Count a lost worker; Dask logs it before the shuffle plugin ends the run."""
        if topic != "all" or not isinstance(msg, Mapping) or msg.get("action") != "remove-worker":
            return
        if msg["expected"]:
            return
        self._note_size()
        for identity, shuffle in self._active_shuffles().items():
            self._participants.setdefault(identity, set()).update(shuffle.participating_workers)
        for identity, participants in self._participants.items():
            if msg["worker"] in participants:
                self.losses[identity] += 1
                self._workers.setdefault(identity, []).append(msg["worker"])

    def remove_worker(self, scheduler: Scheduler, worker: str, **kwargs: Any) -> None:
        """End the shuffles that have lost too many workers."""
        limit = scheduler.allowed_failures
        for identity, losses in list(self.losses.items()):
            if losses > limit:
                # After the other plugins, of which Dask's has started the shuffle again.
                scheduler.loop.add_callback(self._fail, identity, losses)

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Forget the losses of a shuffle that has ended."""
        if finish not in ("memory", "forgotten") or not self._participants:
            return
        for identity in list(self._participants):
            if finish == "forgotten":
                is_over = key == _barrier_key(identity)
            else:
                is_over = self._is_last_result(key, identity)
            if is_over:
                self._forget(identity)

    def _is_last_result(self, key: Any, identity: Any) -> bool:
        """Return whether a task in memory is a result of a shuffle, and no other one is awaited.

        The barrier of a shuffle whose results are kept, as by persist(), is not forgotten. If they
        are lost later, that begins another computation.
        """
        barrier = self.scheduler.tasks.get(_barrier_key(identity))
        if barrier is None or barrier.waiters:
            return False
        return self.scheduler.tasks.get(key) in barrier.dependents

    def _note_size(self) -> None:
        """Keep the size of partitions that the workers can shuffle, for when none is left."""
        sizes = [
            find_shuffled_size(worker.memory_limit, worker.nthreads)
            for worker in self.scheduler.workers.values()
            if worker.memory_limit
        ]
        if sizes:
            self._size = f"{max(1, int(min(sizes) / 1e6))} MB"

    def _forget(self, identity: Any) -> None:
        for kept in (self.losses, self._workers, self._participants):
            kept.pop(identity, None)

    def _fail(self, identity: Any, losses: int) -> None:
        barrier = self.scheduler.tasks.get(_barrier_key(identity))
        if barrier is None or identity not in self.losses:
            return
        tasks = _runnable_tasks(barrier)
        lost = self._workers.get(identity, [])
        workers = ", ".join(lost)
        message = (
            f"a shuffle was started again {losses - 1} times, because {losses} workers that took "
            "part in it were lost; it would go on forever\n  to do: if memory is the reason, use "
            f"partitions of at most {self._size}, more memory per process, or a key "
            "with more different values; otherwise see cluster.get_logs() for the reason\n  lost: "
            f"{workers}"
        )
        logger.error("tasks end with ClusterStalled: %s", message)
        # Not the tasks that end, most of which make rows: the memory is that of the shuffle.
        blamed = find_reported(self.scheduler, barrier.dependencies, lost) or barrier
        error = ErrorRecipe("ClusterStalled", message, cause="shuffle", tasks=len(tasks))
        fail_tasks(
            self.scheduler,
            tasks,
            error,
            f"shuffle-restarts-{time.time()}",
            lambda task: explain_memory(self.scheduler, blamed, 0.0, lost, message),
        )
        self._forget(identity)


def _barrier_key(identity: Any) -> str:
    """Return the key of the barrier of a shuffle, as ``distributed.shuffle`` names it."""
    return f"shuffle-barrier-{identity}"


def _runnable_tasks(barrier: TaskState) -> list[TaskState]:
    """Return the runnable tasks on which the results of a shuffle depend, and its own tasks."""
    found: set[TaskState] = set()
    stack = [barrier, *barrier.dependents]
    while stack:
        task = stack.pop()
        if task not in found and task.state != "memory":
            found.add(task)
            stack.extend(task.dependencies)
    return [task for task in found if task.state in ("processing", "queued", "no-worker")]
