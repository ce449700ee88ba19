"""Dask's LocalCluster, Nanny and Scheduler with this package's defaults in force.

Subclasses, because Dask reads these settings in its own process at moments of its own: the nanny's
``terminate`` as it is built, ``lost-worker-timeout`` as a worker leaves, the start method as a
process starts. Nothing else about them differs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Literal, cast

import dask.config
from distributed import Client, LocalCluster, Nanny, Scheduler
from distributed.core import Status
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.node import ServerNode

from hyperplane.engines import records, zygote
from hyperplane.engines.dask_settings import in_force, snapshot, take_back
from hyperplane.engines.lazy_dashboard import LazyDashboard
from hyperplane.engines.quick import import_in_background
from hyperplane.guard.idle import IdleGuard

#: What a client in another process calls on the scheduler to close the whole cluster.
CLOSE_OWNER = "hyperplane_close_owner"

_forking = 0
_forking_lock = threading.Lock()
_forking_config: Any = None


@contextmanager
def _forkserver() -> Iterator[None]:
    """Let Dask start worker processes from the forkserver while any worker is starting.

    A start awaits, so several overlap: the setting goes in with the first and out with the last.
    """
    global _forking, _forking_config
    with _forking_lock:
        _forking += 1
        if _forking == 1:
            setting = {"distributed.worker.multiprocessing-method": "forkserver"}
            _forking_config = dask.config.set(setting)
    try:
        yield
    finally:
        with _forking_lock:
            _forking -= 1
            if not _forking:
                _forking_config.__exit__(None, None, None)


@contextmanager
def _losses_expected() -> Iterator[None]:
    """Leave out Dask's warnings of results lost with the workers: closing means to lose them."""

    def is_news(record: logging.LogRecord) -> bool:
        return "caused the cluster to lose" not in record.getMessage()

    logger = logging.getLogger("distributed.scheduler")
    logger.addFilter(is_news)
    try:
        yield
    finally:
        logger.removeFilter(is_news)


class GuardedNanny(Nanny):
    """A Nanny whose worker keeps its settings through every restart.

    Parameters
    ----------
    config : mapping
        Dotted Dask settings of the worker and of the nanny itself.
    forked : bool
        Whether worker processes are forked from the zygote.
    **kwargs
        As for Nanny.
    """

    def __init__(self, *args: Any, config: Mapping[str, Any], forked: bool, **kwargs: Any) -> None:
        with in_force(config):
            # A copy: what Dask keeps of its configuration shares its inner parts.
            kwargs["config"] = snapshot()
            super().__init__(*args, **kwargs)
        self._forked = forked
        self._own_env = dict(self.env)
        if forked:
            # Dask would write them into this process, for the one that it spawns; the zygote has
            # them already.
            self.pre_spawn_env = {}

    async def instantiate(self) -> Status:
        """Start the worker process, by fork where that is possible."""
        if not self._forked:
            return await super().instantiate()
        # A forked process has the variables of the zygote; a spawned one has those of now.
        self.env = {**os.environ, **self._own_env}
        with _forkserver():
            return await super().instantiate()

    async def close(  # type: ignore[override]
        self, timeout: float = 5, reason: str = "nanny-close"
    ) -> Literal["OK"]:
        """Close, and reach an end even when the worker process never came up.

        Before distributed 2026.8 a nanny whose worker failed to start could fail to close, and
        was left half closed; whoever closed it again waited for ever.
        """
        try:
            return await super().close(timeout=timeout, reason=reason)
        except Exception:
            if self.status == Status.closing:
                self.process = None
                self.status = Status.closed
                await ServerNode.close(self)
            raise


class GuardedScheduler(Scheduler):
    """A Scheduler built with its cluster's settings in force.

    Parameters
    ----------
    config : mapping
        Dotted Dask settings.
    """

    def __init__(self, *args: Any, config: Mapping[str, Any], **kwargs: Any) -> None:
        with in_force(config):
            super().__init__(*args, **kwargs)
        LazyDashboard(self)


class _Owner(SchedulerPlugin):
    """Stands in the scheduler for the cluster object that owns it.

    A client in another process asks it to close the whole cluster, in order: workers first. And
    when the scheduler ends for a reason of its own, the cluster object follows; without that it
    says that it runs, and leaves its nannies behind.
    """

    name = "hyperplane-owner"

    def __init__(self, cluster: GuardedLocalCluster) -> None:
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


class GuardedLocalCluster(LocalCluster):
    """A LocalCluster that leaves nothing behind.

    Parameters
    ----------
    scheduler_config : mapping
        Dotted Dask settings for the scheduler.
    cluster_config : mapping
        Dotted Dask settings that the cluster object reads.
    scratch : str
        Folder of the workers; removed with the cluster.
    uses_zygote : bool
        Whether the cluster holds a share of the zygote.
    idle_timeout : float or None
        Seconds without use after which the cluster closes itself.
    import_meanwhile : sequence of str
        Modules to import here while the worker processes start.
    **kwargs
        As for LocalCluster.
    """

    def __init__(
        self,
        *,
        scheduler_config: Mapping[str, Any],
        cluster_config: Mapping[str, Any],
        scratch: str,
        uses_zygote: bool,
        idle_timeout: float | None,
        import_meanwhile: Sequence[str],
        **kwargs: Any,
    ) -> None:
        self._scheduler_config = scheduler_config
        self._idle_timeout = idle_timeout
        self._import_meanwhile = import_meanwhile
        self._cluster_config = cluster_config
        self._client: weakref.ref[Client] | None = None
        self._cleanup = weakref.finalize(self, clean_up, kwargs["name"], scratch, uses_zygote)
        # Dask's own exit handler closes the cluster first; this is for what it may leave.
        self._cleanup.atexit = False
        try:
            super().__init__(**kwargs)  # starts everything, and calls _start() for it
            self._importing.join()
        except BaseException as error:
            if not isinstance(error, Exception):  # Dask closes after those by itself
                with suppress(Exception):  # what matters to the caller is the interrupt
                    self.sync(self._abort)
                self._loop_runner.stop()
            self._cleanup()
            raise

    async def _abort(self) -> None:
        """Close while workers are still starting: after Ctrl-C nobody wants to wait for them."""
        # The starts of workers fail now, and nobody asks them why.
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        nannies = list(self._created)
        for nanny in nannies:
            process = getattr(nanny.process, "process", None)
            if process is not None and process.is_alive():
                await process.kill()
        for step in ("start", "close"):  # wait for the one, then do the other
            steps = (getattr(nanny, step)() for nanny in nannies)
            await asyncio.gather(*steps, return_exceptions=True)
        await self._close()

    async def _start(self) -> None:
        if self.scheduler_spec["cls"] is Scheduler:
            options = {**self.scheduler_spec["options"], "config": self._scheduler_config}
            self.scheduler_spec = {"cls": GuardedScheduler, "options": options}
        await super()._start()
        # Now, and not sooner: the scheduler starts first, and then this process only waits.
        self._importing = import_in_background(self._import_meanwhile)
        if self.status == Status.running:
            await self._add_guards(cast(Scheduler, self.scheduler))

    async def _add_guards(self, scheduler: Scheduler) -> None:
        owner = _Owner(self)
        plugins: list[SchedulerPlugin] = [owner]
        if self._idle_timeout is not None:
            plugins.append(IdleGuard(self._idle_timeout, owner.close_cluster))
        for plugin in plugins:
            scheduler.add_plugin(plugin)
            await plugin.start(scheduler)

    def _update_worker_status(self, op: str, msg: Any) -> None:
        with in_force(self._cluster_config):
            super()._update_worker_status(op, msg)

    async def _close(self) -> None:
        with _losses_expected():
            await super()._close()
        self._cleanup()

    def used_by(self, client: Client) -> None:
        """Remember the client that was returned with this cluster."""
        self._client = weakref.ref(client)

    def close_all(self) -> None:
        """Close the client that was returned with the cluster, then the cluster."""
        client = self._client() if self._client is not None else None
        if client is not None:
            client.close()
        self.close()


def clean_up(name: str, scratch: str, uses_zygote: bool) -> None:
    """Give up a cluster's share of the zygote, its settings, its record and its folder."""
    take_back(name)
    try:
        if uses_zygote:
            zygote.release()
    finally:
        records.remove(name, scratch)
