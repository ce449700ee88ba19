"""Close a cluster after an idle timeout.

The clock of Dask's idle timeout starts with the scheduler, so Dask closes a cluster that is slow to
start when it becomes ready. It also does not count held results as use, so they are lost. The clock
of this guard starts with the first worker, or when the start of the cluster is complete, and the
guard does not close a cluster while a client holds a result on it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from distributed.diagnostics.plugin import SchedulerPlugin
from tornado.ioloop import PeriodicCallback

if TYPE_CHECKING:
    from distributed import Scheduler

logger = logging.getLogger(__name__)

#: Why such a cluster ends.
IDLE = "its idle timeout has passed"


class IdleGuard(SchedulerPlugin):
    """Scheduler plugin that closes a cluster after a time without tasks and without held results.

    Parameters
    ----------
    timeout : float
        Idle timeout in seconds.
    close : callable
        Closes the cluster; called on the scheduler's event loop.
    starting : bool
        Whether the clock waits for :meth:`begin` instead of the first worker.
    """

    name = "hyperplane-idle-guard"

    def __init__(self, timeout: float, close: Callable[[], None], starting: bool = False) -> None:
        self.timeout = timeout
        self.starting = starting
        self.close_cluster = close
        self.used_at: float | None = None
        self._warned = False

    async def start(self, scheduler: Scheduler) -> None:
        """Start the checks, one a second, or four in a timeout of less than four seconds."""
        self.scheduler = scheduler
        self._watch = PeriodicCallback(self.check_idle, min(1.0, self.timeout / 4) * 1000)
        self._watch.start()

    def begin(self) -> None:
        """Start the clock at the next check, because the start of the cluster is complete."""
        self.starting = False

    async def close(self) -> None:
        """Stop the checks."""
        self._watch.stop()

    def check_idle(self) -> None:
        """Record whether the cluster is in use, and close it after the timeout."""
        now = time.monotonic()
        if self.starting or (self.used_at is None and not self.scheduler.workers):
            return
        if self.used_at is None or self.scheduler.idle_since is None:
            self.used_at, self._warned = now, False
            return
        if now - self.used_at < self.timeout:
            return
        held = sum(1 for task in self.scheduler.tasks.values() if task.who_wants)
        if held:
            if not self._warned:
                logger.warning(
                    "cluster idle for %.0f s but not closed: %d results are held on it; "
                    "delete the futures or close the cluster",
                    now - self.used_at,
                    held,
                )
                self._warned = True
            return
        self._watch.stop()
        logger.info("closing the cluster after %.0f s without use", now - self.used_at)
        self.close_cluster()
