"""The engine ``ray:local``: a Ray cluster that is limited to the resources of this machine."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any, ClassVar

from hyperplane.clusters import records
from hyperplane.clusters.engine import Availability, StartedCluster
from hyperplane.clusters.local_nodes.engine import LocalNodeEngine
from hyperplane.clusters.ray import driver_environment
from hyperplane.clusters.ray.client import RayClient
from hyperplane.clusters.ray.local.cluster import ENGINE, AttachedRayCluster, LocalRayCluster
from hyperplane.core.errors import StartFailed
from hyperplane.core.optional import is_installed
from hyperplane.core.units import plural
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import EngineSettings, RayLocalSettings

#: Maximum bytes of the path of a cluster's folder with which the paths of Ray's sockets are valid.
_LONGEST_PATH = 75


class LocalRayEngine(LocalNodeEngine[RayClient, LocalRayCluster]):
    """Starts a head and worker nodes of Ray on this machine, owned by this process."""

    name: ClassVar[str] = ENGINE
    settings: ClassVar[type[EngineSettings]] = RayLocalSettings

    def available(self) -> Availability:
        """Return whether Ray is installed."""
        if not is_installed("ray"):
            return Availability(False, 'Ray is not installed: pip install "hyperplane[ray]"')
        return Availability(True, "needs nothing but this machine")

    def start_line(self, plan: ClusterPlan) -> str:
        """Return a line with the number of worker nodes on this machine."""
        workers = plural(plan.dask_workers, "worker node")
        return f"starting the head node and {workers} of Ray on this machine"

    def create_record(self, plan: ClusterPlan) -> records.ClusterRecord:
        """Return the record of a new cluster with its token."""
        return records.ClusterRecord.from_plan(plan, security={"token": secrets.token_hex(32)})

    def create_cluster(
        self, plan: ClusterPlan, record: records.ClusterRecord, folder: Path
    ) -> LocalRayCluster:
        """Return the object of a new cluster, whose program has been started."""
        if len(os.fsencode(folder)) > _LONGEST_PATH:
            raise StartFailed(
                ENGINE,
                f"the path of the temporary directory is too long for the sockets of Ray: "
                f"{folder} has more than {_LONGEST_PATH} bytes; set TMPDIR to a shorter path",
            )
        return LocalRayCluster(plan, record, folder)

    def create_client(self, cluster: LocalRayCluster) -> RayClient:
        """Return the client of a cluster of this process."""
        token = cluster.record.security["token"]
        return RayClient(ENGINE, cluster.address, token, find_end=cluster.find_end)

    def attach(self, record: records.ClusterRecord) -> StartedCluster[RayClient, Any]:
        """Connect programs of this process to a running cluster; return its client and object."""
        token = record.security["token"]
        driver_environment.set_variables(record.scheduler, token)
        own = LocalRayCluster.find_own(record)
        cluster = own or AttachedRayCluster(record)
        client = RayClient(ENGINE, record.scheduler, token, own is None, cluster.find_end)
        return StartedCluster(client, cluster)
