"""Base of the engines of Spark, whose master is on this machine."""

from __future__ import annotations

import secrets
from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from hyperplane.clusters import records
from hyperplane.clusters.engine import StartedCluster, SupportedDeployMode
from hyperplane.clusters.local_nodes.engine import LocalNodeEngine
from hyperplane.clusters.spark import driver, installation
from hyperplane.clusters.spark.client import SparkClient
from hyperplane.clusters.spark.cluster import AttachedSparkCluster, OwnedSparkCluster
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import EngineSettings


class BaseSparkEngine(LocalNodeEngine[SparkClient, OwnedSparkCluster]):
    """Starts a master of Spark on this machine, and workers."""

    @abstractmethod
    def build_cluster(
        self,
        plan: ClusterPlan,
        record: records.ClusterRecord,
        folder: Path,
        home: Path,
        secret: str,
    ) -> OwnedSparkCluster:
        """Return the object of a new cluster with a secret of all its processes and programs."""

    def create_record(self, plan: ClusterPlan) -> records.ClusterRecord:
        """Return the record of a new cluster; only files of its folder have the secret."""
        return records.ClusterRecord.from_plan(plan)

    def create_cluster(
        self, plan: ClusterPlan, record: records.ClusterRecord, folder: Path
    ) -> OwnedSparkCluster:
        """Return the object of a new cluster, whose program has been started."""
        home, secret = installation.find_home(), secrets.token_hex(32)
        return self.build_cluster(plan, record, folder, home, secret)

    def create_client(self, cluster: OwnedSparkCluster) -> SparkClient:
        """Return the client of a cluster of this process."""
        return SparkClient(
            self.name,
            cluster.address,
            cluster.conf,
            cluster.home,
            cluster.pause_idle_timeout,
            cluster.python,
        )

    def attach(self, record: records.ClusterRecord) -> StartedCluster[SparkClient, Any]:
        """Connect programs of this process to a running cluster; return its client and object."""
        conf, home = Path(record.client["conf"]), Path(record.client["home"])
        python = record.client.get("python", "")
        driver.set_variables(conf, home, python)
        client = SparkClient(self.name, record.scheduler, conf, home, python=python)
        own = OwnedSparkCluster.find_own(record)
        return StartedCluster(client, own or AttachedSparkCluster(record))


class RemoteSparkEngine(BaseSparkEngine):
    """Starts a master of Spark on this machine, and workers on others."""

    ignored: ClassVar[frozenset[str]] = BaseSparkEngine.ignored | {"local_fit"}
    supported_deploy_mode: ClassVar[SupportedDeployMode] = SupportedDeployMode(
        "local", "the master and the programs of a Spark cluster are on this machine"
    )

    def capacity(self, settings: EngineSettings) -> None:  # type: ignore[override]
        """Return None: the engine is not bound to one machine."""
        del settings
