"""The engine ``spark:local``: a standalone Spark cluster within the resources of this machine."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, cast

from hyperplane.clusters import records
from hyperplane.clusters.engine import Availability, Feature, StartedCluster
from hyperplane.clusters.interrupts import allow_interrupts
from hyperplane.clusters.machine_capacity import read_capacity
from hyperplane.clusters.running_clusters import describe_running, read_running
from hyperplane.clusters.spark import driver, installation
from hyperplane.clusters.spark.client import SparkClient
from hyperplane.clusters.spark.local.cluster import (
    ENGINE,
    AttachedSparkCluster,
    LocalSparkCluster,
)
from hyperplane.core.errors import EngineError, Fault, StartFailed
from hyperplane.core.units import plural
from hyperplane.spec.capacity import MachineCapacity
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.request import ClusterRequest
from hyperplane.spec.settings import EngineSettings, SparkLocalSettings
from hyperplane.spec.spark_options import SparkOptions


class LocalSparkEngine:
    """Starts a standalone Spark cluster on this machine, owned by this process."""

    name: ClassVar[str] = ENGINE
    unsupported: ClassVar[frozenset[Feature]] = frozenset({Feature.GPUS})
    ignored: ClassVar[frozenset[str]] = frozenset(
        {"worker_spec_yaml", "node_selector", "scheduler_ram", "scheduler_cpu", "memory", "tuning"}
    )
    settings: ClassVar[type[EngineSettings]] = SparkLocalSettings
    uses_pools: ClassVar[bool] = False

    def available(self) -> Availability:
        """Return whether Spark and a Java that it supports are installed."""
        problem = installation.find_problem()
        return Availability(not problem, problem or "needs nothing but this machine")

    def capacity(self, settings: EngineSettings) -> MachineCapacity:
        """Return the usable cores, and the memory that one more cluster may reserve."""
        return read_capacity(cast(SparkLocalSettings, settings).reserve_fraction)

    def faults(self, request: ClusterRequest, settings: EngineSettings) -> list[Fault]:
        """Return no faults: the planner reduces a larger request, or notes that it is too large."""
        del request, settings
        return []

    def start_line(self, plan: ClusterPlan) -> str:
        """Return a line with the number of workers on this machine."""
        workers = plural(plan.dask_workers, "worker")
        return f"starting the master and {workers} of Spark on this machine"

    def start(self, plan: ClusterPlan) -> StartedCluster[SparkClient, LocalSparkCluster]:
        """Start all processes; return when the workers are registered."""
        return self.start_with_lines(plan, lambda kind, text: None)

    def start_with_lines(
        self, plan: ClusterPlan, announce: Callable[[str, str], None]
    ) -> StartedCluster[SparkClient, LocalSparkCluster]:
        """Start all processes, and report the address of the dashboard and the names of workers.

        ``announce`` is called with ``dashboard`` or ``worker``, and the address or name.
        """
        SparkOptions.of(plan.options)
        deadline = time.monotonic() + plan.request.timeout
        try:
            record = records.reserve(records.ClusterRecord.from_plan(plan), None)
        except OSError as error:
            raise StartFailed(ENGINE, str(error)) from error
        folder = None
        try:
            folder = records.create_cluster_folder()
            home, secret = installation.find_home(), secrets.token_hex(32)
            cluster = LocalSparkCluster(plan, record, folder, home, secret)
        except BaseException as error:
            records.remove(record.name, record.scratch)
            if folder is not None:
                records.remove_cluster_folder(folder)
            if isinstance(error, OSError) and not isinstance(error, EngineError):
                raise StartFailed(ENGINE, str(error)) from error
            raise
        try:
            with allow_interrupts():
                cluster.start_master(deadline)
                announce("dashboard", cluster.dashboard)
                cluster.start_workers(
                    plan.dask_workers, deadline, lambda name: announce("worker", name)
                )
            cluster.complete_start()
            client = SparkClient(
                ENGINE, cluster.address, cluster.conf, home, cluster.pause_idle_timeout
            )
            return StartedCluster(client, cluster)
        except BaseException:
            cluster.close()
            raise

    def connect(self, name: str, settings: EngineSettings) -> StartedCluster[SparkClient, Any]:
        """Attach to a cluster that a process of this user runs on this machine."""
        del settings
        running = read_running(ENGINE)
        for record in running:
            if (record.name, record.engine) == (name, ENGINE):
                conf, home = Path(record.client["conf"]), Path(record.client["home"])
                driver.set_variables(conf, home)
                own = LocalSparkCluster.running.get(name)
                client = SparkClient(ENGINE, record.scheduler, conf, home)
                return StartedCluster(client, own or AttachedSparkCluster(record))
        raise EngineError(
            ENGINE, f"this machine runs no cluster {name!r}; {describe_running(running)}"
        )
