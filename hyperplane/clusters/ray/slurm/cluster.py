"""The cluster object of the engine ``ray:slurm``."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from hyperplane.clusters import records
from hyperplane.clusters.ray.cluster import RemoteRayCluster
from hyperplane.clusters.remote_nodes.slurm_jobs import build_request
from hyperplane.platforms.slurm.shared_folder import remove_empty, shared_folder
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import RaySlurmSettings

ENGINE = "ray:slurm"
#: Module that jobs run.
PROGRAM = "hyperplane.clusters.ray.slurm.job_program"


class SlurmRayCluster(RemoteRayCluster):
    """A head of Ray on this machine and worker nodes in jobs, which this process owns.

    Parameters
    ----------
    plan, record, folder
        As those of OwnedRayCluster.
    host : str
        Address of this machine by which the nodes reach it.
    """

    engine: ClassVar[str] = ENGINE
    node_group: ClassVar[str] = "hyperplane.clusters.ray.slurm.node_group:SlurmRayNodeGroup"

    def __init__(
        self, plan: ClusterPlan, record: records.ClusterRecord, folder: Path, host: str
    ) -> None:
        settings = plan.settings
        assert isinstance(settings, RaySlurmSettings)  # noqa: S101 - of this engine
        self._settings = settings
        tls = settings.security == "tls"
        request = {
            "dashboard": settings.dashboard,
            "tls": tls,
            **build_request(plan, record, host, PROGRAM),
        }
        super().__init__(plan, record, folder, tls, request)

    def check_room(self, count: int) -> None:
        """Do nothing: Slurm decides when a job starts, and refuses those that never can."""
        del count

    def close(self) -> None:
        """End all nodes and remove the record and the shared folder; safe to call repeatedly."""
        super().close()
        remove_empty([shared_folder(self._settings)])
