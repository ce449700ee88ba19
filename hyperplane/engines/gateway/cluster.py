"""dask-gateway's cluster, so that closing it, in whatever way, ends what it should.

A subclass, because its own ``close`` waits for itself when ``client.shutdown()`` calls it, and
because it does not notice that somebody else has ended the cluster.
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

from hyperplane.engines.gateway import server
from hyperplane.errors import EngineError

#: Seconds that closing this side may take.
CLOSE_WITHIN = 20.0
#: Seconds between looks at whether the gateway has ended the cluster.
POLL_INTERVAL = 2.0
#: Seconds for one more try to connect where a first has failed, and for any try at least.
RETRY_CONNECT, MIN_CONNECT = 5.0, 0.5

logger = logging.getLogger(__name__)


class GatewayStatus(str):
    """A state as dask-gateway has it, a text, that answers ``.name`` as Dask's own states do."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The text."""
        return str(self)


@contextmanager
def _without_reconnect_messages() -> Iterator[None]:
    """Leave out what Dask logs of a client that is closed as it tries to come back."""

    def is_news(record: logging.LogRecord) -> bool:
        cancelled = record.exc_info and record.exc_info[0] is asyncio.CancelledError
        return not cancelled and not record.getMessage().startswith("Failed to reconnect")

    of_clients = logging.getLogger("distributed.client")
    of_clients.addFilter(is_news)
    try:
        yield
    finally:
        of_clients.removeFilter(is_news)


def _do_nothing() -> None:
    """Do nothing."""


def _connect_timeout(within: float) -> float:
    """Seconds for a connection: as Dask's setting has it, or less where less is left."""
    usual: float = parse_timedelta(dask.config.get("distributed.comm.timeouts.connect"))
    return max(MIN_CONNECT, min(usual, within))


class WatchedGatewayCluster(GatewayCluster):  # type: ignore[misc]
    """A cluster of a gateway: made by :meth:`of`, and else as dask-gateway's."""

    _status: GatewayStatus
    _watcher: asyncio.Future[None] | None = None
    _ended = False
    _connect_within = math.inf
    _release: Callable[[], None] = staticmethod(_do_nothing)
    #: Called when this object has had the cluster ended.
    on_end: Callable[[], None] = staticmethod(_do_nothing)
    #: The name under which settings are lent to this handle, if it is not the owner.
    settings_key: str = ""

    @classmethod
    def of(
        cls,
        gateway: Gateway,
        name: str,
        release: Callable[[], None],
        owner: bool,
        within: float = math.inf,
    ) -> WatchedGatewayCluster:
        """A cluster object for a cluster that the gateway runs.

        Parameters
        ----------
        gateway : Gateway
            From :func:`hyperplane.engines.gateway.server.opened`.
        name : str
            The gateway's name of the cluster.
        release : callable
            Gives up what this process holds for the cluster; called once, however it closes.
        owner : bool
            Whether the cluster shall end with this process.
        within : float
            Seconds that connecting may take; never more than Dask's own setting says.
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
            cls._instances.discard(cluster)  # those in it are closed as the program ends
        return cluster

    async def _init_internals(self) -> None:
        # dask-gateway's own says nothing of what fails here, and so neither does this.
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(super()._init_internals(), self._connect_within)

    def connect_timeout(self, within: float = math.inf) -> float:
        """Seconds that a client gets to connect: few where this object could not, and said nothing.

        Parameters
        ----------
        within : float
            Seconds that are left.
        """
        return _connect_timeout(
            within if self._watch_worker_status_task else min(within, RETRY_CONNECT)
        )

    @property
    def gateway(self) -> server.SafeGateway:
        """The client of the gateway's server."""
        return self._gateway

    @gateway.setter
    def gateway(self, made: Gateway) -> None:
        made.__class__ = server.SafeGateway  # dask-gateway makes one of its own class
        self._gateway: server.SafeGateway = made

    @property
    def status(self) -> GatewayStatus:
        """``created``, ``starting``, ``running``, ``closing`` or ``closed``."""
        return self._status

    @status.setter
    def status(self, value: str) -> None:
        self._status = GatewayStatus(value)

    def remember_client(self, client: Client) -> None:
        """Close this client before the cluster, so that it does not try to come back."""
        self._clients.add(client)

    def scale(self, n: int, **kwargs: Any) -> Any:
        """Ask the gateway for so many worker processes."""
        with server.translate_errors(self.gateway, EngineError):
            return super().scale(n, **kwargs)

    def adapt(self, *args: Any, **kwargs: Any) -> Any:
        """Have the gateway choose the number of worker processes by the load, within limits."""
        with server.translate_errors(self.gateway, EngineError):
            return super().adapt(*args, **kwargs)

    def get_logs(self, cluster: bool = True, scheduler: bool = True, workers: bool = True) -> Logs:
        """The last lines that the scheduler and each worker logged.

        Parameters
        ----------
        cluster, scheduler, workers : bool
            As for Dask's clusters; the gateway's own log is on its server.
        """
        del cluster
        with server.translate_errors(self.gateway, EngineError):
            found: Logs = self.gateway.sync(self._logs, scheduler, workers)
        return found

    async def _logs(self, scheduler: bool, workers: bool) -> Logs:
        found = Logs()
        if scheduler:
            lines = await self.scheduler_comm.get_logs()
            found["Scheduler"] = Log("\n".join(line for _, line in lines))
        if workers:
            for address, lines in (await self.scheduler_comm.worker_logs()).items():
                found[address] = Log("\n".join(line for _, line in lines))
        return found

    def close(self, shutdown: bool | None = None) -> Awaitable[None] | None:
        """End the cluster, for everybody.

        Parameters
        ----------
        shutdown : bool, optional
            False leaves the cluster as it is and closes this side only.
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
        try:
            with _without_reconnect_messages():
                await asyncio.wait_for(super()._stop_internal(shutdown=False), CLOSE_WITHIN)
        except TimeoutError:
            logger.warning("a client of cluster %s did not close in time", self.name)
            self.status = "closed"
        if end and not self._ended and self.name is not None:
            self._ended = True
            try:
                stopping = self.gateway._stop_cluster(self.name)
                await asyncio.wait_for(stopping, server.ANSWER_WITHIN)
                self.on_end()
            except server.FAILURES as error:
                logger.warning(
                    "cluster %s could not be ended: %s. Its idle timeout will, if it still runs",
                    self.name,
                    server.explain_error(error, self.gateway),
                )
            await self.gateway._cleanup()
        self._release()

    async def _watch_worker_status(self, comm: Any) -> None:
        reference = weakref.ref(self)
        following = super()._watch_worker_status(comm)
        del self
        await following  # it returns when the scheduler is gone
        while (cluster := reference()) is not None and cluster.status == "running":
            if await cluster._has_ended():
                # A task of its own: closing cancels this one.
                cluster._watcher = asyncio.ensure_future(cluster._stop_internal(shutdown=False))
                return
            del cluster
            await asyncio.sleep(POLL_INTERVAL)

    async def _has_ended(self) -> bool:
        """Whether the gateway no longer runs the cluster; not while it does not answer."""
        try:
            asking = self.gateway._cluster_report(self.name)
            report = await asyncio.wait_for(asking, server.ANSWER_WITHIN)
        except ValueError:  # it knows no such cluster
            return True
        except server.FAILURES:
            return False
        return str(report.status.name) != "RUNNING"

    def __del__(self) -> None:
        # Not dask-gateway's own: that would end the cluster for everybody.
        if not hasattr(self, "_gateway") or sys.is_finalizing():
            return
        closing = self.close(shutdown=self.shutdown_on_close)
        if closing is not None:  # collected in the thread of its loop
            self._watcher = asyncio.ensure_future(closing)
