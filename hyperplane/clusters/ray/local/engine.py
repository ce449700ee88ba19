"""The engine ``ray:local``: a Ray cluster that is limited to the resources of this machine."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from typing import Any, ClassVar, cast

from hyperplane.clusters import records
from hyperplane.clusters.engine import Availability, Feature, StartedCluster
from hyperplane.clusters.interrupts import allow_interrupts
from hyperplane.clusters.machine_capacity import read_capacity
from hyperplane.clusters.ray import driver_environment
from hyperplane.clusters.ray.client import RayClient
from hyperplane.clusters.ray.local.cluster import ENGINE, AttachedRayCluster, LocalRayCluster
from hyperplane.clusters.running_clusters import describe_running, read_running
from hyperplane.core.errors import EngineError, Fault, StartFailed
from hyperplane.core.optional import is_installed
from hyperplane.core.units import plural
from hyperplane.spec.capacity import MachineCapacity
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.ray_options import RayOptions
from hyperplane.spec.request import ClusterRequest
from hyperplane.spec.settings import EngineSettings, RayLocalSettings

#: Maximum bytes of the path of a cluster's folder with which the paths of Ray's sockets are valid.
_LONGEST_PATH = 75


class LocalRayEngine:
    """Starts a head and worker nodes of Ray on this machine, owned by this process."""

    name: ClassVar[str] = ENGINE
    unsupported: ClassVar[frozenset[Feature]] = frozenset({Feature.GPUS})
    ignored: ClassVar[frozenset[str]] = frozenset(
        {"worker_spec_yaml", "node_selector", "scheduler_ram", "scheduler_cpu", "memory", "tuning"}
    )
    settings: ClassVar[type[EngineSettings]] = RayLocalSettings
    uses_pools: ClassVar[bool] = False

    def available(self) -> Availability:
        """Return whether Ray is installed."""
        if not is_installed("ray"):
            return Availability(False, 'Ray is not installed: pip install "hyperplane[ray]"')
        return Availability(True, "needs nothing but this machine")

    def capacity(self, settings: EngineSettings) -> MachineCapacity:
        """Return the usable cores, and the memory that one more cluster may reserve."""
        return read_capacity(cast(RayLocalSettings, settings).reserve_fraction)

    def faults(self, request: ClusterRequest, settings: EngineSettings) -> list[Fault]:
        """Return no faults: the planner reduces a larger request, or notes that it is too large."""
        del request, settings
        return []

    def start_line(self, plan: ClusterPlan) -> str:
        """Return a line with the number of worker nodes on this machine."""
        workers = plural(plan.dask_workers, "worker node")
        return f"starting the head node and {workers} of Ray on this machine"

    def start(self, plan: ClusterPlan) -> StartedCluster[RayClient, LocalRayCluster]:
        """Start all nodes; return when they are registered."""
        return self.start_with_lines(plan, lambda kind, text: None)

    def start_with_lines(
        self, plan: ClusterPlan, announce: Callable[[str, str], None]
    ) -> StartedCluster[RayClient, LocalRayCluster]:
        """Start all nodes, and report the address of the dashboard and the names of workers.

        ``announce`` is called with ``dashboard`` or ``worker``, and the address or name.
        """
        RayOptions.of(plan.options)
        deadline = time.monotonic() + plan.request.timeout
        token = secrets.token_hex(32)
        record = records.ClusterRecord.from_plan(plan, security={"token": token})
        try:
            record = records.reserve(record, None)
        except OSError as error:
            raise StartFailed(ENGINE, str(error)) from error
        folder = None
        try:
            folder = records.create_cluster_folder()
            if len(os.fsencode(folder)) > _LONGEST_PATH:
                raise StartFailed(
                    ENGINE,
                    f"the path of the temporary directory is too long for the sockets of Ray: "
                    f"{folder} has more than {_LONGEST_PATH} bytes; set TMPDIR to a shorter "
                    "path",
                )
            cluster = LocalRayCluster(plan, record, folder)
        except BaseException as error:
            records.remove(record.name, record.scratch)
            if folder is not None:
                records.remove_cluster_folder(folder)
            if isinstance(error, OSError) and not isinstance(error, EngineError):
                raise StartFailed(ENGINE, str(error)) from error
            raise
        try:
            with allow_interrupts():
                cluster.start_head(deadline)
                announce("dashboard", cluster.dashboard)
                cluster.start_workers(
                    plan.dask_workers, deadline, lambda name: announce("worker", name)
                )
            cluster.complete_start()
            client = RayClient(ENGINE, cluster.address, token, find_end=cluster.find_end)
            return StartedCluster(client, cluster)
        except BaseException:
            cluster.close()
            raise

    def connect(self, name: str, settings: EngineSettings) -> StartedCluster[RayClient, Any]:
        """Attach to a cluster that a process of this user runs on this machine."""
        del settings
        running = read_running(ENGINE)
        for record in running:
            if (record.name, record.engine) == (name, ENGINE):
                token = record.security["token"]
                driver_environment.set_variables(record.scheduler, token)
                own = LocalRayCluster.running.get(name) if record.pid == os.getpid() else None
                cluster = own or AttachedRayCluster(record)
                client = RayClient(ENGINE, record.scheduler, token, own is None, cluster.find_end)
                return StartedCluster(client, cluster)
        raise EngineError(
            ENGINE, f"this machine runs no cluster {name!r}; {describe_running(running)}"
        )
