"""The cluster object of the engine ``spark:local``."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from hyperplane.clusters import records
from hyperplane.clusters.spark import configuration
from hyperplane.clusters.spark.cluster import OwnedSparkCluster
from hyperplane.spec.plan import ClusterPlan

ENGINE = "spark:local"


class LocalSparkCluster(OwnedSparkCluster):
    """A master and workers of Spark on this machine, which this process owns.

    Parameters
    ----------
    plan, record, folder, home
        As those of OwnedSparkCluster.
    secret : str
        Secret of all processes of the cluster and of programs that use it.
    """

    engine: ClassVar[str] = ENGINE
    node_group: ClassVar[str] = "hyperplane.clusters.spark.local.node_group:LocalSparkNodeGroup"

    def __init__(
        self,
        plan: ClusterPlan,
        record: records.ClusterRecord,
        folder: Path,
        home: Path,
        secret: str,
    ) -> None:
        properties = configuration.build_properties(plan, folder, secret, encrypted=False)
        super().__init__(plan, record, folder, home, properties)
