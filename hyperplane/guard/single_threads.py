"""Let workers run one task at a time, until the operations that did not fit together have ended.

Remote schedulers receive this module pickled by value, so it imports only modules that are sent
with it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from distributed.comm.addressing import get_address_host

from hyperplane.guard import worker_limits
from hyperplane.guard.server_calls import pickle_by_value, run_in_server
from hyperplane.guard.worker_limits import SingleThreadPlugin

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import WorkerState

#: States of tasks that will run.
_UNFINISHED = {"waiting", "processing", "queued", "no-worker"}

logger = logging.getLogger(__name__)


def set_threads(scheduler: Scheduler, worker: WorkerState, threads: int) -> None:
    """Let the scheduler count another number of threads of a worker."""
    change = threads - worker.nthreads
    worker.nthreads = threads
    scheduler.total_nthreads += change
    host: Any = scheduler.host_info.get(get_address_host(worker.address))
    if host is not None:
        host["nthreads"] += change
    scheduler.check_idle_saturated(worker)


class SingleThreads:
    """The workers of a scheduler that run one task at a time.

    A worker is known by its nanny, because its address changes when it starts again.

    Parameters
    ----------
    scheduler : Scheduler
        Scheduler of this process.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self._prefixes: dict[str, set[str]] = {}
        self._threads: dict[str, int] = {}

    def limit(self, nanny: str, prefixes: set[str]) -> None:
        """Limit the worker that a nanny starts next, until no task has one of these prefixes."""
        self._prefixes.setdefault(nanny, set()).update(prefixes)
        self._publish()

    def apply(self, worker: WorkerState) -> None:
        """Let the scheduler count one thread of a worker that has just been added.

        The worker itself reads its limit from the plugin, before it receives a task.
        """
        nanny = str(worker.nanny)
        if nanny in self._prefixes and worker.nthreads > 1:
            self._threads[nanny] = worker.nthreads
            set_threads(self.scheduler, worker, 1)
            logger.warning(
                "worker %s ran out of memory with several tasks: it runs one at a time",
                worker.name,
            )

    def pop_ended(self) -> list[str]:
        """Return the nannies whose workers need the limit no more, and forget them."""
        ended = [
            nanny
            for nanny, prefixes in self._prefixes.items()
            if not any(self._has_unfinished(prefix) for prefix in prefixes)
        ]
        for nanny in ended:
            del self._prefixes[nanny]
        if ended:
            self._publish()
        return ended

    def _has_unfinished(self, name: str) -> bool:
        prefix = self.scheduler.task_prefixes.get(name)
        if prefix is None:
            return False
        return any(number for state, number in prefix.states.items() if state in _UNFINISHED)

    async def restore(self, nanny: str) -> None:
        """Give a worker its threads again."""
        threads = self._threads.pop(nanny, 0)
        for worker in list(self.scheduler.workers.values()):
            if threads and worker.nanny == nanny and nanny not in self._prefixes:
                set_threads(self.scheduler, worker, threads)
                await run_in_server(
                    self.scheduler, worker.address, worker_limits.limit_threads, threads
                )

    def clear(self) -> None:
        """Forget the limits, because all workers start again."""
        self._prefixes.clear()
        self._threads.clear()
        self._publish()

    def _publish(self) -> None:
        """Send new workers the plugin that limits those of the present nannies."""
        plugins = self.scheduler.worker_plugins
        if self._prefixes:
            plugin = SingleThreadPlugin(frozenset(self._prefixes))
            plugins[SingleThreadPlugin.name] = pickle_by_value(plugin)
        else:
            plugins.pop(SingleThreadPlugin.name, None)
