"""Warn about partitions that are too large to be shuffled with the memory of a worker.

A partition is in memory several times while a peer-to-peer shuffle splits and receives it, in
messages and tables that no buffer of Dask counts. Smaller partitions are the only remedy besides
more memory, and the job knows their size only when they are computed.

Remote schedulers receive this module pickled by value, so it imports only modules that are sent
with it.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from distributed.diagnostics.plugin import SchedulerPlugin

from hyperplane.guard.memory_causes import find_shuffled_size, find_shuffling_memory

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import TaskState

#: How often the size of a partition that can be shuffled is too large.
TOO_LARGE = 2.0
#: Prefixes of the tasks that split a partition or a chunk, and what makes these smaller.
_REMEDIES = {
    "shuffle-transfer": 'df.repartition(partition_size="{size}MB")',
    "hash-join-transfer": 'df.repartition(partition_size="{size}MB") of both data frames',
    "rechunk-transfer": "chunks of at most {size} MB",
}


class ShuffleSizes(SchedulerPlugin):
    """Scheduler plugin that warns once about each shuffle whose partitions are too large.

    Parameters
    ----------
    warn : callable, optional
        Receives each warning; by default all clients of the cluster issue it.
    """

    name = "hyperplane-shuffle-sizes"

    def __init__(self, warn: Callable[[str], None] | None = None) -> None:
        self.warn = warn
        self._warned: set[str] = set()

    async def start(self, scheduler: Scheduler) -> None:
        """Remember the scheduler."""
        self.scheduler = scheduler

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Look at the partition of a task that begins to split it."""
        if finish != "processing":
            return
        task = self.scheduler.tasks[key]
        if task.prefix.name in _REMEDIES and task.group.name not in self._warned:
            self._check(task)

    def _check(self, task: TaskState) -> None:
        worker = task.processing_on
        if worker is None or not worker.memory_limit:
            return
        fitting = find_shuffled_size(worker.memory_limit, worker.nthreads)
        size = sum(each.get_nbytes() for each in task.dependencies)
        if size <= TOO_LARGE * fitting:
            return
        self._warned.add(task.group.name)
        memory = worker.memory_limit / max(1, worker.nthreads)
        needed = find_shuffling_memory(size, worker.nthreads)
        text = (
            f"partitions of {size / 1e6:.0f} MB are too large to be shuffled by worker processes "
            f"with {memory / 1e9:.2g} GB for each thread, which hold a partition several times: "
            f"use {_REMEDIES[task.prefix.name].format(size=max(1, int(fitting / 1e6)))} before, or "
            f"ram_gb_per_proc={needed / 1e9:.1f}"
        )
        if self.warn is not None:
            self.warn(text)
        else:
            # Clients subscribe to this topic and issue its messages as warnings.
            self.scheduler.log_event("warn", {"message": pickle.dumps(text)})

    def restart(self, scheduler: Scheduler) -> None:
        """Forget the shuffles."""
        self._warned.clear()
