"""Place tasks whose inputs are larger than the memory of a worker, on one whose limit can grow.

Dask does not start such a task: it raises MemoryError.

Remote schedulers receive this module pickled by value, so it imports only modules that are sent
with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from hyperplane.guard.memory_growth import MemoryGrowth

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import TaskState, WorkerState

#: What such a task takes at least: a process, and the inputs with copies.
_PROCESS, _COPIES = 250_000_000, 1.5
#: Most workers that are tried for one.
_MOST_TRIED = 8


def is_restricted(task: TaskState) -> bool:
    """Return whether a task may not run on each worker."""
    return bool(task.worker_restrictions or task.host_restrictions or task.resource_restrictions)


class LargeInputs:
    """The tasks of a scheduler with large inputs.

    Parameters
    ----------
    scheduler : Scheduler
        Scheduler of this process.
    growth : MemoryGrowth
        Limits of the workers.
    is_lending : callable
        Returns whether the memory of a node is lent, so that no limit grows.
    """

    def __init__(
        self, scheduler: Scheduler, growth: MemoryGrowth, is_lending: Callable[[], bool]
    ) -> None:
        self.scheduler, self._growth, self._is_lending = scheduler, growth, is_lending
        #: Tasks that wait for, or have run on, the worker with memory for them.
        self._placed: dict[Any, str] = {}

    def is_chosen(self, task: TaskState) -> bool:
        """Return whether the user, and not this class, has chosen the workers of a task."""
        return is_restricted(task) and task.key not in self._placed

    def check(self, tasks: Iterable[TaskState]) -> None:
        """Place those of some tasks whose inputs are complete and larger than a worker."""
        limit = self._growth.smallest
        for task in tasks:
            if task.waiting_on or task.state != "waiting" or not limit:
                continue
            if _count_inputs(task) > limit and not self.is_chosen(task):
                self._place(task)

    def _place(self, task: TaskState) -> WorkerState | None:
        """Let a task run on the running worker with most of its inputs that can hold all.

        Return that worker; None if there is none.
        """
        if self._is_lending():
            return None
        held = Counter(dict.fromkeys(self.scheduler.running, 0))
        for each in task.dependencies:
            for worker in each.who_has or ():
                if worker in held:
                    held[worker] += each.get_nbytes()
        inputs = int(_COPIES * _count_inputs(task))
        for worker, size in held.most_common(_MOST_TRIED):
            needed = max(_PROCESS, worker.memory.process - size) + inputs
            has_memory = worker.memory_limit >= needed
            if has_memory or self._growth.grow(worker, task.prefix.name, 0, needed):
                self._placed[task.key] = worker.address
                self.scheduler.set_restrictions({task.key: [worker.address]})
                return worker
        return None

    def place_again(self, worker: str, stimulus_id: str) -> None:
        """Place the tasks again that waited for a worker which has ended.

        Another process of its nanny has another address, and has lost its inputs.
        """
        for key in [key for key, address in self._placed.items() if address == worker]:
            del self._placed[key]
            task = self.scheduler.tasks.get(key)
            if task is None:
                continue
            self.scheduler.set_restrictions({key: None})
            if task.state != "no-worker":
                continue  # it is placed when its inputs are complete
            found = self._place(task) or next(iter(self.scheduler.running), None)
            if found is not None:
                runnable = self.scheduler.bulk_schedule_unrunnable_after_adding_worker(found)
                self.scheduler.transitions(runnable, stimulus_id)

    def forget(self, key: Any) -> None:
        """Forget a task."""
        self._placed.pop(key, None)

    def clear(self) -> None:
        """Forget all tasks."""
        self._placed.clear()


def _count_inputs(task: TaskState) -> int:
    """Return the bytes of the inputs of a task."""
    return sum([each.get_nbytes() for each in task.dependencies])
