"""The master of a Spark cluster on this machine, and its workers as jobs of Slurm."""

from __future__ import annotations

from typing import Any, ClassVar

from hyperplane.clusters.remote_nodes.slurm_group import SlurmWorkerGroup
from hyperplane.clusters.spark.remote_node_group import RemoteSparkNodeGroup
from hyperplane.clusters.spark.worker_program import read_versions


class SlurmSparkNodeGroup(SlurmWorkerGroup, RemoteSparkNodeGroup):
    """The master and the workers of a cluster; the workers are jobs.

    Parameters
    ----------
    report : callable
        Reports an event by its keywords.
    """

    own_prefix: ClassVar[str] = "SPARK_"

    def _start_head(self, request: dict[str, Any]) -> None:
        """Start the server for the jobs, and the master at the address that they see."""
        self._start_server(request)
        self._start_master(request, request["host"])
        self._start_checks()

    def _configure(self, request: dict[str, Any], host: str) -> dict[str, Any]:
        """Return also the versions and the memory that the machine of the job must have."""
        expected = {**read_versions(), "ram": self._settings["ram_per_worker"]}
        return {**super()._configure(request, host), "check": expected}
