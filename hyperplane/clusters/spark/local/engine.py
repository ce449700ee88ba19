"""The engine ``spark:local``: a standalone Spark cluster within the resources of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from hyperplane.clusters import records
from hyperplane.clusters.engine import Availability
from hyperplane.clusters.spark import installation
from hyperplane.clusters.spark.engine import BaseSparkEngine
from hyperplane.clusters.spark.local.cluster import ENGINE, LocalSparkCluster
from hyperplane.core.units import plural
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import EngineSettings, SparkLocalSettings


class LocalSparkEngine(BaseSparkEngine):
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

    def build_cluster(
        self,
        plan: ClusterPlan,
        record: records.ClusterRecord,
        folder: Path,
        home: Path,
        secret: str,
    ) -> LocalSparkCluster:
        """Return the object of a new cluster."""
        return LocalSparkCluster(plan, record, folder, home, secret)
