"""Attach to a cluster that another process of this user runs on this machine."""

from __future__ import annotations

import asyncio
import logging
import math
import time
import uuid
import weakref
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

from distributed import Client
from distributed.core import Status, rpc
from distributed.deploy.cluster import Cluster
from distributed.objects import SchedulerInfo
from tornado.ioloop import PeriodicCallback

from hyperplane.clusters import records
from hyperplane.clusters.dask.cluster_html import ClusterHtml
from hyperplane.clusters.dask.local_process import LOOPBACK
from hyperplane.clusters.dask.open_client import open_client
from hyperplane.clusters.dask.owner_requests import (
    ADAPT_OWNER,
    CLOSE_OWNER,
    READ_LIMITS,
    SCALE_OWNER,
)
from hyperplane.clusters.dask.scheduler_requests import find_client_security
from hyperplane.clusters.dask.scheduler_silence import stall_seconds, watch_scheduler
from hyperplane.clusters.dask.settings import apply_client_settings, restore_client_settings
from hyperplane.clusters.engine import StartedCluster
from hyperplane.clusters.running_clusters import describe_running, read_running
from hyperplane.core.argument_checks import find_count_faults
from hyperplane.core.errors import EngineError, Fault, check
from hyperplane.spec.settings import EngineSettings

#: Seconds that closing waits for the owning process to clean up.
CLOSE_TIMEOUT_SECONDS = 30.0
#: Seconds between two requests for the workers of the cluster.
POLL_INTERVAL = 1.0
#: Seconds that a running cluster may take to answer the first request.
ANSWER_SECONDS = 30.0

logger = logging.getLogger(__name__)


class AdaptiveLimits(NamedTuple):
    """Numbers of worker processes between which a cluster of another process adapts."""

    minimum: int
    maximum: float


class AttachedCluster(ClusterHtml, Cluster):
    """Dask's Cluster for a scheduler in another process.

    It shows the cluster and its logs, scales it and can close it. Its owner carries out what this
    object requests.

    Parameters
    ----------
    record : ClusterRecord
        The running cluster.
    **kwargs
        Arguments of Dask's class. With ``asynchronous=True`` the object is used on the running
        event loop, which :func:`attach_asynchronously` does.
    """

    def __init__(self, record: records.ClusterRecord, **kwargs: Any) -> None:
        super().__init__(name=record.name, **kwargs)
        self._record = record
        # Unique: the owner and other handles may be in this process too.
        self.settings_key = f"{record.name} {uuid.uuid4()}"
        self._requests: set[asyncio.Future[None]] = set()
        self._restore_settings = weakref.finalize(self, restore_client_settings, self.settings_key)
        if not self.called_from_running_loop:
            self._loop_runner.start()
            try:
                self.sync(self._start)
            except BaseException:
                self.detach()
                raise

    async def _start(self) -> None:
        # Without super()._start(), which would make the scheduler send its worker updates to this
        # object and no longer to the owner.
        self.security = find_client_security(self._record)
        self.scheduler_comm = rpc(
            self._record.scheduler,
            connection_args=self.security.get_connection_args("client"),
        )
        try:
            await asyncio.wait_for(self._refresh_info(), ANSWER_SECONDS)
        except (TimeoutError, OSError) as error:
            raise _no_answer_error(self._record) from error
        apply_client_settings(self.settings_key, self._record.client)
        self.periodic_callbacks["poll"] = PeriodicCallback(self._poll, POLL_INTERVAL * 1000)
        self.periodic_callbacks["poll"].start()
        self.status = Status.running

    @property
    def dashboard_link(self) -> str:
        """Link of the owner; it may have a forwarded port that the scheduler does not know."""
        return self._record.dashboard

    async def _poll(self) -> None:
        # The record is read first, because Dask waits 30 s for a scheduler that has ended.
        if _is_listed(self._record.name):
            with suppress(OSError):
                await self._refresh_info()
        elif self.status == Status.running:
            self._restore_settings()
            await super()._close()  # the owner or another handle has closed the cluster

    def scale(self, n: int) -> Any:
        """Scale the cluster to `n` worker processes; an adaptive cluster stops adapting."""
        check(find_count_faults("n", n, least=0))
        return self.sync(self._request, SCALE_OWNER, n=int(n))

    def adapt(  # type: ignore[override]
        self, *, minimum: int | None = 0, maximum: float | None = None
    ) -> AdaptiveLimits:
        """Let the cluster adapt to the work between two numbers of worker processes.

        Without a minimum it is 0; without a maximum there is none.

        Returns
        -------
        AdaptiveLimits
            The two numbers; its owner has the object that scales the cluster.
        """
        minimum = 0 if minimum is None else minimum
        maximum = math.inf if maximum is None else maximum
        faults = find_count_faults("minimum", minimum, least=0)
        if not (isinstance(maximum, float) and maximum == math.inf):
            faults += find_count_faults("maximum", maximum)
            if not faults and minimum > maximum:
                faults = [Fault("minimum", repr(minimum), f"at most maximum, which is {maximum}")]
        check(faults)
        request = self.sync(self._request, ADAPT_OWNER, minimum=minimum, maximum=maximum)
        if asyncio.iscoroutine(request):  # Dask's method returns at once, too
            task = asyncio.ensure_future(self._log_failure(request))
            self._requests.add(task)
            task.add_done_callback(self._requests.discard)
        return AdaptiveLimits(minimum, maximum)

    async def read_limits(self) -> AdaptiveLimits | None:
        """Return between which numbers of processes the cluster adapts; None if it does not."""
        limits = await getattr(cast(rpc, self.scheduler_comm), READ_LIMITS)()
        return None if limits is None else AdaptiveLimits(*limits)

    async def _request(self, handler: str, **arguments: Any) -> None:
        """Let the owner carry out a request, and read the workers of the cluster again."""
        try:
            request = getattr(cast(rpc, self.scheduler_comm), handler)(**arguments)
            answer = await asyncio.wait_for(request, ANSWER_SECONDS)
            await self._refresh_info()
        except (TimeoutError, OSError) as error:
            raise _no_answer_error(self._record) from error
        if not answer:
            raise _scale_error(self._record)

    async def _log_failure(self, request: Coroutine[Any, Any, None]) -> None:
        try:
            await request
        except Exception as error:  # noqa: BLE001 - the owner's error may be any
            logger.warning("cluster %s does not adapt: %s", self.name, error)

    def close(self, timeout: float | None = None) -> Any:
        """Close the cluster for all its clients."""
        try:
            return super().close(timeout)
        finally:
            if not self.asynchronous:
                self._loop_runner.stop()

    def detach(self) -> None:
        """Close this handle but not the cluster."""
        self.sync(self.close_handle)
        self._loop_runner.stop()

    async def close_handle(self) -> None:
        """Close this handle but not the cluster, on its event loop."""
        self._restore_settings()
        await super()._close()

    async def read_scheduler_process(self) -> str:
        """Return the text of ``/proc/PID/stat`` of the owner, if the scheduler runs in it."""
        if not self._record.scheduler.startswith(f"tcp://{LOOPBACK}:"):
            return ""
        return await asyncio.to_thread(Path(f"/proc/{self._record.pid}/stat").read_text)

    async def _refresh_info(self) -> None:
        scheduler = cast(rpc, self.scheduler_comm)
        self.scheduler_info = SchedulerInfo(await scheduler.identity(n_workers=-1))

    async def _close(self) -> None:
        self._restore_settings()
        if self.status == Status.running:
            self.status = Status.closing
            self.periodic_callbacks["poll"].stop()
            if _is_listed(self._record.name):
                with suppress(OSError):  # the scheduler is ending already, or is stopped
                    closing = getattr(self.scheduler_comm, CLOSE_OWNER)()
                    await asyncio.wait_for(closing, CLOSE_TIMEOUT_SECONDS)
            deadline = time.monotonic() + CLOSE_TIMEOUT_SECONDS
            while _is_listed(self._record.name) and time.monotonic() < deadline:
                await asyncio.sleep(0.05)
        await super()._close()


def _no_answer_error(record: records.ClusterRecord) -> EngineError:
    return EngineError(
        record.engine,
        f"cluster {record.name!r} did not answer within {ANSWER_SECONDS:g} s: its process "
        f"{record.pid} is stopped or overloaded. Continue it (kill -CONT {record.pid}) or end it "
        f"(kill -KILL {record.pid}), then try again",
    )


def _scale_error(record: records.ClusterRecord) -> EngineError:
    return EngineError(
        record.engine,
        f"cluster {record.name!r} can be scaled only by the process that started it, process "
        f"{record.pid} of this machine. Call scale() or adapt() there, or close the cluster and "
        "start one of the wanted size",
    )


async def attach_asynchronously(
    record: records.ClusterRecord, cluster_class: type[AttachedCluster] = AttachedCluster
) -> AttachedCluster:
    """Return a cluster object for a running cluster, to be used on the running event loop.

    Its ``close`` and ``scale`` are awaited. Raises an EngineError if the cluster does not answer.
    """
    cluster = cluster_class(record, asynchronous=True)
    try:
        await cluster._start()
    except BaseException:
        await cluster.close_handle()
        raise
    return cluster


def _is_listed(name: str) -> bool:
    return any(record.name == name for record in records.read_all())


def attach(name: str, engine: str, settings: EngineSettings) -> StartedCluster:
    """Return a client and a cluster object for a running cluster.

    Raises
    ------
    EngineError
        If no cluster of that name and engine runs (the message lists those that do), if it
        does not answer, or if the records of clusters cannot be read.
    """
    running = read_running(engine)
    matching = [record for record in running if (record.name, record.engine) == (name, engine)]
    if not matching:
        raise EngineError(
            engine,
            f"this machine runs no cluster {name!r} of this engine; {describe_running(running)}",
        )
    record = matching[0]
    cluster = AttachedCluster(record)
    try:
        direct = record.direct_to_workers or None
        client = open_client(
            lambda: Client(cluster, timeout=ANSWER_SECONDS, direct_to_workers=direct),
            cluster,
            ANSWER_SECONDS,
        )
        watch_scheduler(client, cluster, name, stall_seconds(settings))
        return StartedCluster(client, cluster)
    except (TimeoutError, OSError) as error:
        cluster.detach()
        raise _no_answer_error(record) from error
