"""Subclass of dask-gateway's GatewayCluster that closes reliably.

The ``close`` of GatewayCluster deadlocks when ``client.shutdown()`` calls it, and GatewayCluster
stays open when another client has ended the cluster.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sys
import weakref
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import dask.config
from dask.utils import parse_timedelta
from dask_gateway import Gateway, GatewayCluster
from distributed import Client
from distributed.utils import Log, Logs
from tornado.ioloop import PeriodicCallback

from hyperplane.clusters.dask.cluster_html import ClusterHtml
from hyperplane.clusters.dask.gateway import server
from hyperplane.clusters.dask.lease_renewal import create_renewal
from hyperplane.clusters.dask.run_usage import UsageCopy, finish_record
from hyperplane.core.errors import EngineError
from hyperplane.core.notebook_output import CellOutput
from hyperplane.guard.run_recorder import RunRecorder
from hyperplane.spec.plan import ClusterPlan

#: Seconds that closing the client side may take.
CLOSE_TIMEOUT_SECONDS = 20.0
#: Seconds between checks of whether the gateway has ended the cluster.
POLL_INTERVAL = 2.0
#: Seconds for a second attempt to connect after a failed one, and minimum for any attempt.
RETRY_SECONDS, MIN_CONNECT_SECONDS = 5.0, 0.5

logger = logging.getLogger(__name__)


class GatewayStatus(str):
    """Text of a dask-gateway status that also has ``.name``, as Dask's status enum does."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The text of the status."""
        return str(self)


@contextmanager
def _without_reconnect_messages() -> Iterator[None]:
    """Suppress Dask's messages about a client that is closed while it tries to reconnect."""

    def is_shown(record: logging.LogRecord) -> bool:
        cancelled = record.exc_info and record.exc_info[0] is asyncio.CancelledError
        return not cancelled and not record.getMessage().startswith("Failed to reconnect")

    client_logger = logging.getLogger("distributed.client")
    client_logger.addFilter(is_shown)
    try:
        yield
    finally:
        client_logger.removeFilter(is_shown)


def _do_nothing() -> None:
    """Do nothing."""


def _connect_timeout(within: float) -> float:
    """Return the seconds for a connection: Dask's setting, or ``within`` if it is smaller."""
    configured: float = parse_timedelta(dask.config.get("distributed.comm.timeouts.connect"))
    return max(MIN_CONNECT_SECONDS, min(configured, within))


class WatchedGatewayCluster(ClusterHtml, GatewayCluster):  # type: ignore[misc]
    """GatewayCluster that closes reliably, also when the gateway ends the cluster."""

    _status: GatewayStatus
    _watcher: asyncio.Future[None] | None = None
    _ended = False
    _connect_within = math.inf
    _renewal: PeriodicCallback | None = None
    _release: Callable[[], None] = staticmethod(_do_nothing)
    #: Called after this object has stopped the cluster.
    on_end: Callable[[], None] = staticmethod(_do_nothing)
    #: Writes the record of the run when this process closes the cluster, or when it has ended.
    recorder: RunRecorder | None = None
    _copy: UsageCopy | None = None
    #: Name under which client settings are applied for this handle, if it is not the owner.
    settings_key: str = ""

    @classmethod
    def create(
        cls,
        gateway: Gateway,
        name: str,
        release: Callable[[], None],
        owner: bool,
        within: float = math.inf,
    ) -> WatchedGatewayCluster:
        """Return a cluster object for a cluster that the gateway runs.

        Parameters
        ----------
        gateway : Gateway
            From :func:`hyperplane.clusters.dask.gateway.server.open_gateway`.
        name : str
            The gateway's name of the cluster.
        release : callable
            Releases what this process holds for the cluster; called once, however it closes.
        owner : bool
            Whether the cluster ends with this process.
        within : float
            Seconds that connecting may take, unless Dask's setting for it is shorter.
        """
        cluster: WatchedGatewayCluster = object.__new__(cls)
        cluster._connect_within = _connect_timeout(within)
        cluster._init_internal(
            name=name,
            shutdown_on_close=owner,
            address=gateway.address,
            proxy_address=gateway.proxy_address,
            public_address=gateway._public_address,
            auth=gateway.auth,
            loop=gateway.loop,
        )
        cluster._release = weakref.finalize(cluster, release)
        if not owner:
            cls._instances.discard(cluster)  # dask-gateway closes all instances at exit
        return cluster

    async def _init_internals(self) -> None:
        # dask-gateway ignores errors here, so a timeout is ignored too.
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(super()._init_internals(), self._connect_within)

    def connect_timeout(self, within: float = math.inf) -> float:
        """Return the seconds that a client may take to connect, at most `within`.

        Few if this object itself failed to connect, which dask-gateway does not report.
        """
        return _connect_timeout(
            within if self._watch_worker_status_task else min(within, RETRY_SECONDS)
        )

    @property
    def gateway(self) -> server.SafeGateway:
        """The client of the gateway server."""
        return self._gateway

    @gateway.setter
    def gateway(self, gateway: Gateway) -> None:
        gateway.__class__ = server.SafeGateway  # dask-gateway creates a Gateway
        self._gateway: server.SafeGateway = gateway

    @property
    def status(self) -> GatewayStatus:
        """``created``, ``starting``, ``running``, ``closing`` or ``closed``."""
        return self._status

    @status.setter
    def status(self, value: str) -> None:
        self._status = GatewayStatus(value)

    def remember_client(self, client: Client) -> None:
        """Register a client to be closed before the cluster, so that it does not reconnect."""
        self._clients.add(client)

    @property
    def cluster_plan(self) -> ClusterPlan | None:
        """Its plan, if this object writes the record of the run."""
        return None if self.recorder is None else self.recorder.plan

    def begin_record(self, recorder: RunRecorder) -> None:
        """Let this object write the record of the run when it closes."""
        self.recorder, self._copy = recorder, UsageCopy(self)
        self.gateway.loop.add_callback(self._copy.timer.start)

    def begin_lease(self, seconds: float) -> None:
        """Renew the cluster's lease of some seconds until this object closes."""
        self._renewal = create_renewal(self, seconds)
        self.gateway.loop.add_callback(self._renewal.start)

    def _ipython_display_(self, **kwargs: Any) -> None:
        """Show the facts, and below them the buttons of dask-gateway if they can be shown."""
        CellOutput().show(repr(self), self._repr_html_())
        if self._widget() is not None:
            super()._ipython_display_(**kwargs)

    def scale(self, n: int, **kwargs: Any) -> Any:
        """Request `n` worker processes from the gateway."""
        with server.translate_errors(self.gateway, EngineError):
            return super().scale(n, **kwargs)

    def adapt(self, *args: Any, **kwargs: Any) -> Any:
        """Let the gateway scale the number of worker processes with the load, within limits."""
        with server.translate_errors(self.gateway, EngineError):
            return super().adapt(*args, **kwargs)

    def get_logs(self, cluster: bool = True, scheduler: bool = True, workers: bool = True) -> Logs:
        """Return the last log lines of the scheduler and of each worker.

        The arguments are those of Dask's clusters; the gateway's own log is on its server.
        """
        del cluster
        with server.translate_errors(self.gateway, EngineError):
            logs: Logs = self.gateway.sync(self._logs, scheduler, workers)
        return logs

    async def _logs(self, scheduler: bool, workers: bool) -> Logs:
        logs = Logs()
        if scheduler:
            lines = await self.scheduler_comm.get_logs()
            logs["Scheduler"] = Log("\n".join(line for _, line in lines))
        if workers:
            for address, lines in (await self.scheduler_comm.worker_logs()).items():
                logs[address] = Log("\n".join(line for _, line in lines))
        return logs

    def close(self, shutdown: bool | None = None) -> Awaitable[None] | None:
        """Close this object and stop the cluster for all clients.

        Parameters
        ----------
        shutdown : bool, optional
            False closes only this object.
        """
        end = shutdown is not False
        if server.is_loop_thread(self.gateway):
            stopping: Awaitable[None] = self._stop_internal(end)
            return stopping
        if self.status == "closed":
            self.gateway.close()
            return None
        return super().close(end)  # type: ignore[no-any-return]

    async def _stop_internal(self, shutdown: bool | None = None) -> None:
        end = self.shutdown_on_close if shutdown is None else shutdown
        if self._renewal is not None:
            self._renewal.stop()
        if self._copy is not None:
            self._copy.timer.stop()
        recorder, self.recorder = self.recorder, None
        if recorder is not None:
            reason = "closed" if end else "it has ended"
            await finish_record(recorder, self.scheduler_comm, reason, copy=self._copy)
        try:
            with _without_reconnect_messages():
                await asyncio.wait_for(
                    super()._stop_internal(shutdown=False), CLOSE_TIMEOUT_SECONDS
                )
        except TimeoutError:
            logger.warning("a client of cluster %s did not close in time", self.name)
            self.status = "closed"
        if end and not self._ended and self.name is not None:
            self._ended = True
            try:
                stopping = self.gateway._stop_cluster(self.name)
                await asyncio.wait_for(stopping, server.ANSWER_SECONDS)
                self.on_end()
            except server.FAILURES as error:
                logger.warning(
                    "cluster %s could not be stopped: %s. Its idle timeout stops it if it runs",
                    self.name,
                    server.explain_error(error, self.gateway),
                )
            await self.gateway._cleanup()
        self._release()

    async def _watch_worker_status(self, comm: Any) -> None:
        reference = weakref.ref(self)
        following = super()._watch_worker_status(comm)
        del self
        await following  # returns when the scheduler has ended
        while (cluster := reference()) is not None and cluster.status == "running":
            if await cluster._has_ended():
                # In a separate task, because closing cancels this one.
                cluster._watcher = asyncio.ensure_future(cluster._stop_internal(shutdown=False))
                return
            del cluster
            await asyncio.sleep(POLL_INTERVAL)

    async def _has_ended(self) -> bool:
        """Return whether the gateway has ended the cluster; False if it does not answer."""
        try:
            request = self.gateway._cluster_report(self.name)
            report = await asyncio.wait_for(request, server.ANSWER_SECONDS)
        except ValueError:  # there is no such cluster
            return True
        except server.FAILURES:
            return False
        return str(report.status.name) != "RUNNING"

    def __del__(self) -> None:
        # dask-gateway's __del__ would stop the cluster for all clients.
        if not hasattr(self, "_gateway") or sys.is_finalizing():
            return
        closing = self.close(shutdown=self.shutdown_on_close)
        if closing is not None:  # garbage-collected in the thread of its event loop
            self._watcher = asyncio.ensure_future(closing)
