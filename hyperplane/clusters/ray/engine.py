"""Base of the engines of Ray, whose head is on this machine."""

from __future__ import annotations

import os
import secrets
from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from hyperplane.clusters import records
from hyperplane.clusters.engine import StartedCluster, SupportedDeployMode
from hyperplane.clusters.local_nodes.engine import LocalNodeEngine
from hyperplane.clusters.ray import driver_environment
from hyperplane.clusters.ray.client import RayClient
from hyperplane.clusters.ray.cluster import AttachedRayCluster, OwnedRayCluster
from hyperplane.clusters.ray.node_processes import LONGEST_FOLDER
from hyperplane.core.errors import StartFailed
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import EngineSettings

#: Advice if Ray is missing.
INSTALL_RAY = 'Ray is not installed: pip install "hyperplane[ray]"'


class BaseRayEngine(LocalNodeEngine[RayClient, OwnedRayCluster]):
    """Starts a head of Ray on this machine, and worker nodes."""

    #: Whether all nodes are at the loopback address.
    loopback: bool

    def create_record(self, plan: ClusterPlan) -> records.ClusterRecord:
        """Return the record of a new cluster with its token."""
        return records.ClusterRecord.from_plan(plan, security={"token": secrets.token_hex(32)})

    @abstractmethod
    def build_cluster(
        self, plan: ClusterPlan, record: records.ClusterRecord, folder: Path
    ) -> OwnedRayCluster:
        """Return the object of a new cluster whose folder is valid."""

    def create_cluster(
        self, plan: ClusterPlan, record: records.ClusterRecord, folder: Path
    ) -> OwnedRayCluster:
        """Return the object of a new cluster, whose program has been started."""
        if len(os.fsencode(folder)) > LONGEST_FOLDER:
            raise StartFailed(
                self.name,
                f"the path of the temporary directory is too long for the sockets of Ray: "
                f"{folder} has more than {LONGEST_FOLDER} bytes; set TMPDIR to a shorter path",
            )
        return self.build_cluster(plan, record, folder)

    def create_client(self, cluster: OwnedRayCluster) -> RayClient:
        """Return the client of a cluster of this process."""
        return RayClient(
            self.name, cluster.address, cluster.variables, cluster.disconnect, cluster.find_end
        )

    def attach(self, record: records.ClusterRecord) -> StartedCluster[RayClient, Any]:
        """Connect programs of this process to a running cluster; return its client and object."""
        variables = driver_environment.build_variables(
            record.security["token"], self.loopback, record.client.get("tls_folder", "")
        )
        driver_environment.set_variables(record.scheduler, variables)
        if (own := OwnedRayCluster.find_own(record)) is not None:
            return StartedCluster(self.create_client(own), own)
        cluster = AttachedRayCluster(record)
        client = RayClient(
            self.name, record.scheduler, variables, cluster.disconnect_programs, cluster.find_end
        )
        return StartedCluster(client, cluster)


class RemoteRayEngine(BaseRayEngine):
    """Starts a head of Ray on this machine, and worker nodes on others."""

    ignored: ClassVar[frozenset[str]] = BaseRayEngine.ignored | {"local_fit"}
    supported_deploy_mode: ClassVar[SupportedDeployMode] = SupportedDeployMode(
        "local", "a program has to be on a node of the Ray cluster that it uses"
    )
    loopback = False

    def capacity(self, settings: EngineSettings) -> None:  # type: ignore[override]
        """Return None: the engine is not bound to one machine."""
        del settings
