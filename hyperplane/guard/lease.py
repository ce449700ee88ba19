"""End a cluster whose programs are gone: killed, or on a machine without a connection.

A program that ends normally closes its cluster. One that was killed, or whose machine was
suspended, cannot, and the cluster would run until its idle timeout. The scheduler of such a cluster
therefore holds a lease, which heartbeats of clients and of the owner's cluster object renew.

A client without heartbeats whose connection is open may hold the interpreter's lock (GIL) for
minutes or be stopped, and has more time. It may also be on the other side of a proxy that does not
notice the end of its machine, so this time is limited too.

Remote schedulers receive this module as source text or pickled by value, so it imports no other
module of this package.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from distributed.diagnostics.plugin import SchedulerPlugin
from tornado.ioloop import PeriodicCallback

if TYPE_CHECKING:
    from distributed import Scheduler

logger = logging.getLogger(__name__)

#: Seconds without a heartbeat that are accepted while the connection of a client is open.
SILENT_SECONDS = 300.0
#: Name of the scheduler's handler that renews the lease.
HANDLER = "hyperplane_renew_lease"
#: Seconds of a scheduler that loads this module as a preload; the engine appends other values.
LEASE_SECONDS, START_SECONDS = 40.0, 300.0
#: Start of the names of clients that tasks use on workers: they end with their tasks, and are no
#: sign of a program that waits for results.
_WORKER_CLIENT = "Client-worker-"


class LeaseGuard(SchedulerPlugin):
    """Scheduler plugin that notices when no program uses the cluster any more.

    Time is counted in checks: a scheduler that was stopped (Ctrl-Z and ``fg``, a suspended machine)
    or busy received no heartbeat meanwhile, and that time does not count.

    Parameters
    ----------
    seconds : float
        Seconds after the last renewal at which the lease expires.
    start_seconds : float
        Seconds that may pass until the first renewal, while the cluster starts.
    silent_seconds : float
        Seconds after the last renewal at which it expires while a client's connection is open.
    """

    name = "hyperplane-lease"

    def __init__(
        self, seconds: float, start_seconds: float, silent_seconds: float = SILENT_SECONDS
    ) -> None:
        self.seconds, self.start_seconds = seconds, start_seconds
        self.silent_seconds = max(seconds, silent_seconds)
        self.expired = False
        self._unrenewed = 0.0
        self._is_renewed = self._has_begun = False
        self._heartbeats: dict[str, float] = {}
        self._watch: PeriodicCallback | None = None

    async def start(self, scheduler: Scheduler) -> None:
        """Start the checks, one a second, or four in a lease of less than four seconds."""
        if self._watch is not None:  # a scheduler also starts the plugins that its preloads added
            return
        self.scheduler = scheduler
        scheduler.handlers[HANDLER] = self.renew
        self._interval = min(1.0, self.seconds / 4)
        self._checked = time.monotonic()
        self._watch = PeriodicCallback(self.check_lease, self._interval * 1000)
        self._watch.start()

    async def close(self) -> None:
        """Stop the checks."""
        if self._watch is not None:
            self._watch.stop()

    def renew(self) -> None:
        """Renew the lease; the owner's cluster object calls this through the scheduler."""
        self._is_renewed = True

    def check_lease(self) -> None:
        """Count the time since the last renewal, and end the cluster if the lease has expired."""
        now = time.monotonic()
        elapsed = min(now - self._checked, 2 * self._interval)
        self._checked = now
        # Compared for equality only: the heartbeat's time of day may be set meanwhile.
        # A client that disconnects leaves the two mappings one after the other.
        heartbeats = {
            client: state.last_seen
            for client in self.scheduler.client_comms
            if not client.startswith(_WORKER_CLIENT)
            and (state := self.scheduler.clients.get(client)) is not None
        }
        if self._is_renewed or heartbeats.items() - self._heartbeats.items():
            self._unrenewed, self._has_begun = 0.0, True
        else:
            self._unrenewed += elapsed
        self._is_renewed, self._heartbeats = False, heartbeats
        self._set_expired(self._unrenewed >= self._limit(bool(heartbeats)))

    def _limit(self, connected: bool) -> float:
        limit = self.silent_seconds if connected else self.seconds
        return limit if self._has_begun else max(limit, self.start_seconds)

    def _set_expired(self, expired: bool) -> None:
        if expired and not self.expired:
            logger.warning(
                "no program has used this cluster for %.0f s: its lease has expired, it ends",
                self._unrenewed,
            )
            self.expired = True
            self.end()
        self.expired = expired

    def end(self) -> None:
        """End the cluster; where its platform asks the plugin instead, do nothing."""


async def dask_setup(scheduler: Scheduler) -> None:
    """Add the guard to a scheduler that loads this module as a preload."""
    guard = LeaseGuard(LEASE_SECONDS, START_SECONDS)
    scheduler.add_plugin(guard)
    await guard.start(scheduler)
