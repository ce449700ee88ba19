"""Mixin for Dask's clusters that adds idle and busy-worker guards to their scheduler.

Subclasses of Dask's classes also apply the settings of one cluster: Dask reads some from the
process-wide configuration, as ``lost-worker-timeout`` when a worker leaves.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import dask.config
from dask.utils import parse_timedelta
from distributed import Client, Future, Scheduler, SpecCluster
from distributed.core import Status
from distributed.deploy.cluster import Cluster
from distributed.diagnostics.plugin import SchedulerPlugin

from hyperplane.clusters.dask import failed_start, log_filters
from hyperplane.clusters.dask.cluster_guards import ClusterGuards
from hyperplane.clusters.dask.cluster_html import ClusterHtml
from hyperplane.clusters.dask.interruptible_start import (
    CLOSE_SECONDS,
    InterruptibleStart,
    StartLimitReached,
)
from hyperplane.clusters.dask.lazy_dashboard import LazyDashboard
from hyperplane.clusters.dask.owner_requests import OwnerPlugin
from hyperplane.clusters.dask.recovery import is_suspended
from hyperplane.clusters.dask.run_usage import UsageCopy, finish_record
from hyperplane.clusters.dask.settings import drop_overridden, in_force
from hyperplane.clusters.dask.start_errors import StepTimeout
from hyperplane.clusters.start_progress import report_start
from hyperplane.core.dask_internals.clients import get_adaptive
from hyperplane.core.dask_internals.connection_pools import allow_repeated_cancels
from hyperplane.core.dask_internals.message_batches import install_message_batches
from hyperplane.guard import memory_plugins
from hyperplane.guard.busy import BusyWorkerGuard
from hyperplane.guard.idle import IdleGuard
from hyperplane.guard.same_user import check_dashboard
from hyperplane.spec.dask_options import DaskOptions
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import StartupSettings

logger = logging.getLogger(__name__)

#: Setting for the time without a heartbeat after which a worker counts as dead.
TIME_TO_LIVE = "distributed.scheduler.worker-ttl"
#: Least seconds between checks whether a worker has ended the loan of its memory.
_SUSPENDED_SECONDS = 1.0
#: Seconds between checks whether the nanny of a lost worker has ended.
_ENDED_SECONDS = 1.0
#: Seconds that a closing cluster waits for workers which are starting, before it ends them.
_STARTING_SECONDS = 5.0


def dashboard_routes() -> dict[str, list[str]]:
    """Return Dask's setting for HTTP routes, with those of this package added.

    They add the list of plots of a lazily loaded dashboard, and the path with the cluster's name.
    """
    key = "distributed.scheduler.http.routes"
    # The first matching route answers, so our list of plots comes before Dask's.
    ours = "hyperplane.clusters.dask.lazy_dashboard", "hyperplane.clusters.dask.dashboard_path"
    return {key: [ours[0], *dask.config.get(key), ours[1]]}


def loopback_link(link: str, scheduler: str) -> str:
    """Return a dashboard link with the loopback address in place of the scheduler's address.

    Examples
    --------
    >>> loopback_link("http://10.0.0.7:8787/status", "tls://10.0.0.7:40123")
    'http://127.0.0.1:8787/status'
    """
    host = scheduler.partition("://")[2].rpartition(":")[0]
    return link.replace(f"//{host}:", "//127.0.0.1:", 1) if host else link


def _release_in_process(pid: int, release: Callable[[], None]) -> None:
    """Call `release` in process `pid` only: a fork has copies of the cluster objects."""
    if os.getpid() == pid:
        log_filters.restore_log_level()
        release()


class GuardedScheduler(Scheduler):
    """Scheduler that is built with the dotted Dask settings `config` in force."""

    def __init__(self, *args: Any, config: Mapping[str, Any], **kwargs: Any) -> None:
        with in_force({**config, **dashboard_routes()}):
            super().__init__(*args, **kwargs)
        allow_repeated_cancels(self)
        LazyDashboard(self)

    def start_http_server(self, *args: Any, **kwargs: Any) -> None:
        """Start Dask's server, which refuses other users of this machine if it is on loopback."""
        super().start_http_server(*args, **kwargs)
        if self.security.require_encryption:  # CheckedSecurity has the check, and none has none
            check_dashboard(self)

    def identity(self, n_workers: int = -1) -> dict[str, Any]:
        """Return Dask's identity, with Dask's type name because programs compare it."""
        return {**super().identity(n_workers), "type": Scheduler.__name__}


def scheduler_settings(plan: ClusterPlan, settings: StartupSettings) -> dict[str, Any]:
    """Return the dotted Dask settings for a plan's scheduler, without those the user has set."""
    return drop_overridden(
        {
            **DaskOptions.of(plan.options).tuning.server,
            "distributed.scheduler.no-workers-timeout": settings.no_workers_timeout,
            TIME_TO_LIVE: settings.worker_ttl,
        }
    )


def cluster_settings(settings: StartupSettings) -> dict[str, Any]:
    """Return the dotted Dask settings for the cluster object in this process."""
    return drop_overridden({"distributed.deploy.lost-worker-timeout": settings.lost_worker_timeout})


class GuardedCluster(ClusterHtml, InterruptibleStart, SpecCluster):
    """Mixin for Dask's clusters: idle timeout, busy-worker guard and complete cleanup.

    It comes before Dask's class in the list of base classes.

    Parameters
    ----------
    scheduler_config : mapping
        Dotted Dask settings for a scheduler in this process.
    cluster_config : mapping
        Dotted Dask settings that the cluster object reads.
    guards : ClusterGuards
        What watches the cluster.
    release : callable
        Releases what the cluster holds outside Dask; called once, however the cluster ends.
    deadline : float, optional
        Time limit of the start, by ``time.monotonic``.
    **kwargs
        Arguments of Dask's class.

    Raises
    ------
    StepTimeout
        If the start has not ended by the deadline.
    """

    #: Whether nannies run in this process.
    nannies_are_here = False
    #: What the start does before the scheduler, for the error of its time limit.
    before_scheduler = ""
    #: What one worker of the specification is called, and what it has done when it has started.
    start_of_worker = ("worker process", "connected")
    #: Seconds in which the workers of an interrupted start are closed.
    end_workers_seconds = 150.0
    #: Whether the plugins of the scheduler have been added.
    has_guards = False

    def __init__(
        self,
        *,
        scheduler_config: Mapping[str, Any],
        cluster_config: Mapping[str, Any],
        guards: ClusterGuards,
        release: Callable[[], None],
        deadline: float | None = None,
        **kwargs: Any,
    ) -> None:
        self.deadline = deadline
        self._scheduler_config = scheduler_config
        self._cluster_config = cluster_config
        self._guards, self._recorder = guards, guards.recorder
        self._idle_guard: IdleGuard | None = None
        self._copy: UsageCopy | None = None
        #: Why the cluster ends; empty while it runs.
        self.end_reason = ""
        self._client: weakref.ref[Client] | None = None
        self._closing = threading.RLock()
        log_filters.raise_log_level()
        install_message_batches()  # of the scheduler in this process, and of clients
        self._cleanup = weakref.finalize(self, _release_in_process, os.getpid(), release)
        self._cleanup.atexit = False  # Dask's handler closes the cluster, which calls the cleanup
        self.starting = True
        try:
            super().__init__(**kwargs)  # calls _start()
        except BaseException as error:
            self.starting = False
            try:
                failed_start.end(self)
            finally:  # after several Ctrl-C, too
                self._cleanup()
            # A TimeoutError: after the first error Dask stops its event loop, whose thread goes on.
            first, is_late = self._first_error, type(error) in (StartLimitReached, TimeoutError)
            if first is not None and first is not error and is_late:
                raise first from first.__cause__
            if isinstance(error, StartLimitReached):
                raise StepTimeout(error.waited, error.place) from None
            raise
        self.starting = False
        self._created = weakref.WeakSet(self._created)

    @property
    def cluster_plan(self) -> ClusterPlan | None:
        """Its plan, if this object writes the record of the run."""
        recorder = self._guards.recorder
        return None if recorder is None else recorder.plan

    def describe_wait(self) -> str:
        """Return what has not happened yet, for the error of the time limit."""
        return failed_start.describe_wait(self)

    async def end_workers(self) -> None:
        """Close the workers that were starting when the start was interrupted."""
        await asyncio.gather(*(worker.close() for worker in self._created), return_exceptions=True)

    def kill_workers(self) -> None:
        """Kill worker processes of this machine, if the event loop cannot close them."""

    def release(self) -> None:
        """Release what the cluster holds outside Dask, if that has not been done."""
        self._cleanup()

    async def _start(self) -> None:
        if self.starting:
            # Strong references until the start ends: Dask's set is weak, and Ctrl-C ends the
            # coroutine that holds the workers, so those already started would be forgotten.
            self._created: Any = set()
        if self.scheduler_spec["cls"] is Scheduler:
            options = {**self.scheduler_spec["options"], "config": self._scheduler_config}
            self.scheduler_spec = {"cls": GuardedScheduler, "options": options}
        await super()._start()
        if self.status == Status.running and isinstance(self.scheduler, Scheduler):
            await self._add_guards(self.scheduler)
        elif self.status == Status.running and self._recorder is not None and self._copy is None:
            self._copy = UsageCopy(self)
            self.periodic_callbacks["usage"] = self._copy.timer
            self._copy.timer.start()
        self.has_guards = True

    async def _add_guards(self, scheduler: Scheduler) -> None:
        owner = OwnerPlugin(self)
        plugins: list[SchedulerPlugin] = [owner]
        if TIME_TO_LIVE in self._scheduler_config:
            plugins.append(BusyWorkerGuard())  # not if the user has set the time-to-live
        plugins += self._guards.plugins(owner.close_cluster, self._warn)
        self._idle_guard = next((each for each in plugins if isinstance(each, IdleGuard)), None)
        for plugin in plugins:
            scheduler.add_plugin(plugin)
            await plugin.start(scheduler)
        await memory_plugins.install(scheduler, self._guards.layout, not self.nannies_are_here)

    def _warn(self, text: str) -> None:
        logger.warning("cluster %s: %s", self.name, text)

    def _update_worker_status(self, op: str, msg: Any) -> None:
        if op == "remove":
            worker = self.scheduler_info["workers"].get(msg)
            if worker is None:  # it ended while it registered; Dask would stop to follow workers
                return
            self._close_if_lost(worker["name"], worker["nanny"])
            if self.nannies_are_here and get_adaptive(self) is not None:
                self._forget_ended(worker["name"])
        Cluster._update_worker_status(self, op, msg)
        if self.starting:
            report_start(str(self.name), len(self.scheduler_info["workers"]))

    def _forget_ended(self, name: Any) -> None:
        """Forget a lost worker when its nanny has ended, so that adaptive scaling replaces it.

        Dask would do so after ``lost-worker-timeout``, for which a nanny that lives may need to
        start the worker again.
        """

        def check() -> None:
            connected = self.scheduler_info["workers"].values()
            nanny = self.workers.get(name)
            if nanny is None or any(each["name"] == name for each in connected):
                return
            if nanny.status in (Status.closed, Status.failed):
                del self.workers[name]
            elif get_adaptive(self) is not None:
                self._forget_ended(name)

        asyncio.get_running_loop().call_later(_ENDED_SECONDS, check)

    def _close_if_lost(self, name: Any, nanny: str | None, least: float = 0.0) -> None:
        """Close a worker that does not return within ``lost-worker-timeout``, as Dask does.

        A worker that has lent its memory starts again later, and gets this time once more.
        """

        def close() -> None:
            connected = self.scheduler_info["workers"].values()
            if name not in self.workers or any(each["name"] == name for each in connected):
                return
            if is_suspended(self.scheduler, nanny):
                self._close_if_lost(name, nanny, _SUSPENDED_SECONDS)
            else:
                self._futures.add(asyncio.ensure_future(self.workers.pop(name).close()))

        with in_force(self._cluster_config):
            timeout = parse_timedelta(dask.config.get("distributed.deploy.lost-worker-timeout"))
        asyncio.get_running_loop().call_later(max(timeout, least), close)

    async def _close(self) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is not None and self._client is not None:  # the start was complete
            scheduler = self.scheduler if isinstance(self.scheduler, Scheduler) else None
            reason = self.end_reason or "closed"
            await finish_record(recorder, self.scheduler_comm, reason, scheduler, self._copy)
        with log_filters.drop_closing_messages():
            if not self.starting and self.status in (Status.running, Status.failed):
                await self._end_starting_workers()
            failed = self.starting  # Dask closes a cluster within its start, whose error is raised
            with suppress(*([TimeoutError] if failed else [])):
                await asyncio.wait_for(super()._close(), CLOSE_SECONDS if failed else None)
        self._cleanup()

    async def _end_starting_workers(self) -> None:
        """End new workers whose start hangs: Dask waits for it before it closes any worker."""
        try:
            await asyncio.wait_for(self._lock.acquire(), _STARTING_SECONDS)
        except TimeoutError:
            ends = (Status.running, Status.closing, Status.closed, Status.failed)
            starting = [each for each in self._created if each.status not in ends]
            await asyncio.gather(*(each.close() for each in starting), return_exceptions=True)
        else:
            self._lock.release()

    def remember_client(self, client: Client) -> None:
        """Remember the client that was returned with this cluster."""
        self._client = weakref.ref(client)

    def begin_idle_timeout(self) -> None:
        """Start the clock of the idle timeout; the last step of a start."""
        if self._idle_guard is not None:
            self._idle_guard.begin()

    def close(self, timeout: float | None = None) -> Any:
        """Close the cluster; safe to call from several threads, as the idle timeout does.

        Calls are serialized: Dask stops the event loop while it closes, and another thread that
        waits for that loop would get an ``UnboundLocalError`` or wait forever.
        """
        if self.asynchronous:
            return super().close(timeout)
        seconds = parse_timedelta(timeout)
        wait = -1 if seconds is None else min(seconds, threading.TIMEOUT_MAX)
        if not self._closing.acquire(timeout=wait):
            raise TimeoutError(f"another thread did not close the cluster within {seconds:g} s")
        try:
            return super().close(timeout)
        finally:
            self._closing.release()

    def close_all(self) -> None:
        """Close the client that was returned with the cluster, then the cluster."""
        client = self._client() if self._client is not None else None
        try:
            if client is not None:
                try:  # fails if the client closes at this moment
                    self._cancel_futures(client)
                finally:
                    client.close()
        finally:
            self.close()

    def _cancel_futures(self, client: Client) -> None:
        """Cancel the futures of a client with the reason; Dask's own would be "unknown"."""
        if client.status != "running" or not client.futures:
            return
        futures: list[Future[Any]] = [Future(key, client=client) for key in list(client.futures)]
        text = f"cluster {self.name} has closed: {self.end_reason or 'closed by this program'}"
        client.cancel(futures, reason="cluster-closed", msg=text)
