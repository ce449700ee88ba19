"""Subclass of dask-kubernetes' KubeCluster with TLS, explained waits and complete cleanup.

KubeCluster gives up after a minute when the operator misses an event, does not say why a pod cannot
run, leaves its forwarded ports open and does not support TLS.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import threading
import time
import uuid
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from dask_kubernetes.operator import KubeCluster
from dask_kubernetes.operator.kubecluster.kubecluster import CreateMode
from distributed import Client
from distributed.core import Status, rpc
from distributed.deploy.cluster import Cluster
from distributed.objects import SchedulerInfo
from distributed.security import Security
from distributed.utils import Logs
from tornado.ioloop import PeriodicCallback

from hyperplane.clusters.custom_resource import engine_errors
from hyperplane.clusters.dask.cluster_html import ClusterHtml
from hyperplane.clusters.dask.interruptible_start import InterruptibleStart
from hyperplane.clusters.dask.kubernetes.render import CLIENT, COMM_PORT, DASHBOARD_PORT, ENGINE
from hyperplane.clusters.dask.kubernetes.resource import DaskClusterResource
from hyperplane.clusters.dask.lease_renewal import create_renewal
from hyperplane.clusters.dask.run_usage import UsageCopy, finish_record
from hyperplane.clusters.dask.settings import restore_client_settings
from hyperplane.clusters.dask.start_errors import ANSWER_SECONDS
from hyperplane.core.errors import EngineError, StartTimeout
from hyperplane.guard.run_recorder import RunRecorder
from hyperplane.platforms.kubernetes.kubeconfig import uses_port_forward
from hyperplane.platforms.kubernetes.port_forward import PortForwards
from hyperplane.spec.plan import ClusterPlan

#: Seconds between two requests for the workers.
POLL_INTERVAL = 3.0
#: Seconds that closing waits until the processes have ended.
CLOSE_SECONDS = 90.0

logger = logging.getLogger(__name__)


def _close_owned_clusters() -> None:
    """Close the clusters that this program owns, at its exit."""
    for cluster in list(KubeCluster._instances):
        if isinstance(cluster, HyperplaneKubeCluster) and cluster.shutdown_on_close:
            with suppress(Exception):  # the operator deletes it after the idle timeout
                cluster.close(timeout=0)


# Dask's exit handler runs too late: host names cannot be resolved and no thread can be started.
getattr(threading, "_register_atexit", atexit.register)(_close_owned_clusters)


class HyperplaneKubeCluster(ClusterHtml, InterruptibleStart, KubeCluster):  # type: ignore[misc]
    """KubeCluster with TLS, explained waits and complete cleanup.

    Parameters
    ----------
    name : str
        Name of the cluster.
    manifest : mapping or None
        The DaskCluster to create; None to attach to an existing one.
    namespace : str or None
        None for the namespace of the context or of this pod.
    tls : mapping
        Key pair of a new cluster, as text; empty without TLS.
    deadline : float
        Time limit of the start, by ``time.monotonic``.
    port_forward : str
        "auto", "always" or "never".
    dashboard_port : int or None
        Port of this machine for the dashboard, if ports are forwarded.
    lease : float or None
        Seconds of the cluster's lease, which this object renews; None not to renew it.
    """

    def __init__(
        self,
        name: str,
        manifest: Mapping[str, Any] | None,
        *,
        namespace: str | None,
        tls: Mapping[str, str],
        deadline: float,
        port_forward: str,
        dashboard_port: int | None = None,
        lease: float | None = None,
    ) -> None:
        self._manifest, self._tls, self._deadline = manifest, tls, deadline
        self._lease = lease
        self.resource = DaskClusterResource(name, namespace)
        self._uses_port_forward = uses_port_forward(port_forward)
        self._dashboard_port = dashboard_port
        self._forwards: PortForwards | None = None
        self._dashboard = ""
        self._workers_seen: set[str] = set()
        self._client: weakref.ref[Client] | None = None
        self._recorder: RunRecorder | None = None
        self._copy = UsageCopy(self)
        # Unique for a handle that attaches: the owner may be in this process too.
        self.settings_key = name if manifest else f"{name} {uuid.uuid4()}"
        self._restore_settings = weakref.finalize(self, restore_client_settings, self.settings_key)
        self.starting = True
        try:
            super().__init__(
                name=name,
                namespace=namespace,
                create_mode=CreateMode.CREATE_ONLY if manifest else CreateMode.CONNECT_ONLY,
                # Exit handlers close only clusters with this flag.
                shutdown_on_close=manifest is not None,
                quiet=True,
            )
        except BaseException:
            self.starting = False
            with suppress(Exception):  # the caller needs the first error
                self._abort()
            raise
        self.starting = False

    @property
    def security(self) -> Security:
        """The key pair of the cluster."""
        return self.resource.security

    async def _start(self) -> None:
        with engine_errors(ENGINE):
            await self._connect()
        self.periodic_callbacks["poll"] = PeriodicCallback(self._poll, POLL_INTERVAL * 1000)
        self.periodic_callbacks["poll"].start()
        if self._lease:
            self.periodic_callbacks["lease"] = create_renewal(self, self._lease)
            self.periodic_callbacks["lease"].start()
        self.status = Status.running

    async def _connect(self) -> None:
        """Create or load the resource, and connect to its scheduler."""
        await self.resource.api.connect()
        self.namespace = self.resource.api.namespace
        if self._manifest is not None:
            await self.resource.create(self._manifest, self._tls)
        else:
            await self.resource.load()
        await self.resource.wait_for_head(self._deadline)
        await self._reach_scheduler()

    async def _reach_scheduler(self) -> None:
        protocol = "tls" if self.security.require_encryption else "tcp"
        host = f"{self.name}-scheduler.{self.namespace}"
        ports = {COMM_PORT: COMM_PORT, DASHBOARD_PORT: DASHBOARD_PORT}
        if self._uses_port_forward:
            local_ports = {COMM_PORT: None, DASHBOARD_PORT: self._dashboard_port}
            self._forwards = PortForwards(f"{self.name}-scheduler", self.namespace, local_ports)
            await self._forwards.open()
            host, ports = "127.0.0.1", self._forwards.local
        self._dashboard = f"http://{host}:{ports[DASHBOARD_PORT]}/status"
        self.scheduler_comm = rpc(
            f"{protocol}://{host}:{ports[COMM_PORT]}",
            connection_args=self.security.get_connection_args("client"),
        )
        while True:
            try:
                remaining = max(ANSWER_SECONDS, self._deadline - time.monotonic())
                await asyncio.wait_for(self._refresh_info(), remaining)
                return
            except OSError as error:  # also a TimeoutError
                if time.monotonic() > self._deadline:
                    where = f"{host}:{ports[COMM_PORT]}"
                    raise StartTimeout(
                        ENGINE,
                        f"the scheduler does not answer at {where}: {error}. Check the network "
                        "policies and hyperplane.engines.kubernetes.port_forward",
                    ) from error
                await asyncio.sleep(0.5)

    @property
    def dashboard_link(self) -> str:
        """Link to the dashboard, as seen from this machine."""
        return self._dashboard

    @property
    def client_settings_json(self) -> str:
        """Dask settings for clients of the cluster, as JSON."""
        return self.resource.annotations.get(CLIENT, "{}")

    async def _refresh_info(self) -> None:
        self.scheduler_info = SchedulerInfo(await self.scheduler_comm.identity(n_workers=-1))

    async def _poll(self) -> None:
        """Update the list of workers, and close this object if the cluster was deleted."""
        try:
            await self._refresh_info()
            workers = set(self.scheduler_info["workers"])
            if self._workers_seen - workers:
                await self.resource.warn_out_of_memory()
            self._workers_seen = workers
        except OSError:
            if self.status == Status.running:
                with suppress(EngineError):  # without an answer the cluster may still exist
                    if await self.resource.is_gone():
                        logger.warning(
                            "cluster %s was deleted after its idle timeout, when its lease "
                            "expired or its budget was used up, or by another program",
                            self.name,
                        )
                        await self._finish_record("it was deleted")
                        await self._close_client()
                        await self._detach()
        except EngineError as error:
            logger.debug("cannot check the pods of %s: %s", self.name, error)

    @property
    def cluster_plan(self) -> ClusterPlan | None:
        """Its plan, if this object writes the record of the run."""
        return None if self._recorder is None else self._recorder.plan

    def begin_record(self, recorder: RunRecorder) -> None:
        """Let this object write the record of the run when it closes, or when it was deleted."""
        self._recorder = recorder
        self.periodic_callbacks["usage"] = self._copy.timer
        self.loop.add_callback(self._copy.timer.start)

    async def _finish_record(self, reason: str) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            await finish_record(recorder, self.scheduler_comm, reason, copy=self._copy)

    def remember_client(self, client: Client) -> None:
        """Remember the client that was returned with this cluster."""
        self._client = weakref.ref(client)

    async def _close_client(self) -> None:
        """Close the client, which would otherwise try to reconnect for half a minute."""
        client = self._client() if self._client is not None else None
        if client is not None and (closing := client.close()) is not None:
            await closing

    async def _get_logs(self) -> Logs:
        return await self.resource.logs()

    def adapt(self, minimum: int = 0, maximum: int | None = None) -> Any:
        """Let the operator scale the worker processes with the work.

        Parameters
        ----------
        minimum, maximum : int
            Limits of the number of worker processes; by default at most those of the start.
        """
        if maximum is None:
            maximum = int(self.resource.content["spec"]["worker"]["replicas"])
        return super().adapt(minimum=minimum, maximum=maximum)

    def _abort(self) -> None:
        if self.shutdown_on_close:
            self.close()
        else:
            self.detach()

    def detach(self) -> None:
        """Close this handle but not the cluster."""
        self.sync(self._detach)
        self._loop_runner.stop()

    async def _detach(self) -> None:
        await self._close_handle()
        await self.resource.api.close()

    async def _close_handle(self) -> None:
        self._restore_settings()
        await Cluster._close(self)
        if self._forwards is not None:
            await self._forwards.close()

    def close(self, timeout: float = CLOSE_SECONDS) -> Any:
        """Delete the cluster, also if another program started it.

        Parameters
        ----------
        timeout : float
            Seconds to wait until its processes have ended; 0 to return at once.
        """
        if self.status == Status.closed and not self.asynchronous:
            self._loop_runner.stop()
            return None
        try:
            return self.sync(self._close, timeout=timeout)
        finally:
            if not self.asynchronous:
                self._loop_runner.stop()

    async def _close(self, timeout: float = CLOSE_SECONDS) -> None:
        if self.status in (Status.closing, Status.closed):
            return
        await self._finish_record("closed")
        await self._close_handle()
        try:
            if self.resource.may_delete:
                await self.resource.delete(timeout)
        finally:
            await self.resource.api.close()
