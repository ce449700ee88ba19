"""Any of Dask's clusters whose scheduler is in this process, with this package's guards.

Subclasses, because Dask reads some settings in its own process at moments of its own:
``lost-worker-timeout`` as a worker leaves, others as the scheduler is built. Nothing else about
them differs.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import dask.config
from dask.utils import parse_timedelta
from distributed import Client, Scheduler, SpecCluster
from distributed.core import Status
from distributed.diagnostics.plugin import SchedulerPlugin

from hyperplane.engines import dask_notices
from hyperplane.engines.dask_settings import drop_overridden, in_force
from hyperplane.engines.interrupts import InterruptibleStart
from hyperplane.engines.lazy_dashboard import LazyDashboard
from hyperplane.guard.busy import BusyWorkerGuard
from hyperplane.guard.idle import IdleGuard
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import StartupSettings

#: What a client in another process calls on the scheduler to close the whole cluster.
CLOSE_OWNER = "hyperplane_close_owner"
#: After how long without a heartbeat a worker counts as dead.
TIME_TO_LIVE = "distributed.scheduler.worker-ttl"


def dashboard_routes() -> dict[str, list[str]]:
    """The setting of Dask for the routes of a dashboard whose pages are loaded late.

    The last one gives it the path with the cluster's name in it.
    """
    key = "distributed.scheduler.http.routes"
    # The first route that fits a path answers, so the list of plots comes before Dask's own.
    ours = "hyperplane.engines.lazy_dashboard", "hyperplane.engines.dashboard_path"
    return {key: [ours[0], *dask.config.get(key), ours[1]]}


def link_here(link: str, scheduler: str) -> str:
    """The dashboard's link where a scheduler of this process listens, for pages on loopback only.

    Examples
    --------
    >>> link_here("http://10.0.0.7:8787/status", "tls://10.0.0.7:40123")
    'http://127.0.0.1:8787/status'
    """
    host = scheduler.partition("://")[2].rpartition(":")[0]
    return link.replace(f"//{host}:", "//127.0.0.1:", 1) if host else link


def _release_in(pid: int, release: Callable[[], None]) -> None:
    """Release in the owning process only; a fork of it has copies of its objects."""
    if os.getpid() == pid:
        dask_notices.release_quiet()
        release()


class GuardedScheduler(Scheduler):
    """A Scheduler built with its cluster's settings in force.

    Parameters
    ----------
    config : mapping
        Dotted Dask settings.
    """

    def __init__(self, *args: Any, config: Mapping[str, Any], **kwargs: Any) -> None:
        with in_force({**config, **dashboard_routes()}):
            super().__init__(*args, **kwargs)
        LazyDashboard(self)

    def identity(self, n_workers: int = -1) -> dict[str, Any]:
        """As Dask's own, also in the type, which programs compare."""
        return {**super().identity(n_workers), "type": Scheduler.__name__}


class _Owner(SchedulerPlugin):
    """Stands in the scheduler for the cluster object that owns it.

    A client in another process asks it to close the whole cluster, in order: workers first. And
    when the scheduler ends for a reason of its own, the cluster object follows; without that it
    says that it runs, and leaves its nannies behind.
    """

    name = "hyperplane-owner"

    def __init__(self, cluster: GuardedCluster) -> None:
        self.cluster = weakref.ref(cluster)

    async def start(self, scheduler: Scheduler) -> None:
        """Offer the closing of the cluster to every client."""
        scheduler.handlers[CLOSE_OWNER] = self.close_cluster

    def close_cluster(self) -> None:
        """Close the cluster object from a thread of its own; its loop is the one that runs this."""
        cluster = self.cluster()
        if cluster is not None and cluster.status == Status.running:
            # Not a daemon, as the thread of the loop is: the program waits for it to end.
            threading.Thread(
                target=cluster.close_all, name="hyperplane-close", daemon=False
            ).start()

    async def close(self) -> None:
        """Follow a scheduler that ends."""
        cluster = self.cluster()
        if cluster is not None and cluster.status == Status.running:
            # To ask it once more to end would wait 30 s for an answer.
            cluster.shutdown_scheduler = False
            self.close_cluster()


def scheduler_settings(plan: ClusterPlan, settings: StartupSettings) -> dict[str, Any]:
    """Dotted settings of Dask for the scheduler of a plan; what the user has chosen stays out."""
    return drop_overridden(
        {
            **plan.tuning.server,
            "distributed.scheduler.no-workers-timeout": settings.no_workers_timeout,
            TIME_TO_LIVE: settings.worker_ttl,
        }
    )


def cluster_settings(settings: StartupSettings) -> dict[str, Any]:
    """Dotted settings of Dask for the cluster object in this process."""
    return drop_overridden({"distributed.deploy.lost-worker-timeout": settings.lost_worker_timeout})


class GuardedCluster(InterruptibleStart, SpecCluster):
    """A cluster of Dask that closes itself when it should and leaves nothing behind.

    To be put before Dask's own class among the parents.

    Parameters
    ----------
    scheduler_config : mapping
        Dotted Dask settings for a scheduler in this process.
    cluster_config : mapping
        Dotted Dask settings that the cluster object reads.
    idle_timeout : float or None
        Seconds without use after which the cluster closes itself.
    release : callable
        Gives up what the cluster holds outside Dask; called once, however the cluster ends.
    **kwargs
        As for Dask's class.
    """

    def __init__(
        self,
        *,
        scheduler_config: Mapping[str, Any],
        cluster_config: Mapping[str, Any],
        idle_timeout: float | None,
        release: Callable[[], None],
        **kwargs: Any,
    ) -> None:
        self._scheduler_config = scheduler_config
        self._cluster_config = cluster_config
        self._idle_timeout = idle_timeout
        self._idle_guard: IdleGuard | None = None
        self._client: weakref.ref[Client] | None = None
        self._closing = threading.RLock()
        dask_notices.hold_quiet()  # before Dask does it, and for longer
        self._cleanup = weakref.finalize(self, _release_in, os.getpid(), release)
        # Dask's own exit handler closes the cluster first; this is for what it may leave.
        self._cleanup.atexit = False
        self.starting = True
        try:
            super().__init__(**kwargs)  # starts everything, and calls _start() for it
        except BaseException as error:
            self.starting = False
            if not isinstance(error, Exception):  # Dask closes after those by itself
                with suppress(Exception):  # what matters to the caller is the interrupt
                    self.sync(self._abort)
            if hasattr(self, "_loop_runner"):  # else it has begun nothing
                self._loop_runner.stop()
            self._cleanup()
            raise
        self.starting = False
        self._created = weakref.WeakSet(self._created)

    async def _abort(self) -> None:
        """Close while the scheduler or workers are still starting: Dask closes only what runs."""
        # The starts of workers fail now, and no caller asks them why.
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        await self._end_workers()
        if self.status == Status.starting and self.scheduler is not None:
            with suppress(Exception):  # the rest is closed in any case
                await self.scheduler.close()
            if self.scheduler_comm is not None:
                await self.scheduler_comm.close_rpc()
        await self._close()

    async def _end_workers(self) -> None:
        """End the workers whose starts Ctrl-C has interrupted."""
        await asyncio.gather(*(each.close() for each in self._created), return_exceptions=True)

    async def _start(self) -> None:
        if self.starting:
            # Not weakly, as Dask has them: Ctrl-C ends the step that holds those that have started.
            self._created: Any = set()
        if self.scheduler_spec["cls"] is Scheduler:
            options = {**self.scheduler_spec["options"], "config": self._scheduler_config}
            self.scheduler_spec = {"cls": GuardedScheduler, "options": options}
        await super()._start()
        if self.status == Status.running and isinstance(self.scheduler, Scheduler):
            await self._add_guards(self.scheduler)

    async def _add_guards(self, scheduler: Scheduler) -> None:
        owner = _Owner(self)
        plugins: list[SchedulerPlugin] = [owner]
        if TIME_TO_LIVE in self._scheduler_config:
            plugins.append(BusyWorkerGuard())  # a time-to-live that the user chose is kept exactly
        if self._idle_timeout is not None:
            guard = IdleGuard(self._idle_timeout, owner.close_cluster, starting=True)
            self._idle_guard = guard
            plugins.append(guard)
        for plugin in plugins:
            scheduler.add_plugin(plugin)
            await plugin.start(scheduler)

    def _update_worker_status(self, op: str, msg: Any) -> None:
        with in_force(self._cluster_config):
            super()._update_worker_status(op, msg)

    async def _close(self) -> None:
        with dask_notices.without_closing_notices():
            await super()._close()
        self._cleanup()

    def remember_client(self, client: Client) -> None:
        """Remember the client that was returned with this cluster."""
        self._client = weakref.ref(client)

    def begin_idle_timeout(self) -> None:
        """Close this cluster when it is not used from now on; the last step of a start."""
        if self._idle_guard is not None:
            self._idle_guard.begin()

    def close(self, timeout: float | None = None) -> Any:
        """Close the cluster; several threads may, as one does after the idle timeout.

        One after the other: Dask stops the event loop as it closes, and a thread that waits for
        an answer of that loop then gets an ``UnboundLocalError``, or waits for ever.
        """
        if self.asynchronous:
            return super().close(timeout)
        seconds = parse_timedelta(timeout)
        patience = -1 if seconds is None else min(seconds, threading.TIMEOUT_MAX)
        if not self._closing.acquire(timeout=patience):
            raise TimeoutError(f"another thread has not closed the cluster within {seconds:g} s")
        try:
            return super().close(timeout)
        finally:
            self._closing.release()

    def close_all(self) -> None:
        """Close the client that was returned with the cluster, then the cluster."""
        client = self._client() if self._client is not None else None
        if client is not None:
            client.close()
        self.close()
