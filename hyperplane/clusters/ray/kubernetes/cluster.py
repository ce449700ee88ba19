"""The cluster object of the engine ``ray:kubernetes``."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hyperplane.clusters import records
from hyperplane.clusters.framework import CLOSED, RUNNING
from hyperplane.clusters.interrupts import allow_interrupts
from hyperplane.clusters.ray import driver_environment
from hyperplane.clusters.ray.cluster import OwnedRayCluster
from hyperplane.clusters.ray.kubernetes.lease import JobLease, load_lease
from hyperplane.clusters.ray.kubernetes.render import (
    CLIENT_PORT,
    DASHBOARD_PORT,
    ENGINE,
    build_idle_job,
    build_manifest,
    job_name,
    service_names,
)
from hyperplane.core.errors import EngineError
from hyperplane.core.event_loop_thread import EventLoopThread
from hyperplane.core.units import bytes_to_gb
from hyperplane.platforms.kubernetes import pod_status
from hyperplane.platforms.kubernetes.errors import KubernetesError
from hyperplane.platforms.kubernetes.kubeconfig import uses_port_forward
from hyperplane.platforms.local import temporary_folders
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import RayKubernetesSettings

if TYPE_CHECKING:
    from hyperplane.clusters.ray.kubernetes.resource import RayClusterResource
    from hyperplane.platforms.kubernetes.port_forward import PortForwards

#: Attached clusters of this process, which it does not own, by name and namespace.
attached: dict[tuple[str, str | None], KubernetesRayCluster] = {}
#: Seconds that closing waits until the pods have ended, and after which a state is asked again.
CLOSE_SECONDS, POLL_SECONDS = 90.0, 3.0
#: Why a cluster has ended that this object has not closed.
_ENDED = "its idle timeout has passed, its lease has expired, or it was deleted"
#: Seconds of the lease of a program that attaches with a configuration without one.
_LEASE_SECONDS = 300.0

logger = logging.getLogger(__name__)

T = TypeVar("T")


class KubernetesRayCluster:
    """A head and worker nodes of Ray in pods; programs of this process use them by Ray Client.

    Parameters
    ----------
    name : str
        Name of the cluster.
    settings : RayKubernetesSettings
        Settings of the engine.
    plan : ClusterPlan or None
        The plan of a new cluster; None to attach to an existing one.
    record : ClusterRecord or None
        The reserved record of a new cluster; None to attach to an existing one.
    folder : Path
        Folder for the certificate of clients.
    """

    engine = ENGINE

    def __init__(
        self,
        name: str,
        settings: RayKubernetesSettings,
        plan: ClusterPlan | None,
        record: records.ClusterRecord | None,
        folder: Path,
    ) -> None:
        from hyperplane.clusters.ray.kubernetes.resource import RayClusterResource

        self.name, self.plan, self.record = name, plan, record
        #: ID of the process whose threads serve this object; a fork does not copy them.
        self.pid = os.getpid()
        self.address = self.dashboard = self.end_reason = ""
        self._settings, self._folder = settings, folder
        self._uses_port_forward = uses_port_forward(settings.port_forward)
        self._forwards: PortForwards | None = None
        self._tls_folder = ""
        self._status, self._asked_at = RUNNING, time.monotonic()
        self._lock = threading.RLock()
        self._loop = EventLoopThread()
        self._renewal: Future[None] | None = None
        self._resource: RayClusterResource = RayClusterResource(name, settings.namespace)
        own = pod_status.build_setting_advice(settings.locate)
        self._resource.advice = {**self._resource.advice, **own}

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine; Ctrl-C cancels it."""
        try:
            self._check_process()
        except EngineError:
            work.close()
            raise
        future = self._loop.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _check_process(self) -> None:
        """Raise an EngineError in a process that was forked from the one of this object."""
        if self.pid != os.getpid():
            raise EngineError(
                ENGINE,
                f"process {os.getpid()} was forked from process {self.pid}, which has opened "
                f"cluster {self.name}; a fork does not copy the threads that serve this object. "
                "get_ray_cluster() connects the new process",
            )

    def create(self) -> None:
        """Create the resource of the plan, and what belongs to it."""
        from hyperplane.clusters.ray.kubernetes.resource import ClusterCredentials

        assert self.plan is not None  # noqa: S101 - for mypy: of a new cluster
        OwnedRayCluster.running[self.name] = self
        access = ClusterCredentials.create(self._settings.security == "tls")
        self._run(self._translate(self._resource.api.connect()))
        manifest, job = build_manifest(self.plan), build_idle_job(self.plan)
        lease = None if job is None else self._prepare_lease(job)
        self._run(self._resource.create(manifest, job, access))
        if lease is not None:
            self._run(lease.begin())
            # Also if that failed: the Job has a deadline.
            self._renewal = self._loop.start(lease.renew())

    def _prepare_lease(self, job: dict[str, Any]) -> JobLease | None:
        """Add the first deadline to the manifest of the Job; return its lease if it has one."""
        assert self.plan is not None  # noqa: S101 - for mypy: of a new cluster
        if (seconds := self._settings.lease_seconds) is None:
            return None
        lease = JobLease(self._resource.api, job["metadata"]["name"], seconds)
        if refusal := self._run(self._translate(lease.find_refusal())):
            self._warn_without_lease(self._end_without_lease, refusal)
            return None
        lease.add_deadline(job, self.plan.request.timeout)
        return lease

    @property
    def _end_without_lease(self) -> str:
        """When the cluster ends if its program is killed."""
        if self.plan is None or self.plan.idle_timeout is None:
            return "runs until it is deleted if this program is killed"
        return "ends only after its idle timeout if this program is killed"

    def load(self) -> None:
        """Load the existing resource."""
        self._run(self._translate(self._resource.api.connect()))
        self._run(self._resource.load())

    def renew_lease(self) -> None:
        """Renew the lease of a loaded cluster, if it has one, until this object closes."""
        if not self._resource.has_job:
            return
        seconds = self._settings.lease_seconds or _LEASE_SECONDS
        end = "ends with the program that started it, unless that has set keep_alive"
        try:
            lease = self._run(load_lease(self._resource.api, job_name(self.name), seconds))
        except (KubernetesError, TimeoutError) as error:
            self._warn_without_lease(end, error)
            return
        if lease is None:
            return
        if refusal := self._run(lease.begin()):
            self._warn_without_lease(end, refusal)
        else:
            self._renewal = self._loop.start(lease.renew())

    def _warn_without_lease(self, end: str, reason: object) -> None:
        message = "cluster %s %s, because this program cannot renew its lease: %s"
        logger.warning(message, self.name, end, reason)

    async def _translate(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine; raise errors of Kubernetes as those of the engine."""
        from hyperplane.clusters.custom_resource import engine_errors

        with engine_errors(ENGINE):
            return await work

    def wait_for_head(self, deadline: float) -> None:
        """Wait until the head runs, and open the ports of this machine that lead to it."""
        self._run(self._resource.wait_for_head(deadline))
        self._run(self._reach_head())
        self._tls_folder = self._resource.access.write_files(self._folder)

    async def _reach_head(self) -> None:
        from hyperplane.clusters.custom_resource import engine_errors
        from hyperplane.platforms.kubernetes.port_forward import PortForwards

        service, *_, host = service_names(self.name, self._resource.api.namespace)
        ports = {CLIENT_PORT: CLIENT_PORT, DASHBOARD_PORT: DASHBOARD_PORT}
        if self._uses_port_forward:
            wanted = (self.plan.dashboard_port or None) if self.plan is not None else None
            local = {CLIENT_PORT: None, DASHBOARD_PORT: wanted}
            self._forwards = PortForwards(service, self._resource.api.namespace, local)
            with engine_errors(ENGINE):
                await self._forwards.open()
            host, ports = "127.0.0.1", self._forwards.local
        self.address = f"{driver_environment.CLIENT_SCHEME}{host}:{ports[CLIENT_PORT]}"
        self.dashboard = f"http://{host}:{ports[DASHBOARD_PORT]}"

    def start_workers(self, count: int, deadline: float, announce: Callable[[str], None]) -> None:
        """Wait until a number of worker pods is ready, and announce their names."""
        self._run(self._resource.wait_for_workers(count, deadline, announce))

    def add_workers(self, count: int, announce: Callable[[str], None]) -> None:
        """Start more worker nodes, and wait for them."""
        known = self.workers
        timeout = self.plan.request.timeout if self.plan is not None else CLOSE_SECONDS
        deadline = time.monotonic() + timeout
        total, before = self._run(self._resource.scale(count))
        try:
            with allow_interrupts():
                self._run(self._resource.wait_for_workers(total, deadline, announce, known))
        except BaseException:
            self._withdraw(count, before)
            raise
        self.write_record()

    def _withdraw(self, count: int, before: list[str]) -> None:
        """Withdraw the worker nodes that a failed call has requested."""
        try:
            self._run(self._resource.withdraw(count, before))
        except EngineError as error:
            message = "Kubernetes keeps trying to start the worker nodes of cluster %s: %s"
            logger.warning(message, self.name, error)

    def connect_programs(self) -> None:
        """Make ``ray.init()`` connect to the cluster."""
        driver_environment.set_variables(self.address, self.variables)

    @property
    def variables(self) -> dict[str, str | None]:
        """Environment variables of processes that use the cluster."""
        token = self._resource.access.token
        return driver_environment.build_variables(token, False, self._tls_folder)

    def complete_start(self) -> None:
        """Set the variables of this process, and write the record with the addresses."""
        self.connect_programs()
        self.write_record()
        with suppress(EngineError):  # the cluster has started nevertheless
            if problem := self._run(self._resource.explain_idle_job()):
                message = "the Job %s, which ends the cluster, %s"
                logger.warning(message, job_name(self.name), problem)

    def write_record(self) -> None:
        """Write the record with the running workers, if this process owns the cluster."""
        if self.plan is None or self.record is None:
            return
        hosts, worker = self.hosts, self.plan.worker
        count = len(hosts)
        self.record = replace(
            self.record,
            scheduler=self.address,
            dashboard=self.dashboard,
            workers=count,
            threads=count * worker.nthreads,
            ram_gb=bytes_to_gb(count * worker.ram_per_proc),
            client={"workers": list(hosts), "namespace": self._resource.api.namespace},
        )
        records.write(self.record)

    @property
    def hosts(self) -> dict[str, str]:
        """Addresses of the ready worker pods by their names."""
        if self._status == CLOSED:
            return {}
        return self._run(self._resource.list_workers())

    @property
    def workers(self) -> list[str]:
        """Names of the ready worker pods."""
        return list(self.hosts)

    @property
    def status(self) -> str:
        """``running``, or ``closed`` after :meth:`close` or if the resource was deleted."""
        return self.check_status(POLL_SECONDS)

    def check_status(self, age: float = 0.0) -> str:
        """Return the status, which the API server is asked for if it is older than ``age`` s."""
        self._check_process()  # first: another thread may have had the lock when it was forked
        with self._lock:
            now = time.monotonic()
            if self._status == RUNNING and now - self._asked_at >= age:
                self._asked_at = now
                with suppress(EngineError):  # without an answer the cluster may still exist
                    if self._run(self._resource.is_gone()):
                        self.end_reason = _ENDED
                        self._release()
            return self._status

    def find_end(self) -> str:
        """Return why the cluster has ended; an empty text while it runs."""
        if self.status == RUNNING:
            return ""
        return self.end_reason or "it was closed"

    def disconnect(self) -> None:
        """Disconnect this process, which can connect again."""
        driver_environment.disconnect(self.address)

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Delete the cluster, also if another program started it; safe to call repeatedly.

        Parameters
        ----------
        timeout : float
            Seconds to wait until its pods have ended; 0 to return at once.
        """
        self._check_process()
        with self._lock:
            if self._status == CLOSED:
                return
            try:
                driver_environment.restore_variables(self.address)
                self._run(self._resource.discard(timeout))
            except EngineError as error:
                namespace = self._resource.api.namespace
                command = f"kubectl delete raycluster {self.name}"
                command += f" -n {namespace}" if namespace else ""
                message = f"cluster {self.name} may still run, delete it with '{command}'"
                raise EngineError(ENGINE, f"{message}: {error.message}") from error
            finally:
                self._release()

    def detach(self) -> None:
        """Close this object, but not the cluster."""
        self._check_process()
        with self._lock:
            if self._status == RUNNING:
                self._release()

    def _release(self) -> None:
        """Close the connections, and remove the record."""
        self._status = CLOSED
        driver_environment.restore_variables(self.address)
        if OwnedRayCluster.running.get(self.name) is self:
            del OwnedRayCluster.running[self.name]
        for key in [key for key, cluster in attached.items() if cluster is self]:
            del attached[key]
        if self._renewal is not None:
            self._renewal.cancel()
        self._run(self._close_connections())
        self._loop.close()
        if self.record is not None:
            records.remove(self.record.name, self.record.scratch)
        else:
            temporary_folders.remove_temporary_folder(self._folder)

    async def _close_connections(self) -> None:
        if self._forwards is not None:
            await self._forwards.close()
        await self._resource.api.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self.address}>"


def _close_owned_clusters() -> None:
    """Close the clusters that this program owns, at its exit."""
    for cluster in list(OwnedRayCluster.running.values()):
        if isinstance(cluster, KubernetesRayCluster) and cluster.pid == os.getpid():
            with suppress(Exception):  # the Job ends it after the idle timeout
                cluster.close(timeout=0)


def _forget_clusters() -> None:
    """Forget the clusters of the parent in a forked child, which can attach to them."""
    attached.clear()
    for name, cluster in list(OwnedRayCluster.running.items()):
        if isinstance(cluster, KubernetesRayCluster):
            del OwnedRayCluster.running[name]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_clusters)
# Later exit handlers could not start threads, which resolve host names.
getattr(threading, "_register_atexit", atexit.register)(_close_owned_clusters)
