"""Interface of the engines of Ray, and the base of those whose head is on this machine."""

from __future__ import annotations

import os
import secrets
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Protocol

from hyperplane.clusters import records
from hyperplane.clusters.engine import (
    Availability,
    Feature,
    StartedCluster,
    SupportedDeployMode,
)
from hyperplane.clusters.gpu_requests import find_division_fault
from hyperplane.clusters.local_nodes.engine import LocalNodeEngine
from hyperplane.clusters.ray import driver_environment
from hyperplane.clusters.ray.client import RayClient
from hyperplane.clusters.ray.cluster import AttachedRayCluster, OwnedRayCluster
from hyperplane.clusters.ray.node_processes import LONGEST_FOLDER
from hyperplane.core.errors import Fault, StartFailed
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.request import ClusterRequest
from hyperplane.spec.settings import EngineSettings

#: Advice if Ray is missing.
INSTALL_RAY = 'Ray is not installed: pip install "hyperplane[ray]"'


class RayEngine(Protocol):
    """What the documented functions for Ray clusters need of an engine."""

    name: ClassVar[str]
    settings: ClassVar[type[EngineSettings]]

    def available(self) -> Availability:
        """Return whether the engine can be used on this machine, and why."""
        ...

    def start_with_lines(
        self, plan: ClusterPlan, announce: Callable[[str, str], None]
    ) -> StartedCluster[RayClient, Any]:
        """Start a cluster, and report the address of the dashboard and the names of workers."""
        ...

    def connect(self, name: str, settings: EngineSettings) -> StartedCluster[RayClient, Any]:
        """Attach to a running cluster."""
        ...

    def list_workers(
        self, record: records.ClusterRecord, settings: EngineSettings
    ) -> list[tuple[str, str]]:
        """Return the names and addresses of the running worker nodes of a cluster."""
        ...


class BaseRayEngine(LocalNodeEngine[RayClient, OwnedRayCluster]):
    """Starts a head of Ray on this machine, and worker nodes."""

    unsupported: ClassVar[frozenset[Feature]] = frozenset()
    #: Whether all nodes are at the loopback address.
    loopback: bool

    def faults(self, request: ClusterRequest, settings: EngineSettings) -> list[Fault]:
        """Return a fault if GPUs cannot be divided among the worker nodes of a machine."""
        return [*super().faults(request, settings), *find_division_fault(request)]

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

    def list_workers(
        self, record: records.ClusterRecord, settings: EngineSettings
    ) -> list[tuple[str, str]]:
        """Return the names and addresses of the running worker nodes, from a record."""
        del settings
        head, hosts = record.scheduler.rpartition(":")[0], record.client.get("hosts", {})
        return [(name, hosts.get(name, head)) for name in record.client["workers"]]

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
