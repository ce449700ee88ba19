"""Give workers no second root task in advance while the results of root tasks are large.

Dask assigns 1.1 root tasks for each thread of a worker, rounded up, so that a worker need not wait
for the next one. A worker with one thread thus has two, and the result of the second one waits in
memory while the tasks that use the first one run. For large partitions that costs more memory than
the wait costs time.

Remote schedulers receive this module pickled by value, so it imports no other module of this
package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from distributed.diagnostics.plugin import SchedulerPlugin
from tornado.ioloop import PeriodicCallback

if TYPE_CHECKING:
    from distributed import Scheduler

#: Seconds between two looks at the queue of root tasks.
INTERVAL = 0.2
#: Dask's default for ``distributed.scheduler.worker-saturation``; other values are the user's.
DEFAULT = 1.1
#: Saturation without root tasks in advance.
NONE_IN_ADVANCE = 1.0
#: Size of a result, as a fraction of the memory for each thread of a worker, above which it is
#: large. Tasks with smaller ones take so little time that the wait for the next one matters.
LARGE = 0.01
#: States of tasks whose result has been measured.
_MEASURED: tuple[Literal["memory", "released", "forgotten"], ...] = (
    "memory",
    "released",
    "forgotten",
)


class RootTaskAdmission(SchedulerPlugin):
    """Scheduler plugin that sets Dask's saturation by the size of the results of root tasks."""

    name = "hyperplane-root-task-admission"

    def __init__(self) -> None:
        self._watch: PeriodicCallback | None = None

    async def start(self, scheduler: Scheduler) -> None:
        """Start to look, unless the user has chosen another saturation."""
        self.scheduler = scheduler
        if scheduler.WORKER_SATURATION == DEFAULT:
            self._watch = PeriodicCallback(self.check, INTERVAL * 1000)
            self._watch.start()

    async def close(self) -> None:
        """Stop to look."""
        if self._watch is not None:
            self._watch.stop()

    def check(self) -> None:
        """Set the saturation for the root task that is next in the queue."""
        scheduler = self.scheduler
        wanted = NONE_IN_ADVANCE if self._next_is_large() else DEFAULT
        if wanted == scheduler.WORKER_SATURATION:
            return
        scheduler.WORKER_SATURATION = wanted
        for worker in scheduler.workers.values():
            scheduler.check_idle_saturated(worker)
        scheduler.stimulus_queue_slots_maybe_opened(stimulus_id=self.name)

    def _next_is_large(self) -> bool:
        scheduler = self.scheduler
        memory = [
            worker.memory_limit / worker.nthreads
            for worker in scheduler.workers.values()
            if worker.memory_limit
        ]
        if not scheduler.queued or not memory:
            return False
        group = scheduler.queued.peek().group
        measured = sum([group.states[state] for state in _MEASURED])
        return group.nbytes_total > LARGE * min(memory) * measured > 0
