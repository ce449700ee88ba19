"""The cluster object of the engine ``spark:ssh``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, ClassVar

from hyperplane.clusters import records
from hyperplane.clusters.remote_nodes.host_slots import HostSlots
from hyperplane.clusters.spark import configuration
from hyperplane.clusters.spark.cluster import OwnedSparkCluster, build_worker_properties
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import SparkSshSettings

ENGINE = "spark:ssh"


class SshSparkCluster(OwnedSparkCluster):
    """A master of Spark on this machine and workers on hosts, which this process owns.

    Parameters
    ----------
    plan, record, folder, home
        As those of OwnedSparkCluster.
    secret : str
        Secret of all processes of the cluster and of programs that use it.
    """

    engine: ClassVar[str] = ENGINE
    node_group: ClassVar[str] = "hyperplane.clusters.spark.ssh.node_group:SshSparkNodeGroup"

    def __init__(
        self,
        plan: ClusterPlan,
        record: records.ClusterRecord,
        folder: Path,
        home: Path,
        secret: str,
    ) -> None:
        settings = plan.settings
        assert isinstance(settings, SparkSshSettings)  # noqa: S101 - of this engine
        self._slots = HostSlots(plan)
        python, encrypted = settings.python or sys.executable, settings.security == "tls"
        request = {
            "hosts": {host: self._slots.compute_ram(host) for host in self._slots.hosts},
            "java_home": settings.java_home,
            "local_directory": settings.local_directory,
            "python": python,
            "secret": secret,  # through a pipe
            "ssh": self._slots.describe_connections(),
            "ssh_keys": settings.setting_keys,
            "worker_properties": build_worker_properties(settings, home, encrypted),
        }
        properties = configuration.build_properties(plan, folder, secret, encrypted, remote=True)
        super().__init__(plan, record, folder, home, properties, python, request)

    def describe_worker(self, name: str) -> dict[str, Any]:
        """Return the size and the host of a new worker."""
        return {**super().describe_worker(name), **self._slots.assign(name)}

    def handle(self, event: dict[str, Any]) -> None:
        """Update the cluster after an event that the program reports."""
        self._slots.handle(event)
        super().handle(event)
