"""Ends a cluster that nobody uses.

Dask has an idle timeout of its own. Its clock starts with the scheduler, so that a cluster that
is slow to start was closed as it became ready, and it does not count results that a client holds
as use, so that they were lost. This one starts its clock at the first worker, or when the start is
over, and leaves a cluster alone for as long as a client holds a result on it.
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


class IdleGuard(SchedulerPlugin):
    """Close a cluster after a time without tasks and without held results.

    Parameters
    ----------
    timeout : float
        Seconds.
    close : callable
        Closes the cluster; called on the scheduler's event loop.
    starting : bool
        Whether to wait for :meth:`begin`: workers may come long after the first one.
    """

    name = "hyperplane-idle-guard"

    def __init__(self, timeout: float, close: Callable[[], None], starting: bool = False) -> None:
        self.timeout = timeout
        self.starting = starting
        self.close_cluster = close
        self.used_at: float | None = None
        self._warned = False

    async def start(self, scheduler: Scheduler) -> None:
        """Begin to look, a few times in each timeout and at least once a second."""
        self.scheduler = scheduler
        self._watch = PeriodicCallback(self.look, min(1.0, self.timeout / 4) * 1000)
        self._watch.start()

    def begin(self) -> None:
        """Start the clock at the next look: the start of the cluster is over."""
        self.starting = False

    async def close(self) -> None:
        """Look no more."""
        self._watch.stop()

    def look(self) -> None:
        """Note whether the cluster is in use, or close it."""
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
                    "cluster idle for %.0f s but left open: %d results are held on it; "
                    "delete the futures or close the cluster",
                    now - self.used_at,
                    held,
                )
                self._warned = True
            return
        self._watch.stop()
        logger.info("cluster closes after %.0f s without use", now - self.used_at)
        self.close_cluster()
