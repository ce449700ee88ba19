"""The cluster object of the engine ``ray:ssh``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, ClassVar

from hyperplane.clusters import records
from hyperplane.clusters.ray.cluster import RemoteRayCluster
from hyperplane.clusters.remote_nodes.host_slots import HostSlots
from hyperplane.spec.plan import ClusterPlan
from hyperplane.spec.settings import RaySshSettings

ENGINE = "ray:ssh"


class SshRayCluster(RemoteRayCluster):
    """A head of Ray on this machine and worker nodes on hosts, which this process owns.

    Parameters
    ----------
    plan, record, folder
        As those of OwnedRayCluster.
    """

    engine: ClassVar[str] = ENGINE
    node_group: ClassVar[str] = "hyperplane.clusters.ray.ssh.node_group:SshRayNodeGroup"

    def __init__(self, plan: ClusterPlan, record: records.ClusterRecord, folder: Path) -> None:
        settings = plan.settings
        assert isinstance(settings, RaySshSettings)  # noqa: S101 - of this engine
        self._slots = HostSlots(plan)
        request = {
            "dashboard": settings.dashboard,
            "hosts": self._slots.hosts,
            "python": settings.python or sys.executable,
            "ssh": self._slots.describe_connections(),
            "ssh_keys": settings.setting_keys,
        }
        super().__init__(plan, record, folder, settings.security == "tls", request)

    def place_worker(self, name: str) -> dict[str, Any]:
        """Return the host of a new worker node, its index there, and the memory of all there."""
        return self._slots.assign(name)

    def handle(self, event: dict[str, Any]) -> None:
        """Update the cluster after an event that the program reports."""
        self._slots.handle(event)
        super().handle(event)

    def check_room(self, count: int) -> None:
        """Raise a RequestError if there are too few hosts for more worker nodes."""
        self._slots.check_room(count, self.noun)
