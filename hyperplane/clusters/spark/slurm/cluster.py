"""The cluster object of the engine ``spark:slurm``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import ClassVar

from hyperplane.clusters import records
from hyperplane.clusters.remote_nodes.slurm_jobs import build_request
from hyperplane.clusters.spark import configuration
from hyperplane.clusters.spark.cluster import OwnedSparkCluster, build_worker_properties
from hyperplane.platforms.slurm.shared_folder import remove_empty, shared_folder
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import SparkSlurmSettings

ENGINE = "spark:slurm"
#: Module that jobs run.
PROGRAM = "hyperplane.clusters.spark.slurm.job_program"


class SlurmSparkCluster(OwnedSparkCluster):
    """A master of Spark on this machine and workers in jobs, which this process owns.

    Parameters
    ----------
    plan, record, folder, home
        As those of OwnedSparkCluster.
    secret : str
        Secret of all processes of the cluster and of programs that use it.
    host : str
        Address of this machine by which the nodes reach it.
    """

    engine: ClassVar[str] = ENGINE
    node_group: ClassVar[str] = "hyperplane.clusters.spark.slurm.node_group:SlurmSparkNodeGroup"

    def __init__(
        self,
        plan: ClusterPlan,
        record: records.ClusterRecord,
        folder: Path,
        home: Path,
        secret: str,
        host: str,
    ) -> None:
        settings = plan.settings
        assert isinstance(settings, SparkSlurmSettings)  # noqa: S101 - of this engine
        self._batch_settings = settings
        encrypted = settings.security == "tls"
        request = {
            "ram_per_worker": plan.worker.ram_per_proc,
            "secret": secret,  # through a pipe
            "worker_properties": build_worker_properties(settings, home, encrypted),
            **build_request(plan, record, host, PROGRAM),
        }
        properties = configuration.build_properties(plan, folder, secret, encrypted, remote=True)
        python = settings.python or sys.executable
        super().__init__(plan, record, folder, home, properties, python, request)

    def close(self) -> None:
        """End all processes and remove the record and the shared folder; safe to repeat."""
        super().close()
        remove_empty([shared_folder(self._batch_settings)])
