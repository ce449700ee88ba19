"""Let tasks of a chosen worker run in the process that its nanny starts after the first has ended.

Dask restricts such tasks to the address of the process. The next process has another address, so
that they would wait until ``no-workers-timeout``.

Remote schedulers receive this module pickled by value, so it imports no other module of this
package.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from distributed.diagnostics.plugin import SchedulerPlugin

if TYPE_CHECKING:
    from distributed import Scheduler

#: Annotation of the tasks of Dask's shuffles, which start again if they lose a worker.
_SHUFFLE = "shuffle_original_restrictions"
#: Most processes that have ended and are remembered.
_KEPT = 1000


class RestartedWorkers(SchedulerPlugin):
    """Scheduler plugin that replaces the address of a process that has ended in restrictions."""

    name = "hyperplane-restarted-workers"

    def __init__(self) -> None:
        self._nannies: dict[str, str] = {}
        #: Processes that have ended, the last one last, with their nannies.
        self._ended: dict[str, str] = {}

    async def start(self, scheduler: Scheduler) -> None:
        """Remember the workers."""
        self.scheduler = scheduler
        for address in scheduler.workers:
            self.add_worker(scheduler, address)

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """Move tasks of earlier processes of its nanny to it, before Dask assigns any."""
        self._ended.pop(worker, None)  # the system has given its address to this process
        if nanny := scheduler.workers[worker].nanny:
            self._nannies[worker] = nanny
            if nanny in self._ended.values():
                self._replace_addresses(scheduler.tasks)

    def remove_worker(
        self, scheduler: Scheduler, worker: str, *, stimulus_id: str, **kwargs: Any
    ) -> None:
        """Remember a process whose nanny may start, or has started, another one."""
        if nanny := self._nannies.pop(worker, None):
            self._ended[worker] = nanny
            if len(self._ended) > _KEPT:
                del self._ended[next(iter(self._ended))]
            if nanny in self._nannies.values():
                self._replace_addresses(scheduler.tasks)
                self._assign_tasks(scheduler, self._get_present()[nanny], stimulus_id)

    def _assign_tasks(self, scheduler: Scheduler, worker: str, stimulus_id: str) -> None:
        """Assign tasks that wait for a worker, which Dask does only when one is added."""
        state = scheduler.workers[worker]
        if state in scheduler.running:
            found = scheduler.bulk_schedule_unrunnable_after_adding_worker(state)
            scheduler.transitions(found, stimulus_id)

    def update_graph(self, scheduler: Scheduler, *, tasks: list[Any], **kwargs: Any) -> None:
        """Move new tasks for which the user gave the address of an earlier process."""
        if self._ended:
            self._replace_addresses(tasks)

    def _get_present(self) -> dict[str, str]:
        """Return the last process of each nanny."""
        return {nanny: worker for worker, nanny in self._nannies.items()}

    def _replace_addresses(self, keys: Iterable[Any]) -> None:
        present = self._get_present()
        following = {
            worker: present[nanny] for worker, nanny in self._ended.items() if nanny in present
        }
        for key in keys:
            task = self.scheduler.tasks[key]
            chosen = task.worker_restrictions
            if (
                chosen
                and not following.keys().isdisjoint(chosen)
                and _SHUFFLE not in (task.annotations or ())
            ):
                workers = {following.get(worker, worker) for worker in chosen}
                self.scheduler.set_restrictions({key: workers})
