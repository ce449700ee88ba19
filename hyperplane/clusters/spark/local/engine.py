"""The engine ``spark:local``: a standalone Spark cluster within the resources of this machine."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any, ClassVar

from hyperplane.clusters import records
from hyperplane.clusters.engine import Availability, StartedCluster
from hyperplane.clusters.local_nodes.engine import LocalNodeEngine
from hyperplane.clusters.spark import driver, installation
from hyperplane.clusters.spark.client import SparkClient
from hyperplane.clusters.spark.local.cluster import (
    ENGINE,
    AttachedSparkCluster,
    LocalSparkCluster,
)
from hyperplane.core.units import plural
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import EngineSettings, SparkLocalSettings


class LocalSparkEngine(LocalNodeEngine[SparkClient, LocalSparkCluster]):
    """Starts a standalone Spark cluster on this machine, owned by this process."""

    name: ClassVar[str] = ENGINE
    settings: ClassVar[type[EngineSettings]] = SparkLocalSettings

    def available(self) -> Availability:
        """Return whether Spark and a Java that it supports are installed."""
        problem = installation.find_problem()
        return Availability(not problem, problem or "needs nothing but this machine")

    def start_line(self, plan: ClusterPlan) -> str:
        """Return a line with the number of workers on this machine."""
        workers = plural(plan.dask_workers, "worker")
        return f"starting the master and {workers} of Spark on this machine"

    def create_record(self, plan: ClusterPlan) -> records.ClusterRecord:
        """Return the record of a new cluster; only files of its folder have the secret."""
        return records.ClusterRecord.from_plan(plan)

    def create_cluster(
        self, plan: ClusterPlan, record: records.ClusterRecord, folder: Path
    ) -> LocalSparkCluster:
        """Return the object of a new cluster, whose program has been started."""
        home, secret = installation.find_home(), secrets.token_hex(32)
        return LocalSparkCluster(plan, record, folder, home, secret)

    def create_client(self, cluster: LocalSparkCluster) -> SparkClient:
        """Return the client of a cluster of this process."""
        return SparkClient(
            ENGINE, cluster.address, cluster.conf, cluster.home, cluster.pause_idle_timeout
        )

    def attach(self, record: records.ClusterRecord) -> StartedCluster[SparkClient, Any]:
        """Connect programs of this process to a running cluster; return its client and object."""
        conf, home = Path(record.client["conf"]), Path(record.client["home"])
        driver.set_variables(conf, home)
        client = SparkClient(ENGINE, record.scheduler, conf, home)
        own = LocalSparkCluster.find_own(record)
        return StartedCluster(client, own or AttachedSparkCluster(record))
